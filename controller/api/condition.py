"""meta/v1 Condition, as the statuses of this API have it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from carina_dra.resource.metadata import ConditionStatus
from controller.api.status import status_body
from controller.engine.files.checked import text

_MESSAGE: Final = 4096
"""Characters. The API allows 32,768, which nobody reads."""


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """One aspect of the object's state."""

    type: Annotated[str, text("the type of a condition", "[A-Za-z][A-Za-z0-9]*", 316)]
    """What the condition says, as a CamelCase word."""
    status: ConditionStatus
    """`True`, `False` or `Unknown`."""
    last_transition_time: datetime | None
    """When the status changed last."""
    reason: Annotated[str, text("a reason", "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", 1024)]
    """Why the status is what it is, as a CamelCase word that programs may match."""
    message: Annotated[str, text("a message", r"(?s).*", 32768)]
    """Why the status is what it is, for people."""
    observed_generation: int = 0
    """The generation of the object that this is about."""

    @property
    def holds(self) -> bool:
        """Whether its status is `True`."""
        return self.status is ConditionStatus.TRUE

    def body(self) -> dict[str, Any]:
        """Returns the condition as an object of the API."""
        return status_body(self)


def desired_condition(
    kind: str, *, holds: bool, reason: str, message: str, observed_generation: int = 0
) -> StatusCondition:
    """Returns a condition without its time, which follows from the status that is replaced.

    A message of more than 4,096 characters is cut. observed_generation: 0 if it is not known.
    """
    if len(message) > _MESSAGE:
        message = f"{message[: _MESSAGE - 1]}…"
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return StatusCondition(kind, status, None, reason, message, observed_generation)

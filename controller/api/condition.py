"""meta/v1 Condition, as the statuses of this API have it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from carina_dra.resource.metadata import ConditionStatus
from controller.engine.files.checked import text


@dataclass(frozen=True, slots=True)
class Condition:
    """One aspect of the object's state."""

    type: Annotated[str, text("the type of a condition", "[A-Za-z][A-Za-z0-9]*", 316)]
    """What the condition says, as a CamelCase word."""
    status: ConditionStatus
    """`True`, `False` or `Unknown`."""
    last_transition_time: datetime
    """When the status changed last."""
    reason: Annotated[str, text("a reason", "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", 1024)]
    """Why the status is what it is, as a CamelCase word that programs may match."""
    message: Annotated[str, text("a message", r"(?s).*", 32768)]
    """Why the status is what it is, for people."""
    observed_generation: int = 0
    """The generation of the object that this is about."""

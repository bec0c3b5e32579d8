"""A condition as it is desired: `lastTransitionTime` follows when it is written."""

from dataclasses import dataclass
from typing import Final

from carina_dra.kube.body import Body

_MESSAGE: Final = 4096
"""Characters. The API allows 32,768, which nobody reads."""


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """One aspect of an object's state (meta/v1 Condition)."""

    type: str
    holds: bool
    reason: str
    """A CamelCase word that programs may match."""
    message: str
    observed_generation: int = 0
    """The generation of the object that was decided on; 0 if it is not known."""

    def body(self) -> Body:
        """The condition as an object of the API, without its time."""
        message = self.message
        if len(message) > _MESSAGE:
            message = f"{message[: _MESSAGE - 1]}…"
        return {
            "type": self.type,
            "status": "True" if self.holds else "False",
            "reason": self.reason,
            "message": message,
            "observedGeneration": self.observed_generation,
        }

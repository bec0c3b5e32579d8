"""Which priorities the pods of a queue may have."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from controller.engine.files.checked import Rule, integer

_Priority: TypeAlias = Annotated[int, integer(-(2**31), 2**31 - 1)]
_REMEDY = "priorities: write min, max or both, and min not more than max"


@dataclass(frozen=True, slots=True)
class Priorities:
    """The least and the highest priority of pods.

    Raises:
        ValueError: there is neither, or the least is more than the highest.
    """

    RULES: ClassVar = (
        Rule(
            "(has(self.min) || has(self.max)) && "
            "(!has(self.min) || !has(self.max) || self.min <= self.max)",
            _REMEDY,
        ),
    )

    min: _Priority | None = None
    """The least priority. There is none if it is absent."""
    max: _Priority | None = None
    """The highest priority. There is none if it is absent."""

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError(_REMEDY)
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(_REMEDY)

    def nearest(self, priority: int) -> int:
        """The allowed priority that is nearest to a priority."""
        least = priority if self.min is None else max(self.min, priority)
        return least if self.max is None else min(self.max, least)

    def __str__(self) -> str:
        least = None if self.min is None else f"at least {self.min}"
        most = None if self.max is None else f"at most {self.max}"
        return " and ".join(filter(None, (least, most)))

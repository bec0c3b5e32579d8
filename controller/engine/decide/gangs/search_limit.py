"""How many places the searches for victims of a cycle look for, before the next one goes on."""

from dataclasses import dataclass


@dataclass(slots=True)
class SearchLimit:
    """What is left of it in a cycle, by the number of places looked for so far."""

    last: int | None
    """Searches end before it; None for no end."""
    improvements: int
    """How many places may be looked for to disturb less, beside the searches."""

    @classmethod
    def of(cls, steps: int, places: int | None) -> "SearchLimit":
        """So many `places` after `steps`, and as many to disturb less."""
        return cls(None, 1 << 62) if places is None else cls(steps + places, places)

    def is_reached(self, steps: int) -> bool:
        """Whether searches end."""
        return self.last is not None and steps >= self.last

    def improve(self, places: int) -> None:
        """Records that places were looked for to disturb less."""
        self.improvements -= places
        if self.last is not None:
            self.last += places

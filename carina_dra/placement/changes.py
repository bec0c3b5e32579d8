"""Which nodes and pools have changed since a moment."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Changes(Generic[T]):
    """Names in the order of their last change; each is kept once."""

    def __init__(self) -> None:
        self._moments: dict[T, int] = {}
        self._now = 0

    @property
    def now(self) -> int:
        """The moment of the last change."""
        return self._now

    def add(self, name: T) -> None:
        """Records a change."""
        self._now += 1
        self._moments.pop(name, None)
        self._moments[name] = self._now

    def since(self, moment: int) -> Iterator[T]:
        """What has changed after a moment, the last change first."""
        for name, changed in reversed(self._moments.items()):
            if changed <= moment:
                return
            yield name

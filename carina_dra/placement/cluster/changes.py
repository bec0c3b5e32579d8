"""Which nodes and pools have changed since a moment."""

from collections.abc import Container, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Changes(Generic[T]):
    """Names in the order of their last change; each is kept once."""

    def __init__(self) -> None:
        self._moments: dict[T, int] = {}
        self._now = 0
        self._forgotten = 0
        """The moment at which names were forgotten for the last time."""

    def __len__(self) -> int:
        return len(self._moments)

    @property
    def now(self) -> int:
        """The moment of the last change."""
        return self._now

    def add(self, name: T) -> None:
        """Records a change."""
        self._now += 1
        self._moments.pop(name, None)
        self._moments[name] = self._now

    def forget_all_but(self, names: Container[T]) -> None:
        """Forgets other names; who has not seen their changes cannot know of them any more."""
        self._moments = {name: moment for name, moment in self._moments.items() if name in names}
        self._forgotten = self._now

    def is_known_since(self, moment: int) -> bool:
        """Whether `since` has all changes after a moment."""
        return moment >= self._forgotten

    def since(self, moment: int) -> Iterator[T]:
        """What has changed after a moment, the last change first."""
        for name, changed in reversed(self._moments.items()):
            if changed <= moment:
                return
            yield name

"""The nodes that have room for a pod now, devices aside."""

from collections.abc import Container, Iterator
from collections.abc import Set as AbstractSet

from controller.engine.model.pod import PodNeeds
from controller.engine.state.room import Room


class Fitting(AbstractSet[str]):
    """The nodes of a set that have room for a pod now; looked at one by one, when asked."""

    def __init__(
        self,
        names: frozenset[str],
        rooms: dict[str, Room],
        needs: PodNeeds,
        avoided: Container[str],
        left: Container[str],
    ) -> None:
        self.names = names
        """All nodes of the set, with room or without."""
        self._rooms = rooms
        self._needs = needs
        self._avoided = avoided
        self._left = left

    def __contains__(self, name: object) -> bool:
        return (
            name in self.names
            and name not in self._left
            and name not in self._avoided
            and self._rooms[str(name)].lacks(self._needs) is None
        )

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name in self)

    def __len__(self) -> int:
        return len(self.names)

    def may_have_any(self) -> bool:
        """Whether there is a node to be looked at."""
        return bool(self.names)

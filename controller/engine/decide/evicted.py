"""Who has been evicted for one group, in which order, and by group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller.engine.model.group import Group
from controller.engine.model.pod import Pod


@dataclass(frozen=True, slots=True)
class EvictionUnit:
    """Pods of a group that are evicted together."""

    group: Group
    pods: tuple[Pod, ...]
    must_move: bool
    """Whether their queue need not give: they must get another place in the same plan."""


class EvictedUnits:
    """The units that are evicted, the first ones first."""

    def __init__(self) -> None:
        self._units: list[EvictionUnit] = []
        self._of: dict[str, list[EvictionUnit]] = {}
        """By group, in the same order."""
        self.pods = 0
        """How many pods they have together."""

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[EvictionUnit]:
        return iter(self._units)

    def __getitem__(self, at: int) -> EvictionUnit:
        return self._units[at]

    def since(self, first: int) -> Sequence[EvictionUnit]:
        """The units from an index on."""
        return self._units[first:]

    def groups(self) -> list[Group]:
        """The groups, those of the first units first."""
        return list({unit.group.key: unit.group for unit in self._units}.values())

    def pods_of(self, group: Group) -> Iterator[Pod]:
        """The evicted pods of a group."""
        return (pod for unit in self._of.get(group.key, ()) for pod in unit.pods)

    def add(self, unit: EvictionUnit) -> None:
        """A unit is evicted."""
        self._units.append(unit)
        self._of.setdefault(unit.group.key, []).append(unit)
        self.pods += len(unit.pods)

    def cut(self, count: int) -> None:
        """All but the first units are not evicted after all."""
        while len(self._units) > count:
            self.remove(len(self._units) - 1)

    def remove(self, at: int) -> None:
        """A unit, by its index, is not evicted after all."""
        unit = self._units.pop(at)
        of_group = self._of[unit.group.key]
        # The latest are taken back, so it is near the end; an equal one may have come before.
        index = next(i for i in reversed(range(len(of_group))) if of_group[i] is unit)
        del of_group[index]
        if not of_group:
            del self._of[unit.group.key]
        self.pods -= len(unit.pods)

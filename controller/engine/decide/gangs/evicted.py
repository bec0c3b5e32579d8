"""Who has been evicted for one group, in which order, and by group.

A pod that has moved may have to leave its new place, too. It is one pod all the same.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
        self._times = Counter[str]()
        """By pod: how often it has left a place."""

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[EvictionUnit]:
        return iter(self._units)

    def __getitem__(self, at: int) -> EvictionUnit:
        return self._units[at]

    @property
    def pods(self) -> int:
        """How many pods are evicted."""
        return len(self._times)

    def from_their_places(self) -> Iterator[EvictionUnit]:
        """The units without the pods that have only left a new place."""
        seen: set[str] = set()
        for unit in self._units:
            pods = tuple(pod for pod in unit.pods if pod.key not in seen)
            seen.update(pod.key for pod in pods)
            if pods:
                yield replace(unit, pods=pods)

    def since(self, first: int) -> Sequence[EvictionUnit]:
        """The units from an index on."""
        return self._units[first:]

    def groups(self) -> list[Group]:
        """The groups, those of the first units first."""
        return list({unit.group.key: unit.group for unit in self._units}.values())

    def pods_of(self, group: Group) -> Iterator[Pod]:
        """The evicted pods of a group."""
        pods = {pod.key: pod for unit in self._of.get(group.key, ()) for pod in unit.pods}
        return iter(pods.values())

    def add(self, unit: EvictionUnit) -> None:
        """A unit is evicted."""
        self._units.append(unit)
        self._of.setdefault(unit.group.key, []).append(unit)
        self._times.update(pod.key for pod in unit.pods)

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
        for pod in unit.pods:
            self._times[pod.key] -= 1
            if not self._times[pod.key]:
                del self._times[pod.key]

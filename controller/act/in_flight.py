"""What is not stored yet: devices that kube-scheduler is choosing, and allocations being written.

kube-scheduler sees only what is stored. So no pod whose devices it chooses is sent to it where it
could take what is being written, or what other pods are to choose that ask for something else; and
nothing is written where it is choosing. Equal requests may be served in any order.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from carina_dra.allocator.usage import PoolId
from carina_dra.resource import Allocation
from controller.observe.mirror import Assumed, Mirror
from controller.observe.planned_claims import classes_of

_Starts: TypeAlias = Mapping[str, Assumed]


def pools_of(allocations: Iterable[Allocation]) -> Iterator[PoolId]:
    """The pools of allocated devices: those of a pool may share what a device has."""
    for allocation in allocations:
        for result in allocation.devices.results:
            yield PoolId(result.driver, result.pool)


class InFlight:
    """By pool: the groups for which something is not stored yet."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._chosen: dict[PoolId, dict[tuple[str, frozenset[str]], None]] = {}
        """With the device classes that kube-scheduler chooses from."""
        self._written: dict[PoolId, dict[str, None]] = {}
        for key, assumed in mirror.assumed.items():
            self._add_written(self._group_of(key), assumed.allocations)
        for choice in mirror.choices():
            self._add_chosen(self._group_of(choice.pod), choice.classes, choice.allocations)

    def is_in_the_way(self, group: str, pods: _Starts) -> bool:
        """Whether the start of these pods of a group has to wait until more is stored."""
        for key, assumed in pods.items():
            classes = self._classes(key)
            for pool in pools_of(assumed.planned.values()):
                if any(other != group for other in self._written.get(pool, ())):
                    return True
                chosen = self._chosen.get(pool, {})
                if any(other != group and chosen_from != classes for other, chosen_from in chosen):
                    return True
            new = _without_tentative(self._mirror, assumed.allocations)
            for pool in pools_of(new.values()):
                if any(other != group for other, _ in self._chosen.get(pool, ())):
                    return True
        return False

    def add(self, group: str, pods: _Starts) -> None:
        """Adds what the start of these pods sends to kube-scheduler, and writes."""
        for key, assumed in pods.items():
            self._add_written(group, _without_tentative(self._mirror, assumed.allocations))
            self._add_chosen(group, self._classes(key), assumed.planned.values())

    def _add_written(self, group: str, allocations: Mapping[str, Allocation]) -> None:
        for pool in pools_of(allocations.values()):
            self._written.setdefault(pool, {})[group] = None

    def _add_chosen(
        self, group: str, classes: frozenset[str], allocations: Iterable[Allocation]
    ) -> None:
        for pool in pools_of(allocations):
            self._chosen.setdefault(pool, {})[group, classes] = None

    def _classes(self, pod: str) -> frozenset[str]:
        state = self._mirror.state
        return classes_of(
            state.occupancy.claims[key] for _, key in state.occupancy.pods[pod].planned
        )

    def _group_of(self, pod: str) -> str:
        return self._mirror.roster.group_of(pod) or pod


def _without_tentative(
    mirror: Mirror, allocations: Mapping[str, Allocation]
) -> Mapping[str, Allocation]:
    """The allocations that are not stored already."""
    stored = mirror.tentative()
    return {key: one for key, one in allocations.items() if stored.get(key) != one}

"""What groups give for another one: as few pods as possible at a time."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.gangs.placement_unit import (
    active_pods,
    has_active,
    has_nominated,
    stands,
    surplus,
)
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.lingering import hastened
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.state.occupancy import Occupancy


class Giving:
    """What each victim of one search gives next, as things are in the trial."""

    def __init__(self, occupancy: Occupancy, eligibility: Eligibility, victims: Victims) -> None:
        self._occupancy = occupancy
        self._eligibility = eligibility
        self._victims = victims
        self.spared: frozenset[str] = frozenset()
        """Groups that give nothing, since the search may do without them."""
        self.wake: float | None = None
        """When a group that is safe now is safe no longer, as a Unix time."""

    def least(self, group: Group, node: str | None = None) -> tuple[Pod, ...]:
        """The least that can be evicted of a group, on a node or anywhere; () if it is safe."""
        hastened_pods = hastened(self._occupancy, self._eligibility, group, node)
        return hastened_pods or next(self._surplus(group, node), ()) or self._whole(group)

    def rests(self, group: Group) -> bool:
        """Whether a group does not move, since a pod of it was evicted a short time ago."""
        rest = self._eligibility.rest(group)
        if rest is not None:
            self._wake_at(rest.until)
        return rest is not None

    def is_safe(self, group: Group) -> bool:
        """Whether a group does not fall, since it has not run for long enough."""
        safe = self._eligibility.safety(group)
        if safe is not None:
            self._wake_at(safe.until)
        return safe is not None

    def units_of_queue(self, queue: str) -> Iterator[EvictionUnit]:
        """Who goes of the groups below a queue; each is to be evicted before the next is asked for.

        A group that gives nothing now is asked again once all others have given what they can.
        """
        left = self._victims.of_queue(queue, self._eligibility)
        has_changed = True
        while has_changed:
            has_changed = False
            ranked = [(self._victims.rank(group), group.key) for group in left]
            heapify(ranked)
            left = []
            while ranked:
                rank, key = heappop(ranked)
                group = self._occupancy.groups[key]
                now = self._victims.rank(group)
                if now != rank:  # it has shrunk to its minimum
                    heappush(ranked, (now, key))
                    continue
                gives = self._eligibility.may_take(group) and key not in self.spared
                pods = self.least(group) if gives else ()
                if not pods:
                    left.append(group)
                    continue
                yield EvictionUnit(group, pods, must_move=False)
                has_changed = True
                if has_active(self._occupancy, key):
                    heappush(ranked, (self._victims.rank(group), key))

    def _surplus(self, group: Group, node: str | None) -> Iterator[tuple[Pod, ...]]:
        """What a group can lose, each by itself, and have its minimum before any of it waits."""
        waits = has_nominated(self._occupancy, group)
        for pods in surplus(self._occupancy, group, node):
            if not waits or stands(self._occupancy, group, pods):
                yield pods

    def _whole(self, group: Group) -> tuple[Pod, ...]:
        """All pods of a group, unless it is safe."""
        return () if self.is_safe(group) else tuple(active_pods(self._occupancy, group.key))

    def _wake_at(self, time: float) -> None:
        self.wake = time if self.wake is None else min(self.wake, time)

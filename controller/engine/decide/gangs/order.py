"""Whose turn it is: queues by dominant resource fairness, groups by priority and age."""

from collections.abc import Iterable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import PlacementUnit, fullness
from controller.engine.decide.queues.givers import dominant_share
from controller.engine.decide.queues.shares import Shares
from controller.engine.model.group import Group
from controller.engine.model.resource import Amounts
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.queue_tree import ROOT

GroupRank = tuple[int, int, float, str]


class QueueRank(NamedTuple):
    """The order of sibling queues, the least first."""

    is_over: bool
    """It has more than its fair share of something that the group asks for."""
    is_beyond_quota: bool
    """With the group it would have more than its quota of something."""
    after_priority: int
    """The priority, negated."""
    is_undue: bool
    """It has something of which it may count on nothing."""
    share_then: float
    """The dominant share that it would have with the group."""
    share: float
    """The dominant share that it has."""
    weight: float
    """The largest part of a resource of the cluster that it may count on."""
    created: float
    name: str


def rank_of_group(occupancy: Occupancy, group: Group) -> GroupRank:
    """The order of the groups of a queue: priority, then who has less than it needs, then age."""
    return -group.priority, fullness(occupancy, group), group.created, group.key


def rank_of_queue(occupancy: Occupancy, shares: Shares, name: str, asked: Amounts) -> QueueRank:
    """The order of sibling queues, by what the next group of each asks for.

    Queues that have more than their fair share of something that the group asks for come last, and
    those come first whose quota covers it. Then count priority, and the dominant share that the
    queue would have: the largest part that it has of what it may count on, over all resources.
    """
    queue, allocated = occupancy.tree.queues[name], occupancy.accounts.allocated[name]
    fair, quotas = shares.fair(name), occupancy.tree.quotas(name)
    allocatable = shares.allocatable(name)
    wanted = [at for at, amount in enumerate(asked) if amount > 0]
    is_over = any(allocated[at] > fair[at] for at in wanted)
    is_covered = all(
        (quota := quotas[at]) is None or allocated[at] + asked[at] <= quota for at in wanted
    )
    is_undue = any(allocated[at] and not allocatable[at] for at in range(len(allocated)))
    then = [held + more for held, more in zip(allocated, asked, strict=True)]
    return QueueRank(
        is_over=is_over,
        is_beyond_quota=not is_covered,
        after_priority=-queue.priority,
        is_undue=is_undue,
        share_then=dominant_share(then, allocatable),
        share=dominant_share(allocated, allocatable),
        weight=dominant_share(allocatable, shares.totals),
        created=queue.created,
        name=name,
    )


class QueueOrder:
    """The groups that want something, the next one first; the tree of queues as nested heaps."""

    def __init__(
        self, occupancy: Occupancy, shares: Shares, groups: Iterable[Group], isolation: Isolation
    ) -> None:
        self._occupancy = occupancy
        self._shares = shares
        self._isolation = isolation
        self._chunks = isolation.next_chunks
        self._groups: dict[str, list[tuple[GroupRank, Group]]] = {}
        for group in groups:
            entry = self._entry(group)
            if entry is not None:
                self._groups.setdefault(group.queue, []).append(entry)
        for heap in self._groups.values():
            heapify(heap)
        self._queues: dict[str, list[tuple[QueueRank, str]]] = {}
        self._current: dict[str, tuple[QueueRank, str]] = {}
        """The valid entry of each queue."""
        self._ranked_by: dict[str, tuple[int, Amounts]] = {}
        """What each rank follows from: the moment of the accounts, and what is asked for."""
        for queue in list(self._groups):
            self._update(queue)

    def pop(self) -> Group | None:
        """Takes the group whose turn it is; None if there is none."""
        queue = ROOT
        while queue not in self._groups:
            heap = self._queues.get(queue, [])
            while heap and self._current.get(heap[0][1]) is not heap[0]:
                heappop(heap)
            if not heap:
                return None
            queue = heap[0][1]
        return self._take(queue)

    def push(self, group: Group) -> None:
        """Takes a group that wants more."""
        entry = self._entry(group)
        if entry is not None:
            heappush(self._groups.setdefault(group.queue, []), entry)

    def left(self) -> Iterator[Group]:
        """The groups whose turn has not come, in no order that matters."""
        return (group for heap in self._groups.values() for _, group in heap)

    def update(self, queues: Iterable[str]) -> None:
        """Records that these leaves have more or less, or other groups first."""
        for queue in queues:
            self._update(queue)

    def _entry(self, group: Group) -> tuple[GroupRank, Group] | None:
        """A group with its rank; None if it is set aside, since that has failed."""
        rank = self._isolation.run(group, partial(rank_of_group, self._occupancy, group))
        return None if rank is None else (rank, group)

    def _asked_by_first(self, queue: str) -> Amounts | None:
        """What the group asks for whose turn it is below a queue; None if there is none."""
        while (first := self._first(queue)) is not None:
            asked = self._isolation.run(first, partial(self._chunks.asked, first))
            if asked is not None:
                return asked
            if queue != first.queue:
                return self._occupancy.accounts.zero  # what was known of it below has changed since
            self._take(queue)
        return None

    def _take(self, leaf: str) -> Group:
        """Takes the first group of a leaf."""
        _, group = heappop(self._groups[leaf])
        if not self._groups[leaf]:
            del self._groups[leaf]
        return group

    def _update(self, leaf: str) -> None:
        for name in self._occupancy.tree.paths[leaf]:
            asked = self._asked_by_first(name)
            parent = self._occupancy.tree.queues[name].parent or ROOT
            if asked is None:
                self._current.pop(name, None)
                self._ranked_by.pop(name, None)
                continue
            ranked_by = self._occupancy.accounts.moment, asked
            if self._ranked_by.get(name) == ranked_by:
                continue
            self._ranked_by[name] = ranked_by
            entry = rank_of_queue(self._occupancy, self._shares, name, asked), name
            self._current[name] = entry
            heappush(self._queues.setdefault(parent, []), entry)

    def _first(self, queue: str) -> Group | None:
        """The group whose turn it is below a queue."""
        while queue not in self._groups:
            heap = self._queues.get(queue, [])
            while heap and self._current.get(heap[0][1]) is not heap[0]:
                heappop(heap)
            if not heap:
                return None
            queue = heap[0][1]
        return self._groups[queue][0][1]


def asked_by(occupancy: Occupancy, chunk: PlacementUnit) -> Amounts:
    """What the pods of a chunk ask for together; a claim that they share counts once."""
    return occupancy.asked_by(chunk.all_pods())

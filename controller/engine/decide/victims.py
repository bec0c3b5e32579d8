"""Who may be evicted on each node, in the order in which it disturbs least.

First go pods that their group can spare, then groups fall as a whole: those of the queue that has
most beyond its share, then of the lowest priority, then the youngest.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from controller.engine.decide.eligibility import Eligibility
from controller.engine.decide.placement_unit import Fullness, fullness
from controller.engine.decide.trial import Trial
from controller.engine.model.group import Group
from controller.engine.model.pod import PodNeeds
from controller.engine.state.occupancy import Occupancy

_LOST: Final = -1
"""The rank of a queue that is not in the tree: its groups go first."""


class Rank(NamedTuple):
    """The order in which groups go, the least first."""

    falls: bool
    """Whether the group ends with it, rather than spare some pods."""
    queue: int
    """The turn of its queue to give."""
    priority: int
    age: float
    """When it was created, as Unix time in seconds, negated."""
    key: str


class Cost(NamedTuple):
    """What room costs on a node, the least first. The first four are of the last group to go."""

    falls: bool
    queue: int
    priority: int
    age: float
    groups: int
    """The number of groups that go."""
    first: str
    """The key of the first group to go."""
    node: str


_Ranked: TypeAlias = list[tuple[Rank, Group, list[str]]]
"""Groups that may be evicted in their order, and the pods of each that may leave the node."""


@dataclass(slots=True)
class _OnNode:
    """What is remembered of a node."""

    version: int
    group_of: dict[str, str | None] = field(default_factory=dict)
    """By pod on the node."""
    ranked: _Ranked = field(default_factory=list)


class Victims:
    """The groups that may be evicted by one action, remembered while nodes do not change."""

    def __init__(self, trial: Trial, queue_ranks: Mapping[str, int]) -> None:
        """`queue_ranks` says whose turn it is to give, 0 first."""
        self._trial = trial
        self._state = trial.state
        self._queue_ranks = queue_ranks
        self._by_node: dict[str, _OnNode] = {}
        self._costs: dict[tuple[PodNeeds, int], dict[str, tuple[int, Cost | None]]] = {}
        """What room costs on each node, by what is needed; with the version of the node."""
        self._seen: set[str] = set()

    @property
    def count(self) -> int:
        """How many groups have been found that could be evicted."""
        return len(self._seen)

    def see(self, group: Group) -> None:
        """Counts a group that could be evicted, though it makes no room where it is."""
        self._seen.add(group.key)

    def on_node(self, node: str, eligibility: Eligibility) -> list[Group]:
        """The groups with pods on a node that may be evicted, the first to go first."""
        ranked = self._ranked(node, eligibility)
        return [group for _, group, _ in ranked if group.key != eligibility.group.key]

    def of_queue(self, queue: str, eligibility: Eligibility) -> list[Group]:
        """The groups below a queue that may be evicted, in no order that matters."""
        paths = self._state.occupancy.tree.paths
        found = {
            group.key: group
            for node in sorted(self._state.occupancy.on_node)
            for _, group, _ in self._ranked(node, eligibility)
            if queue in paths.get(group.queue, ()) and group.key != eligibility.group.key
        }
        return list(found.values())

    def costs(
        self, nodes: Iterable[str], eligibility: Eligibility, needs: PodNeeds, devices: int
    ) -> Iterator[Cost]:
        """About what it costs to make room for a pod on each node where anybody may be evicted.

        `devices` is how many devices the pod needs at least.
        """
        versions = self._state.occupancy.versions
        costs = self._costs.setdefault((needs, devices), {})
        for node in nodes:
            version, known = versions.get(node, 0), costs.get(node)
            if known is None or known[0] != version:
                known = costs[node] = version, self._cost(node, eligibility, needs, devices)
            if known[1] is not None:
                yield known[1]

    def _cost(
        self, node: str, eligibility: Eligibility, needs: PodNeeds, devices: int
    ) -> Cost | None:
        ranked = self._ranked(node, eligibility)
        if not ranked:
            return None
        missing = devices - self._state.occupancy.devices.most_free(node) if devices > 1 else 0
        lacks = self._state.occupancy.rooms[node].lacks(needs) is not None
        count = 0
        last = ranked[0][0]
        pods, devices_of = self._state.occupancy.pods, self._state.occupancy.device_count
        for rank, _, leaving in ranked:
            last, count = rank, count + 1
            if missing > 0:
                missing -= sum(devices_of(pods[key]) for key in leaving)
            if missing <= 0 and not lacks:
                break
        first = ranked[0][0].key
        return Cost(last.falls, last.queue, last.priority, last.age, count, first, node)

    def _ranked(self, node: str, eligibility: Eligibility) -> _Ranked:
        state = self._state
        version, pods = state.occupancy.versions.get(node, 0), state.occupancy.on_node.get(node, {})
        known = self._by_node.get(node)
        if known is not None and known.version == version:
            return known.ranked
        changed = pods.keys() if known is None else known.group_of.keys() ^ pods.keys()
        if known is None or version - known.version != len(changed):  # more than pods has changed
            known = self._by_node[node] = _OnNode(version)
            changed = pods.keys()
        self._bring_up_to_date(known, changed, pods, eligibility)
        known.version = version
        return known.ranked

    def _bring_up_to_date(
        self,
        known: _OnNode,
        changed: Collection[str],
        pods: Mapping[str, None],
        eligibility: Eligibility,
    ) -> None:
        """Ranks groups of a node again: those of pods that have come to it, or have left it.

        Also those of several pods, whose rank follows from the pods on other nodes, too.
        """
        state = self._state
        concerned: set[str | None] = {
            group.key for _, group, _ in known.ranked if _has_several_pods(state.occupancy, group)
        }
        for pod in changed:
            concerned.add(known.group_of.pop(pod, None))
            if pod in pods:
                known.group_of[pod] = state.occupancy.pods[pod].group
                concerned.add(state.occupancy.pods[pod].group)
        leaving: dict[str, list[str]] = {}
        for pod, key in known.group_of.items():
            if key is None or key not in concerned or key not in state.occupancy.groups:
                continue
            if eligibility.may_go(state.occupancy.pods[pod]) or pod in self._trial.placed:
                leaving.setdefault(key, []).append(pod)
        ranked = [entry for entry in known.ranked if entry[1].key not in concerned]
        for key, pods_of in leaving.items():
            group = state.occupancy.groups[key]
            if key not in self._trial.settled and eligibility.may_lose(group):
                ranked.append((self.rank(group), group, pods_of))
                self._seen.add(key)
        known.ranked = sorted(ranked, key=itemgetter(0))

    def rank(self, group: Group) -> Rank:
        """The order in which groups go."""
        falls = fullness(self._state.occupancy, group) is not Fullness.ABOVE_MINIMUM
        queue = self._queue_ranks.get(group.queue, _LOST)
        return Rank(falls, queue, group.priority, -group.created, group.key)


def _has_several_pods(occupancy: Occupancy, group: Group) -> bool:
    members = occupancy.members.get(group.key)
    return members is not None and sum(map(len, members.by_set.values())) > 1

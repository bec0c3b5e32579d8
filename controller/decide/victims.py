"""Who may be evicted on each node, in the order in which it disturbs least.

First go pods that their group can spare, then groups fall as a whole: those of the queue that has
most beyond its share, then of the lowest priority, then the youngest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from controller.decide.chunk import Fullness, fullness
from controller.decide.eligibility import Eligibility
from controller.decide.trial import Trial
from controller.model.group import Group
from controller.model.pod import Placed, PodNeeds

Rank: TypeAlias = tuple[bool, int, int, float, str]
"""Whether the group falls, its queue, its priority, its age."""
Cost: TypeAlias = tuple[bool, int, int, float, int, str, str]
"""Of the last who must go: whether the group falls, its queue, its priority, its age; how many go;
then the name of the first, and the node."""


class Victims:
    """The groups that may be evicted by one action, remembered while nodes do not change."""

    def __init__(self, trial: Trial, queue_ranks: Mapping[str, int]) -> None:
        """`queue_ranks` says whose turn it is to give, 0 first."""
        self._trial = trial
        self._state = trial.state
        self._queue_ranks = queue_ranks
        self._by_node: dict[str, tuple[int, Sequence[tuple[Rank, Group, int]]]] = {}
        self._costs: dict[tuple[PodNeeds, int], dict[str, tuple[int, Cost | None]]] = {}
        """What room costs on each node, by what is needed; with the version of the node."""
        self._seen: set[str] = set()

    @property
    def count(self) -> int:
        """How many groups have been found that could be evicted."""
        return len(self._seen)

    def on_node(self, node: str, eligibility: Eligibility) -> list[Group]:
        """The groups with pods on a node that may be evicted, the first to go first."""
        ranked = self._ranked(node, eligibility)
        return [group for _, group, _ in ranked if group.key != eligibility.group.key]

    def of_queue(self, queue: str, eligibility: Eligibility) -> list[Group]:
        """The groups below a queue that may be evicted, in no order that matters."""
        paths = self._state.tree.paths
        found = {
            group.key: group
            for node in sorted(self._state.on_node)
            for _, group, _ in self._ranked(node, eligibility)
            if queue in paths[group.queue] and group.key != eligibility.group.key
        }
        return list(found.values())

    def costs(
        self, nodes: Iterable[str], eligibility: Eligibility, needs: PodNeeds, devices: int
    ) -> Iterator[Cost]:
        """About what it costs to make room for a pod on each node where anybody may be evicted.

        `devices` is how many devices the pod needs at least.
        """
        versions = self._state.versions
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
        missing = devices - self._state.devices.most_free(node) if devices > 1 else 0
        lacks = self._state.rooms[node].lacks(needs) is not None
        count = 0
        last = ranked[0][0]
        for rank, _, freed in ranked:
            last, count = rank, count + 1
            missing -= freed
            if missing <= 0 and not lacks:
                break
        return *last[:4], count, ranked[0][0][4], node

    def _ranked(self, node: str, eligibility: Eligibility) -> Sequence[tuple[Rank, Group, int]]:
        state = self._state
        version = state.versions.get(node, 0)
        known = self._by_node.get(node)
        if known is not None and known[0] == version:
            return known[1]
        found: dict[str, int] = {}
        for key in state.on_node.get(node, ()):
            pod = state.pods[key]
            is_here = isinstance(pod.state, Placed) or key in self._trial.placed
            if pod.group in state.groups and is_here:
                found[pod.group] = found.get(pod.group, 0) + state.device_count(pod)
        ranked = sorted(
            (
                (self.rank(state.groups[key]), state.groups[key], freed)
                for key, freed in found.items()
                if key not in self._trial.settled and eligibility.may_lose(state.groups[key])
            ),
            key=lambda one: one[0],
        )
        self._seen.update(group.key for _, group, _ in ranked)
        self._by_node[node] = version, ranked
        return ranked

    def rank(self, group: Group) -> Rank:
        """The order in which groups go."""
        falls = fullness(self._state, group) is not Fullness.ABOVE_MINIMUM
        queue = self._queue_ranks.get(group.queue, 0)
        return falls, queue, group.priority, -group.created, group.key

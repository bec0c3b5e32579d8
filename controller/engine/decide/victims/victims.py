"""Who may be evicted on each node for those who ask, and what room costs there."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.groups_on_nodes import GroupsOnNodes, Rank, Ranked
from controller.engine.model.group import Group
from controller.engine.model.pod import PodNeeds


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


class Victims:
    """The groups that may be evicted by one action, remembered while nodes do not change."""

    def __init__(self, trial: Trial, groups: GroupsOnNodes) -> None:
        """`groups` are those of the action; others who ask may use them, too."""
        self._trial = trial
        self._state = trial.state
        self._groups = groups
        self._by_node: dict[str, tuple[int, Ranked]] = {}
        """With the version of the node."""
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

    def _ranked(self, node: str, eligibility: Eligibility) -> Ranked:
        version, known = self._state.occupancy.versions.get(node, 0), self._by_node.get(node)
        if known is None or known[0] != version:
            settled = self._trial.settled
            ranked = [
                entry
                for entry in self._groups.on_node(node, eligibility)
                if entry[1].key not in settled and eligibility.may_lose(entry[1])
            ]
            self._seen.update(group.key for _, group, _ in ranked)
            known = self._by_node[node] = version, ranked
        return known[1]

    def rank(self, group: Group) -> Rank:
        """The order in which groups go."""
        return self._groups.rank(group)

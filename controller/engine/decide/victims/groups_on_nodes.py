"""The groups on each node in the order in which they go, for all who ask for room there.

First go pods that their group can spare, then groups fall as a whole: those of the queue that has
most beyond its share, then of the lowest priority, then the youngest.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from controller.engine.decide.gangs.placement_unit import Fullness, fullness
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.model.group import Group
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


Ranked: TypeAlias = list[tuple[Rank, Group, list[str]]]
"""Groups in their order, and the pods of each that may leave a node."""


@dataclass(slots=True)
class _OnNode:
    """What is remembered of a node."""

    version: int
    group_of: dict[str, str | None] = field(default_factory=dict)
    """By pod on the node."""
    ranked: Ranked = field(default_factory=list)


class GroupsOnNodes:
    """The groups on nodes, remembered while the nodes do not change; for one action."""

    def __init__(
        self, trial: Trial, queue_ranks: Mapping[str, int], *, for_all: bool = True
    ) -> None:
        """`queue_ranks` says whose turn it is to give, 0 first.

        If they are not `for_all` who ask by the action, groups are left out that may not be evicted
        for those who ask: few of all may be, where priorities or queues decide.
        """
        self._for_all = for_all
        self._trial = trial
        self._state = trial.state
        self._queue_ranks = queue_ranks
        self._by_node: dict[str, _OnNode] = {}

    def on_node(self, node: str, eligibility: Eligibility) -> Ranked:
        """The groups of which pods can leave a node by the action, the first to go first."""
        state = self._state
        version, pods = state.occupancy.versions.get(node, 0), state.occupancy.on_node.get(node, {})
        known = self._by_node.get(node)
        if known is None:
            changed: Collection[str] = pods.keys()
        elif known.version == version:
            changed = ()
        else:
            changed = known.group_of.keys() ^ pods.keys()
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
        if not concerned and not changed:
            return
        for pod in changed:
            concerned.add(known.group_of.pop(pod, None))
            if pod in pods:
                known.group_of[pod] = state.occupancy.pods[pod].group
                concerned.add(state.occupancy.pods[pod].group)
        leaving: dict[str, list[str]] = {}
        for pod, key in known.group_of.items():
            if key is None or key not in concerned or key not in state.occupancy.groups:
                continue
            if not (self._for_all or eligibility.may_lose(state.occupancy.groups[key])):
                continue
            if eligibility.may_go(state.occupancy.pods[pod]) or pod in self._trial.placed:
                leaving.setdefault(key, []).append(pod)
        ranked = [entry for entry in known.ranked if entry[1].key not in concerned]
        for key, pods_of in leaving.items():
            group = state.occupancy.groups[key]
            ranked.append((self.rank(group), group, pods_of))
        known.ranked = sorted(ranked, key=itemgetter(0))

    def rank(self, group: Group) -> Rank:
        """The order in which groups go."""
        falls = fullness(self._state.occupancy, group) is not Fullness.ABOVE_MINIMUM
        queue = self._queue_ranks.get(group.queue, _LOST)
        return Rank(falls, queue, group.priority, -group.created, group.key)


def _has_several_pods(occupancy: Occupancy, group: Group) -> bool:
    members = occupancy.members.get(group.key)
    return members is not None and sum(map(len, members.by_set.values())) > 1

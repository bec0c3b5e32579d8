"""The pods of a few nodes that may leave their places for a group, and what their groups allow."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from controller.engine.decide.gangs.placement_unit import active_pods, has_nominated
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.disturbance import Age, ages_of
from controller.engine.decide.victims.giving import Giving
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group, PodSet
from controller.engine.model.plan import Action
from controller.engine.model.pod import Pod

MOST: Final = 64
"""If more pods may leave their places, the search is not begun."""
_PODS_A_STEP: Final = 10
"""So many pods of a group are looked at in a step."""
_MOST_ELSEWHERE: Final = 16
"""A group with more pods on other nodes does not fall."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that may leave its place."""

    pod: Pod
    node: str
    group: Group
    gives: bool
    """Whether it may go for good."""
    moves: bool
    """Whether it may get another place."""
    age: Age


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a group can do without."""

    members: frozenset[int]
    """All of its pods that have a place."""
    spare: int
    """So many of them it does not need."""
    is_safe: bool
    """Whether no other may leave its place."""
    falls: bool
    """Whether it can go as a whole."""


@dataclass(slots=True)
class Occupants:
    """Who may leave its place on some nodes; pods have numbers."""

    pods: list[Occupant] = field(default_factory=list)
    allowances: dict[str, Allowance] = field(default_factory=dict)
    """By group."""

    def on(self, node: str) -> list[int]:
        """Those on a node."""
        return [index for index, pod in enumerate(self.pods) if pod.node == node]


def occupants(
    trial: Trial,
    eligibility: Eligibility,
    victims: Victims,
    giving: Giving,
    nodes: Collection[str],
    *,
    bystanders: bool,
) -> Occupants:
    """Who may leave its place on some nodes; with `bystanders`, also who need not give.

    Groups are left out that have got places in this cycle, or wait for others to leave.
    """
    state = trial.state
    found = Occupants()
    groups = {
        group.key: group for node in sorted(nodes) for group in victims.on_node(node, eligibility)
    }
    for group in groups.values():
        pods = active_pods(state.occupancy, group.key)
        trial.places.spend(1 + len(pods) // _PODS_A_STEP)
        if has_nominated(state.occupancy, group) or any(pod.key in trial.placed for pod in pods):
            continue
        gives = eligibility.action is not Action.CONSOLIDATE and eligibility.may_take(group)
        moves = group.moves and state.occupancy.tree.takes_work(group.queue)
        if not gives:
            is_bystander = eligibility.action is not Action.CONSOLIDATE
            if (is_bystander and not bystanders) or not group.moves or giving.rests(group):
                continue
        first = len(found.pods)
        if first > MOST:
            break
        ages = ages_of(state.occupancy, group)
        here = [pod for pod in pods if state.occupancy.holds[pod.key].node in nodes]
        falls = len(pods) - len(here) <= _MOST_ELSEWHERE
        for pod in pods if falls else here:
            node = state.occupancy.holds[pod.key].node
            found.pods.append(Occupant(pod, node, group, gives, moves, ages[pod.key]))
        root = group.root
        spare = max(0, len(pods) - root.min_count) if isinstance(root, PodSet) else 0
        members = frozenset(range(first, len(found.pods)))
        found.allowances[group.key] = Allowance(members, spare, giving.is_safe(group), falls)
    return found

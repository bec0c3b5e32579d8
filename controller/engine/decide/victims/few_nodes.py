"""The plan that disturbs least on a few nodes, in the terms of the engine."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.gangs.placement_unit import PlacementUnit
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.placement_policy import policy_of
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.disturbance import Disturbance, FairGiving
from controller.engine.decide.victims.giving import Giving
from controller.engine.decide.victims.node_rooms import Comer, NodeRooms
from controller.engine.decide.victims.occupants import MOST, occupants
from controller.engine.decide.victims.repacking import LeastDisturbance, PlacesWanted, Repacking
from controller.engine.decide.victims.turns import Turns
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.plan import Action
from controller.engine.model.pod import Pod

FEW: Final = 8
"""So many nodes are looked at, at most."""
_STEPS: Final = 10_000
"""What the search may cost; then the best plan is taken that it has found."""
_MOST_PODS: Final = 32
"""For more pods that need a place at once, it is not begun."""
_FIRST: Final = 1 << 31
"""The number of the first pod of the group that asks, negated."""


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """Who goes for good, in this order, who moves, and where everybody gets a place."""

    gone: tuple[EvictionUnit, ...]
    moved: tuple[EvictionUnit, ...]
    nodes: dict[str, str]
    """By pod."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The pods that leave their places by a plan."""

    gone: frozenset[str]
    """For good."""
    moved: frozenset[str]

    @classmethod
    def of(cls, gone: Iterable[EvictionUnit], moved: Iterable[EvictionUnit]) -> "Leaving":
        """Those of units."""
        return cls(_pods(gone), _pods(moved))

    def is_less(self, other: "Leaving") -> bool:
        """Whether only some of those go for good who do by another plan, and nobody else leaves."""
        return self.gone < other.gone and self.moved <= other.gone | other.moved


class FewNodes:
    """The search for one chunk of a group, from the state in which nobody is evicted for it."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        victims: Victims,
        giving: Giving,
        policy: Policy,
        nodes: frozenset[str],
        *,
        bystanders: bool,
    ) -> None:
        """Only these nodes are looked at; `bystanders` need not give, and may move."""
        self._trial = trial
        self._state = trial.state
        self._eligibility = eligibility
        self._policy = policy
        self._nodes = nodes
        self._occupants = occupants(
            trial, eligibility, victims, giving, nodes, bystanders=bystanders
        )
        self._givers = {
            occupant.group.key: occupant.group
            for occupant in self._occupants.pods
            if occupant.gives
        }
        self._wanted: dict[int, Pod] = {}
        """The pods of the group, by number."""
        self._turns = Turns(trial, eligibility, victims, tuple(self._givers.values()))

    def fairness(self, gone: Sequence[EvictionUnit]) -> FairGiving | None:
        """How fair it is that these go for good; None if a queue need not give."""
        order = self._turns.order(gone)
        return None if order is None else order[0]

    def search(
        self,
        chunk: PlacementUnit,
        known: Disturbance | None,
        try_out: Callable[[Rearrangement], Disturbance | None],
        less_than: Leaving | None = None,
    ) -> Rearrangement | None:
        """A plan that disturbs less than the known one; None if none is found.

        With `less_than`, nobody leaves its place who stays in that plan, and fewer go for good. The
        group does not pay for it from what its attempt may cost, but it is charged.
        """
        places = self._trial.places
        if not self._occupants.pods or len(self._occupants.pods) > MOST:
            return None
        mark = self._state.occupancy.mark()
        budget, places.budget = places.budget, StepBudget(_STEPS)
        search: LeastDisturbance | None = None
        try:
            search = self._prepared(chunk, try_out, less_than)
            if search is not None:
                search.search(known)
        except OutOfStepsError:
            self._state.occupancy.rollback(mark)
        finally:
            budget.extend(places.budget.spent)
            places.budget = budget
        best = None if search is None else search.best
        return None if best is None else self._rearrangement(best)

    def _prepared(
        self,
        chunk: PlacementUnit,
        try_out: Callable[[Rearrangement], Disturbance | None],
        less_than: Leaving | None,
    ) -> LeastDisturbance | None:
        trial, state, places = self._trial, self._state, self._trial.places
        group = self._eligibility.group
        comers: dict[int, Comer] = {}
        nodes: dict[int, Sequence[str]] = {}
        for number, pod in enumerate(chunk.all_pods()):
            is_shared = any(state.occupancy.referrers(claim) > 1 for claim in pod.claims)
            if is_shared or number == _MOST_PODS:
                return None
            at = number - _FIRST
            self._wanted[at] = pod
            comers[at] = Comer(pod, self._policy, places.kind(pod), has_place=False)
            nodes[at] = sorted(places.candidates(pod, None) & self._nodes)
        first = tuple(sorted(comers, key=lambda at: (-places.least_devices(comers[at].pod), at)))
        rooms = NodeRooms(trial, self._eligibility.action, group.key)
        for at, occupant in enumerate(self._occupants.pods):
            policy = policy_of(state, occupant.group) if occupant.moves else self._policy
            comers[at] = Comer(occupant.pod, policy, occupant.pod.key, has_place=True)
            nodes[at] = sorted(places.suitable(occupant.pod.needs) & self._nodes)
        for node in sorted(self._nodes):
            rooms.weigh(node, [comers[at] for at in self._occupants.on(node)])
        most = state.settings.consolidation_limit
        return LeastDisturbance(
            self._occupants,
            PlacesWanted(comers, nodes, first),
            rooms,
            partial(self._permit, less_than),
            lambda found: try_out(self._rearrangement(found)),
            places.spend,
            free_cards=places.free_cards(self._nodes),
            most_pods=most if self._eligibility.action is Action.CONSOLIDATE else None,
        )

    def _permit(self, less_than: Leaving | None, found: Repacking) -> FairGiving | None:
        if less_than is not None:
            leaving = Leaving(self._keys(found.gone), self._keys(found.moved))
            if not leaving.is_less(less_than):
                return None
        return self.fairness(self._gone(found))

    def _gone(self, found: Repacking) -> list[EvictionUnit]:
        """Who goes for good: groups that fall, and single pods that others can spare."""
        pods, allowances = self._occupants.pods, self._occupants.allowances
        units = []
        left = found.gone
        for name in sorted(found.falling):
            members = allowances[name].members
            left -= members
            units.append(self._unit(members))
        return [*units, *(self._unit([at]) for at in sorted(left, key=lambda at: pods[at].age))]

    def _unit(self, members: Collection[int]) -> EvictionUnit:
        pods = [self._occupants.pods[at] for at in sorted(members)]
        return EvictionUnit(
            pods[0].group, tuple(occupant.pod for occupant in pods), must_move=not pods[0].gives
        )

    def _rearrangement(self, found: Repacking) -> Rearrangement:
        order = self._turns.order(self._gone(found))
        pods = self._occupants.pods
        moved = tuple(self._unit([at]) for at in sorted(found.moved, key=lambda at: pods[at].age))
        return Rearrangement(
            () if order is None else order[1],
            moved,
            {self._pod(at).key: node for at, node in found.homes},
        )

    def _keys(self, pods: Iterable[int]) -> frozenset[str]:
        return frozenset(self._pod(at).key for at in pods)

    def _pod(self, at: int) -> Pod:
        return self._wanted[at] if at < 0 else self._occupants.pods[at].pod


def _pods(units: Iterable[EvictionUnit]) -> frozenset[str]:
    return frozenset(pod.key for unit in units for pod in unit.pods)

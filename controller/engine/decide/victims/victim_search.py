"""Makes room for a group at the cost of others: who is evicted, and on which nodes.

A pod that has no place gets one on the node where that disturbs least. Its victims there are
evicted one after the other until it fits, and who need not have gone stays. At the end, victims
that fit elsewhere move.
"""

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.placement.cluster.card import together
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.gangs.evicted import EvictedUnits, EvictionUnit
from controller.engine.decide.gangs.gang import Gang, Taken
from controller.engine.decide.gangs.placement_unit import PlacementUnit, stands
from controller.engine.decide.gangs.search_limit import SearchLimit
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Least, Place
from controller.engine.decide.queues.capacity import refusal
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.evictor import Evictor
from controller.engine.decide.victims.few_nodes import FEW
from controller.engine.decide.victims.freeable import Freeable
from controller.engine.decide.victims.giving import Giving
from controller.engine.decide.victims.guarded import Guarded
from controller.engine.decide.victims.improvement import Improvement
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Pod, PodNeeds
from controller.engine.model.reason import (
    NoDomain,
    NoRoom,
    NoVictims,
    OverLimit,
    Reason,
    TooFewDevices,
    TooFewParts,
    Unfair,
)
from controller.engine.model.resource import Amounts
from controller.engine.state.spare import MANY

_CLOSE: Final = 8
"""After this many evictions on a node, it is looked at again only when they have doubled."""
_FEW: Final = 32
"""Up to this many evictions, it is tried to disturb less."""
_MOVES: Final = 10_000
"""What it may cost to look for another place for victims, in steps."""
_NODES_A_STEP: Final = 10
"""So many nodes are ordered in a step by what it costs to make room there."""
_SAMPLE: Final = 8
"""About how many nodes are looked at first: if there is certainly no room on any, all others are
looked at before they are put in order."""
_NO_NEEDS: Final = PodNeeds()


class CutShortError(Exception):
    """The search has tried as much as it may in one cycle."""


@dataclass(slots=True)
class _Search:
    """How far a search has come, to go on later where it was cut short."""

    skips: tuple[int, ...]
    looked: list[int] = field(default_factory=list)
    has_advanced: bool = False
    """Whether it has looked at a node that no earlier cycle has looked at."""

    def begin(self) -> int:
        """How many nodes are known to have no place for the next pod."""
        at = len(self.looked)
        known = self.skips[at] if at < len(self.skips) else 0
        self.looked.append(known)
        return known


class VictimSearch:
    """Looks for victims for one chunk of a group, by one action."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        victims: Victims,
        policy: Policy,
        *,
        limit: SearchLimit,
        skips: tuple[int, ...] = (),
        moves: bool = False,
        guarded: Guarded,
        past_budgets: frozenset[str] = frozenset(),
    ) -> None:
        """The search ends at the limit; `skips` are those of a cursor.

        Budgets of the queues `past_budgets` are not respected for what these have borrowed.
        With `moves`, groups whose queue need not give may go as well, if they fit elsewhere.
        """
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._eligibility = eligibility
        self._action = eligibility.action
        self._victims = victims
        self._policy = policy
        self._limit = limit
        self._search = _Search(skips)
        self.moves = moves
        """Whether groups may go whose queue need not give."""
        self.evictor = Evictor(trial, eligibility, guarded, past_budgets)
        self._freeable = Freeable(trial, eligibility, victims, self.evictor.evicted, moves=moves)
        self._giving = Giving(self._state.occupancy, eligibility, victims)
        self.has = self._state.occupancy.accounts.allocated[self.group.queue]
        """What the queue has with the chunk, and without those who were evicted."""

    @property
    def group(self) -> Group:
        """For whom it looks."""
        return self._eligibility.group

    @property
    def wake(self) -> float | None:
        """When a group that is safe now is safe no longer, as a Unix time."""
        return self._giving.wake

    @property
    def _evicted(self) -> EvictedUnits:
        return self.evictor.evicted

    @property
    def looked(self) -> tuple[int, ...]:
        """Where the search can go on."""
        return tuple(self._search.looked)

    def run(self, chunk: PlacementUnit, asked: Amounts) -> Sequence[Taken] | Reason:
        """Gives the chunk its places, with the evictions that this takes.

        Nothing has changed if there is a reason why not.

        Raises:
            CutShortError: the limit is reached; nothing has changed.
        """
        mark = self._state.occupancy.mark()
        try:
            taken = self._attempt(chunk, asked)
            if self._may_be_improved(taken):
                return self._improved(taken, chunk, asked, mark)
            moved = self._moved() if isinstance(taken, Sequence) else frozenset()
            if moved and self._action is not Action.CONSOLIDATE and len(self._evicted) <= _FEW:
                taken = self._without(moved, chunk, asked, mark)
        except CutShortError:
            self._state.occupancy.rollback(mark)
            raise
        if not isinstance(taken, Sequence):
            self._state.occupancy.rollback(mark)
        return taken

    def _may_be_improved(self, taken: Sequence[Taken] | Reason) -> bool:
        """Whether the search for what disturbs least is worth its steps.

        On more nodes, it is where more pods leave than get a place, or where nobody can move.
        """
        if self._limit.improvements <= 0:
            return False
        is_small = len(self._state.occupancy.nodes) <= FEW
        if isinstance(taken, Sequence):
            pods = self._evicted.pods
            return pods <= _FEW and (is_small or pods > len(self._search.looked))
        if not isinstance(taken, NoVictims):
            return False
        is_open = isinstance(taken.why, NoRoom | NoDomain | Unfair)
        return is_open and (is_small or self._action is Action.CONSOLIDATE)

    def _improved(
        self, taken: Sequence[Taken] | Reason, chunk: PlacementUnit, asked: Amounts, mark: int
    ) -> Sequence[Taken] | Reason:
        """A plan that disturbs less, or one where none has been found."""
        if not isinstance(taken, Sequence):
            self.evictor.undo(mark)
        improvement = Improvement(
            self._trial,
            self._eligibility,
            self.evictor,
            self._victims,
            self._giving,
            self._policy,
            bystanders=self.moves,
        )
        known = taken if isinstance(taken, Sequence) else None
        before = self._places.steps
        better = improvement.search(chunk, asked, known, self.has, mark)
        self._limit.improve(self._places.steps - before)
        self.has = improvement.has
        if better is not None:
            return better
        return taken

    def _without(
        self, moved: frozenset[str], chunk: PlacementUnit, asked: Amounts, mark: int
    ) -> Sequence[Taken] | Reason:
        """Tries again without those who moved: others may do."""
        before = self._disturbance()
        self.evictor.undo(mark)
        self._giving.spared = moved
        taken = self._attempt(chunk, asked)
        if isinstance(taken, Sequence) and self._disturbance() < before:
            return taken
        self.evictor.undo(mark)
        self._giving.spared = frozenset()
        return self._attempt(chunk, asked)

    def _attempt(self, chunk: PlacementUnit, asked: Amounts) -> Sequence[Taken] | Reason:
        over = self._get_allowance(asked) or self._shortage(chunk)
        if over is not None:
            return over
        taken = self._gang().place(chunk)
        self.has = self._state.occupancy.accounts.allocated[self.group.queue]
        if not isinstance(taken, Sequence):
            guarded = tuple(sorted(self.evictor.refused_by_budgets))
            return NoVictims(self._action, self._victims.count, taken, guarded)
        if self._action is not Action.CONSOLIDATE:
            self._move_freely()
            gone = [
                group.queue
                for group in self._evicted.groups()
                if not self.evictor.is_all_moved(group)
            ]
            if not self._eligibility.stays_fair(gone):
                return NoVictims(self._action, self._victims.count, Unfair())
        return taken

    def _get_allowance(self, asked: Amounts) -> Reason | None:
        """Evicts groups until the limits of queues let the group have what it asks for."""
        group = self._eligibility.group
        units: dict[str, Iterator[EvictionUnit]] = {}
        while True:
            over = refusal(self._state.occupancy, group.queue, asked, preemptible=group.preemptible)
            if not isinstance(over, OverLimit) or self._action is Action.CONSOLIDATE:
                return over
            if over.queue not in units:
                units[over.queue] = self._giving.units_of_queue(over.queue)
            unit = next(units[over.queue], None)
            if unit is None or not self.evictor.evict(unit):
                return over

    def _shortage(self, chunk: PlacementUnit) -> NoVictims | None:
        """Why nobody can move for the chunk: all would have more devices than there are."""
        if self._action is not Action.CONSOLIDATE:
            return None
        wanted = sum(map(self._places.least_devices, chunk.all_pods()))
        free = self._state.most_to_spare() if wanted else 0
        why: TooFewDevices | TooFewParts | None = None
        if wanted > free:
            why = TooFewDevices(free, wanted)
        elif free >= MANY:
            why = self._shortage_of_parts(chunk)
        return None if why is None else NoVictims(self._action, self._victims.count, why)

    def _shortage_of_parts(self, chunk: PlacementUnit) -> TooFewParts | None:
        """The same where cards are partitioned or shared."""
        wanted = together([self._places.least_parts(pod) for pod in chunk.all_pods()])
        kind = max(sorted(wanted.kinds), key=wanted.of, default=None)
        if kind is None:
            return None
        self._places.spend(1 + len(self._state.occupancy.nodes) // _NODES_A_STEP)
        spare = self._state.spare_parts
        if spare.suffices(kind, wanted.of(kind)):
            return None
        return TooFewParts(spare.most(kind), wanted.of(kind))

    def _take(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | Reason:
        """Gives a pod a place that is free, or makes room for it."""
        place = self._places.find(pod, self._policy, within, avoided)
        if isinstance(place, Place):
            self._trial.take(pod, place)
            return place
        if place is not None:
            return place
        skipped = self._search.begin()
        at = len(self._search.looked) - 1
        if not self.moves and not self._eligibility.may_take_from_any():
            return self._places.why_not(pod, within)
        for index, node in enumerate(self._nodes(pod, within, avoided)):
            if index < skipped:
                continue
            if self._is_over() and self._search.has_advanced:
                raise CutShortError
            if not self._freeable.may_suffice(pod, node):
                self._search.looked[at] += 1
                continue
            mark, count = self._state.occupancy.mark(), len(self._evicted)
            made = self._make_room(pod, node)
            if made is not None:
                return made
            self._state.occupancy.rollback(mark)
            self._evicted.cut(count)
            self._search.looked[at] += 1
            self._search.has_advanced = True
        return self._places.why_not(pod, within)

    def _is_over(self) -> bool:
        """Whether as much has been tried as may be; a search still looks at one node more."""
        return self._limit.is_reached(self._places.steps) or self._places.spent() >= 1

    def _gang(self) -> Gang:
        return Gang(self._trial, self._take, self._least_cost)

    def _least_cost(self, _: Least, nodes: frozenset[str]) -> tuple[object, ...]:
        """Orders domains by what it costs to make room in them."""
        self._places.spend(1 + len(nodes) // _NODES_A_STEP)
        costs = self._victims.costs(nodes, self._eligibility, _NO_NEEDS, 0)
        least = min(costs, default=None)
        return (True,) if least is None else (False, *least)

    def _nodes(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Iterator[str]:
        """The nodes where evictions may make room, where they cost least first."""
        devices = self._places.least_devices(pod)
        names = self._places.candidates(pod, within)
        self._places.spend(1 + len(names) // _NODES_A_STEP)
        if not any(self._freeable.may_suffice(pod, node) for node in _sample(names)):
            names = frozenset(node for node in names if self._freeable.may_suffice(pod, node))
        costs = list(self._victims.costs(names, self._eligibility, pod.needs, devices))
        heapify(costs)
        while costs:
            node = heappop(costs).node
            if node not in avoided:
                yield node

    def _make_room(self, pod: Pod, node: str) -> Place | None:
        """Evicts pods on a node until the pod has a place there, and gives it the place."""
        blocked: set[str] = set()
        evicted = tried = 0
        first = len(self._evicted)
        is_possible = False
        while True:
            unit = self._next_unit(node, blocked)
            if unit is None and evicted == tried:
                return None
            if unit is not None:
                if not self.evictor.evict(unit):
                    blocked.add(unit.group.key)
                    continue
                evicted += 1
                if evicted > _CLOSE and evicted < 2 * tried:
                    continue
            tried = evicted
            place = self._places.find(pod, self._policy, frozenset([node]))
            if isinstance(place, Place):
                self._trial.take(pod, place)
                place = self._spare(pod, place, first)
                return place if self._move_bound(first) else None
            if not is_possible and not self._could_ever(pod, node, blocked):
                return None
            is_possible = True

    def _could_ever(self, pod: Pod, node: str, blocked: set[str]) -> bool:
        """Whether a pod has a place on a node if everybody goes who may be evicted there."""
        mark, count = self._state.occupancy.mark(), len(self._evicted)
        tried = set(blocked)
        while (unit := self._next_unit(node, tried)) is not None:
            if not self.evictor.evict(unit):
                tried.add(unit.group.key)
        fits = isinstance(self._places.find(pod, self._policy, frozenset([node])), Place)
        self._state.occupancy.rollback(mark)
        self._evicted.cut(count)
        return fits

    def _spare(self, pod: Pod, place: Place, first: int) -> Place:
        """Puts back who need not have gone for a pod, the most important first; its place then."""
        for at in reversed(range(first, len(self._evicted) - 1)):
            if not self._state.occupancy.devices.most_free(place.node):
                break
            mark = self._state.occupancy.mark()
            self._trial.evict(pod, self._action, self.group.key)  # it has no other place yet
            if self._put_back(self._evicted[at]) and self._is_whole(at):
                found = self._places.find(pod, self._policy, frozenset([place.node]))
                if isinstance(found, Place):
                    self._trial.take(pod, found)
                    self._evicted.remove(at)
                    place = found
                    continue
            self._state.occupancy.rollback(mark)
        return place

    def _is_whole(self, at: int) -> bool:
        """Whether a group that has evicted pods back is not left with a part of its minimum."""
        group = self._evicted[at].group
        later = any(unit.group.key == group.key for unit in self._evicted.since(at + 1))
        return not later or stands(self._state.occupancy, group)

    def _put_back(self, unit: EvictionUnit) -> bool:
        """Puts evicted pods back if the places of all are free."""
        for pod in unit.pods:
            if pod.key in self._state.occupancy.holds or not self._trial.could_stay(pod):
                return False
            was_evicted = self._trial.is_evicted(pod)
            self._trial.put_back(pod)
            if was_evicted and not self._trial.is_evicted(pod):
                self._state.occupancy.undisrupt(pod)
        return True

    def _disturbance(self) -> tuple[int, int]:
        """How many pods are evicted for good, and how many in all."""
        pods = {pod.key for unit in self._evicted for pod in unit.pods}
        return sum(key not in self._state.occupancy.holds for key in pods), len(pods)

    def _move_bound(self, first: int) -> bool:
        """Gives those another place who must have one, of the latest evictions."""
        consolidates = self._action is Action.CONSOLIDATE
        bound = {
            unit.group.key: unit.group
            for unit in self._evicted.since(first)
            if unit.must_move or consolidates
        }
        by_size = sorted(bound.values(), key=lambda group: (-self.evictor.size(group), group.key))
        return all(self.evictor.move(group, all_pods=True) for group in by_size)

    def _next_unit(self, node: str, blocked: set[str]) -> EvictionUnit | None:
        """Who goes next from a node: as few pods of as unimportant a group as possible."""
        bound: EvictionUnit | None = None
        for group in self._victims.on_node(node, self._eligibility):
            if group.key in blocked or group.key in self._giving.spared:
                continue
            gives = self._eligibility.may_take(group)
            if not gives and not (self.moves and group.moves and bound is None):
                continue
            if (not gives or self._action is Action.CONSOLIDATE) and self._giving.rests(group):
                continue
            pods = self._giving.least(group, node)
            if pods and gives:
                return EvictionUnit(group, pods, must_move=False)
            if pods:
                bound = EvictionUnit(group, pods, must_move=True)
        return bound

    def _move_freely(self) -> None:
        """Gives those another place who need not have one, for a bounded number of steps.

        The group for which they go does not pay for them.
        """
        budget, self._places.budget = self._places.budget, StepBudget(_MOVES)
        mark = self._state.occupancy.mark()
        try:
            for group in self._evicted.groups():
                mark = self._state.occupancy.mark()
                if not self.evictor.is_all_moved(group):
                    self.evictor.move(group, all_pods=False)
        except OutOfStepsError:
            self._state.occupancy.rollback(mark)
        finally:
            budget.extend(self._places.budget.spent)
            self._places.budget = budget

    def _moved(self) -> frozenset[str]:
        """The groups that move, though they need not have another place."""
        return frozenset(
            unit.group.key
            for unit in self._evicted
            if not unit.must_move
            and any(pod.key in self._state.occupancy.holds for pod in unit.pods)
        )


def _sample(names: Collection[str]) -> Sequence[str]:
    """Some of the nodes, from the last on: those that come first are used up first."""
    return sorted(names)[:: -max(1, len(names) // _SAMPLE)]

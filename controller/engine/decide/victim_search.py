"""Makes room for a group at the cost of others: who is evicted, and on which nodes.

A pod that has no place gets one on the node where that disturbs least. Its victims there are
evicted one after the other until it fits, and who need not have gone stays. At the end, victims
that fit elsewhere move.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.capacity import refusal
from controller.engine.decide.eligibility import Eligibility
from controller.engine.decide.evicted import EvictedUnits, EvictionUnit
from controller.engine.decide.gang import Gang, Taken
from controller.engine.decide.giving import Giving
from controller.engine.decide.guarded import Guarded
from controller.engine.decide.move import move
from controller.engine.decide.placement_unit import (
    PlacementUnit,
    stands,
)
from controller.engine.decide.places import Least, Place
from controller.engine.decide.trial import Trial
from controller.engine.decide.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting, Pod, PodNeeds
from controller.engine.model.reason import NoVictims, OverLimit, Reason, TooFewDevices, Unfair
from controller.engine.model.resource import Amounts

_CLOSE: Final = 8
"""After this many evictions on a node, it is looked at again only when they have doubled."""
_FEW: Final = 32
"""Up to this many evictions, a second attempt spares those who moved."""
_EVICTION: Final = 10
_MOVES: Final = 10_000
"""What it may cost to look for another place for victims, in steps."""
"""Steps for the trial to evict a pod."""
_NODES_A_STEP: Final = 10
"""So many nodes are ordered in a step by what it costs to make room there."""
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
        last_step: int | None,
        skips: tuple[int, ...] = (),
        moves: bool = False,
        guarded: Guarded,
        past_budgets: frozenset[str] = frozenset(),
    ) -> None:
        """The search ends before `last_step`; `skips` are those of a cursor.

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
        self._last_step = last_step
        self._search = _Search(skips)
        self.moves = moves
        """Whether groups may go whose queue need not give."""
        self.past_budgets = past_budgets
        """The queues of which budgets are not respected any more."""
        self._guarded = guarded
        self.refused_by_budgets: set[str] = set()
        """The queues of which budgets have refused an eviction."""
        self.refused_for_a_time: set[str] = set()
        """Those of them of which budgets are respected for a time only."""
        self._giving = Giving(self._state, eligibility, victims)
        self.has = self._state.accounts.allocated[self.group.queue]
        """What the queue has with the chunk, and without those who were evicted."""
        self.evicted = EvictedUnits()
        """Who has been evicted, in this order."""

    @property
    def group(self) -> Group:
        """For whom it looks."""
        return self._eligibility.group

    @property
    def wake(self) -> float | None:
        """When a group that is safe now is safe no longer, as a Unix time."""
        return self._giving.wake

    @property
    def looked(self) -> tuple[int, ...]:
        """Where the search can go on."""
        return tuple(self._search.looked)

    def someone_leaves(self) -> bool:
        """Whether a pod has to go that runs, and not only pods placed in this cycle."""
        return any(self._trial.is_evicted(pod) for unit in self.evicted for pod in unit.pods)

    def run(self, chunk: PlacementUnit, asked: Amounts) -> Sequence[Taken] | Reason:
        """Gives the chunk its places, with the evictions that this takes.

        Nothing has changed if there is a reason why not.

        Raises:
            CutShortError: the limit is reached; nothing has changed.
        """
        mark = self._state.mark()
        try:
            taken = self._attempt(chunk, asked)
            moved = self._moved() if isinstance(taken, Sequence) else frozenset()
            if moved and self._action is not Action.CONSOLIDATE and len(self.evicted) <= _FEW:
                taken = self._without(moved, chunk, asked, mark)
        except CutShortError:
            self._state.rollback(mark)
            raise
        if not isinstance(taken, Sequence):
            self._state.rollback(mark)
        return taken

    def _without(
        self, moved: frozenset[str], chunk: PlacementUnit, asked: Amounts, mark: int
    ) -> Sequence[Taken] | Reason:
        """Tries again without those who moved: others may do."""
        before = self._disturbance()
        self._state.rollback(mark)
        self.evicted, self._giving.spared = EvictedUnits(), moved
        taken = self._attempt(chunk, asked)
        if isinstance(taken, Sequence) and self._disturbance() < before:
            return taken
        self._state.rollback(mark)
        self.evicted, self._giving.spared = EvictedUnits(), frozenset()
        return self._attempt(chunk, asked)

    def _attempt(self, chunk: PlacementUnit, asked: Amounts) -> Sequence[Taken] | Reason:
        over = self._get_allowance(asked) or self._shortage(chunk)
        if over is not None:
            return over
        taken = self._gang().place(chunk)
        self.has = self._state.accounts.allocated[self.group.queue]
        if not isinstance(taken, Sequence):
            guarded = tuple(sorted(self.refused_by_budgets))
            return NoVictims(self._action, self._victims.count, taken, guarded)
        if self._action is not Action.CONSOLIDATE:
            self._move_freely()
            gone = [group.queue for group in self.evicted.groups() if not self._is_all_moved(group)]
            if not self._eligibility.stays_fair(gone):
                return NoVictims(self._action, self._victims.count, Unfair())
        return taken

    def _get_allowance(self, asked: Amounts) -> Reason | None:
        """Evicts groups until the limits of queues let the group have what it asks for."""
        group = self._eligibility.group
        units: dict[str, Iterator[EvictionUnit]] = {}
        while True:
            over = refusal(self._state, group.queue, asked, preemptible=group.preemptible)
            if not isinstance(over, OverLimit) or self._action is Action.CONSOLIDATE:
                return over
            if over.queue not in units:
                units[over.queue] = self._giving.units_of_queue(over.queue)
            unit = next(units[over.queue], None)
            if unit is None or not self._evict(unit):
                return over

    def _shortage(self, chunk: PlacementUnit) -> NoVictims | None:
        """Why nobody can move for the chunk: all would have more devices than there are."""
        if self._action is not Action.CONSOLIDATE:
            return None
        wanted = sum(map(self._places.least_devices, chunk.all_pods()))
        free = self._state.most_to_spare() if wanted else 0
        if wanted <= free:
            return None
        return NoVictims(self._action, self._victims.count, TooFewDevices(free, wanted))

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
            mark, count = self._state.mark(), len(self.evicted)
            made = self._make_room(pod, node)
            if made is not None:
                return made
            self._state.rollback(mark)
            self.evicted.cut(count)
            self._search.looked[at] += 1
            self._search.has_advanced = True
        return self._places.why_not(pod, within)

    def _is_over(self) -> bool:
        """Whether as much has been tried as may be; a search still looks at one node more."""
        is_last = self._last_step is not None and self._places.steps >= self._last_step
        return is_last or self._places.spent() >= 1

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
        first = len(self.evicted)
        is_possible = False
        while True:
            unit = self._next_unit(node, blocked)
            if unit is None and evicted == tried:
                return None
            if unit is not None:
                if not self._evict(unit):
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
        mark, count = self._state.mark(), len(self.evicted)
        tried = set(blocked)
        while (unit := self._next_unit(node, tried)) is not None:
            if not self._evict(unit):
                tried.add(unit.group.key)
        fits = isinstance(self._places.find(pod, self._policy, frozenset([node])), Place)
        self._state.rollback(mark)
        self.evicted.cut(count)
        return fits

    def _spare(self, pod: Pod, place: Place, first: int) -> Place:
        """Puts back who need not have gone for a pod, the most important first; its place then."""
        for at in reversed(range(first, len(self.evicted) - 1)):
            if not self._state.devices.most_free(place.node):
                break
            mark = self._state.mark()
            self._trial.evict(pod, self._action, self.group.key)  # it has no other place yet
            if self._put_back(self.evicted[at]) and self._is_whole(at):
                found = self._places.find(pod, self._policy, frozenset([place.node]))
                if isinstance(found, Place):
                    self._trial.take(pod, found)
                    self.evicted.remove(at)
                    place = found
                    continue
            self._state.rollback(mark)
        return place

    def _is_whole(self, at: int) -> bool:
        """Whether a group that has evicted pods back is not left with a part of its minimum."""
        group = self.evicted[at].group
        later = any(unit.group.key == group.key for unit in self.evicted.since(at + 1))
        return not later or stands(self._state, group)

    def _put_back(self, unit: EvictionUnit) -> bool:
        """Puts evicted pods back if the places of all are free."""
        for pod in unit.pods:
            if pod.key in self._state.holds or not self._trial.could_stay(pod):
                return False
            was_evicted = self._trial.is_evicted(pod)
            self._trial.put_back(pod)
            if was_evicted and not self._trial.is_evicted(pod):
                self._state.undisrupt(pod)
        return True

    def _move_bound(self, first: int) -> bool:
        """Gives those another place who must have one, of the latest evictions."""
        consolidates = self._action is Action.CONSOLIDATE
        bound = {
            unit.group.key: unit.group
            for unit in self.evicted.since(first)
            if unit.must_move or consolidates
        }
        by_size = sorted(bound.values(), key=lambda group: (-self._size(group), group.key))
        return all(self._move(group, all_pods=True) for group in by_size)

    def _size(self, group: Group) -> int:
        """How many devices the largest of the evicted pods of a group had."""
        pods = self.evicted.pods_of(group)
        return max(map(self._state.device_count_before, pods), default=0)

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

    def _evict(self, unit: EvictionUnit) -> bool:
        """Evicts pods together, unless a disruption budget or the limit of moves forbids it."""
        most = self._state.settings.consolidation_limit
        moved = self.evicted.pods + len(unit.pods)
        if self._action is Action.CONSOLIDATE and most is not None and moved > most:
            return False
        queue = unit.group.queue
        is_overdue = queue in self.past_budgets and self._guarded.is_borrowed(
            unit.group, self._eligibility
        )
        grace = None
        if self._action is Action.RECLAIM:
            grace = self._guarded.grace(self.group, queue)
        mark = self._state.mark()
        self._places.steps += len(unit.pods)  # about as much work as a search
        price = _EVICTION * len(unit.pods)
        if self._action is Action.RECLAIM:
            # Whoever has borrowed chooses how many pods have to go; that must not void a guarantee.
            self._places.budget.extend(price)
        else:
            self._places.spend(price)
        for pod in unit.pods:
            is_new = pod.key not in self._trial.placed
            past_budgets = is_new and not self._state.disrupt(pod)
            if past_budgets:
                if not is_overdue:
                    self._note_budgets(unit)
                    self._state.rollback(mark)
                    return False
                self._state.disrupt_anyway(pod)
            self._trial.evict(
                pod, self._action, self.group.key, grace=grace, past_budgets=past_budgets
            )
        self.evicted.add(unit)
        return True

    def _note_budgets(self, unit: EvictionUnit) -> None:
        """Records that budgets refuse to evict a unit."""
        queue = unit.group.queue
        self.refused_by_budgets.add(queue)
        is_reclaimed = self._action is Action.RECLAIM and not unit.must_move
        if is_reclaimed and self._guarded.is_borrowed(unit.group, self._eligibility):
            self.refused_for_a_time.add(queue)

    def displaced(self) -> list[str]:
        """The groups that only had a place in this plan, and have lost it."""
        evicted, holds = self._trial.evictions, self._state.holds
        return [
            unit.group.key
            for unit in self.evicted
            if any(pod.key not in evicted and pod.key not in holds for pod in unit.pods)
        ]

    def moved(self) -> list[str]:
        """The groups with pods that leave, and have another place."""
        holds = self._state.holds
        return list(
            {
                unit.group.key: None
                for unit in self.evicted
                if any(self._trial.is_evicted(pod) and pod.key in holds for pod in unit.pods)
            }
        )

    def _is_all_moved(self, group: Group) -> bool:
        """Whether all evicted pods of a group have another place."""
        return all(pod.key in self._state.holds for pod in self.evicted.pods_of(group))

    def _disturbance(self) -> tuple[int, int]:
        """How many pods are evicted for good, and how many in all."""
        pods = [pod.key for unit in self.evicted for pod in unit.pods]
        return sum(key not in self._state.holds for key in pods), len(pods)

    def _move(self, group: Group, *, all_pods: bool) -> bool:
        """Gives the evicted pods of a group another place."""
        pods = self.evicted.pods_of(group)
        evicted = {
            pod.key
            for pod in pods
            if pod.key not in self._state.holds and not isinstance(pod.state, Evicting)
        }
        return move(self._trial, group, evicted, all_pods=all_pods)

    def _move_freely(self) -> None:
        """Gives those another place who need not have one, for a bounded number of steps.

        The group for which they go does not pay for them.
        """
        budget, self._places.budget = self._places.budget, StepBudget(_MOVES)
        mark = self._state.mark()
        try:
            for group in self.evicted.groups():
                mark = self._state.mark()
                if not self._is_all_moved(group):
                    self._move(group, all_pods=False)
        except OutOfStepsError:
            self._state.rollback(mark)
        finally:
            budget.extend(self._places.budget.spent)
            self._places.budget = budget

    def _moved(self) -> frozenset[str]:
        """The groups that move, though they need not have another place."""
        return frozenset(
            unit.group.key
            for unit in self.evicted
            if not unit.must_move and any(pod.key in self._state.holds for pod in unit.pods)
        )

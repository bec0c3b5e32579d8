"""Replaces a plan by one that disturbs less, and finds one where there seemed to be none."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.step_budget import StepBudget
from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.gangs.gang import Gang, Take, Taken
from controller.engine.decide.gangs.placement_unit import PlacementUnit
from controller.engine.decide.gangs.trial import Decided, Trial
from controller.engine.decide.nodes.placement_policy import policy_of
from controller.engine.decide.nodes.places import Place
from controller.engine.decide.queues.capacity import refusal
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.disturbance import FAIR, UNFAIR, Disturbance, disturbance
from controller.engine.decide.victims.evictor import Evictor
from controller.engine.decide.victims.few_nodes import FEW, FewNodes, Leaving, Rearrangement
from controller.engine.decide.victims.giving import Giving
from controller.engine.decide.victims.move import move
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Placed, Pod
from controller.engine.model.reason import NoRoom, Reason
from controller.engine.model.resource import Amounts

_NODES_A_STEP: Final = 10
"""So many nodes are ordered in a step by what they promise."""
_PODS_A_STEP: Final = 10
"""So many pods of the groups that leave are ordered by age in a step."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What has been decided for a chunk, to be done again."""

    taken: Sequence[Taken]
    has: Amounts
    units: tuple[EvictionUnit, ...]
    placed: tuple[tuple[str, Decided], ...]
    """By pod."""

    def moved(self) -> Iterator[EvictionUnit]:
        """Of the units, the pods that get another place."""
        placed = {key for key, _ in self.placed}
        for unit in self.units:
            yield replace(unit, pods=tuple(pod for pod in unit.pods if pod.key in placed))


class Improvement:
    """The search for one chunk of a group, once the first search is at its end."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        evictor: Evictor,
        victims: Victims,
        giving: Giving,
        policy: Policy,
        *,
        bystanders: bool,
    ) -> None:
        """With `bystanders`, groups whose queue need not give may move."""
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._eligibility = eligibility
        self._evictor = evictor
        self._victims = victims
        self._giving = giving
        self._policy = policy
        self._bystanders = bystanders
        self.has: Amounts = ()
        """What the queue has with the chunk, and without those who were evicted."""

    def search(
        self,
        chunk: PlacementUnit,
        asked: Amounts,
        taken: Sequence[Taken] | None,
        has: Amounts,
        mark: int,
    ) -> Sequence[Taken] | None:
        """What disturbs least; if nothing else does, what has been decided since the mark.

        None, and nothing has changed, if there is no plan.
        """
        self.has = has
        known = None if taken is None else self._known(taken, has)
        if taken is not None and known is None:
            return taken  # it cannot be done again
        least = None if known is None else disturbance(self._state.occupancy, known.units, FAIR)
        gone = tuple(self._evictor.gone())
        self._evictor.undo(mark)
        with self._beyond_the_attempt():
            found = self._better(chunk, asked, least, gone, known)
            return found if found is not None or known is None else self._do_again(known)

    def _better(
        self,
        chunk: PlacementUnit,
        asked: Amounts,
        least: Disturbance | None,
        gone: Sequence[EvictionUnit],
        known: _Known | None,
    ) -> Sequence[Taken] | None:
        """A plan that disturbs less than the known one, carried out; None if there is none."""
        group = self._eligibility.group
        if (
            refusal(self._state.occupancy, group.queue, asked, preemptible=group.preemptible)
            is not None
        ):
            return None  # others have to go whatever room there is
        nodes = self._nodes(chunk, known)
        if self._eligibility.action is Action.CONSOLIDATE and not self._is_free(chunk, nodes):
            return None
        few = FewNodes(
            self._trial,
            self._eligibility,
            self._victims,
            self._giving,
            self._policy,
            nodes,
            bystanders=self._bystanders,
        )
        if least is not None:
            least = least._replace(fairness=few.fairness(gone) or UNFAIR)
        plan = few.search(chunk, least, partial(self._try_out, few, chunk))
        if plan is not None:
            leaving = Leaving.of(plan.gone, plan.moved)
        else:
            leaving = Leaving.of(gone, () if known is None else known.moved())
        plan = self._without_needless(few, chunk, leaving) or plan
        return None if plan is None else self._carry_out(plan, chunk)

    def _without_needless(
        self, few: FewNodes, chunk: PlacementUnit, leaving: Leaving
    ) -> Rearrangement | None:
        """A plan in which only some go of those who go for good; None if all of them have to.

        A plan with more may be fairer: some go only so that it is the turn of others.
        """
        best: Rearrangement | None = None
        while self._come_from_several(leaving):
            found = few.search(chunk, None, partial(self._try_out, few, chunk), leaving)
            if found is None:
                break
            best, leaving = found, Leaving.of(found.gone, found.moved)
        return best

    def _come_from_several(self, leaving: Leaving) -> bool:
        """Whether several queues give, which have to take turns."""
        occupancy = self._state.occupancy
        queues = {occupancy.queue_of(occupancy.pods[pod]) for pod in leaving.gone}
        return self._eligibility.action is Action.RECLAIM and len(queues) > 1

    def _is_free(self, chunk: PlacementUnit, nodes: frozenset[str]) -> bool:
        """Whether nodes have free together what a chunk needs, so that moving may help."""
        pods, places = list(chunk.all_pods()), self._places
        rooms = [self._state.occupancy.rooms[node] for node in nodes]
        places.spend((len(pods) + len(rooms)) // _PODS_A_STEP)
        return (
            sum(room.pods for room in rooms) >= len(pods)
            and sum(max(0, room.cpu) for room in rooms) >= sum(pod.needs.cpu for pod in pods)
            and sum(max(0, room.memory) for room in rooms) >= sum(pod.needs.memory for pod in pods)
            and sum(map(self._state.occupancy.devices.most_free, nodes))
            >= sum(map(places.least_devices, pods))
        )

    def _nodes(self, chunk: PlacementUnit, known: _Known | None) -> frozenset[str]:
        """All nodes if there are few; else those of the plan, and the ones that promise most.

        That is where the fewest devices are missing, and where most are free for those who move.
        """
        state, places = self._state, self._places
        if len(state.occupancy.nodes) <= FEW:
            return frozenset(state.occupancy.nodes)
        places.spend(len(state.occupancy.nodes) // _NODES_A_STEP)
        found = dict.fromkeys(
            [
                *(chosen.place.node for chosen in (known.taken if known is not None else ())),
                *(decided.place.node for _, decided in (known.placed if known is not None else ())),
            ]
        )
        pod = max(chunk.all_pods(), key=places.least_devices)
        wanted = places.least_devices(pod)
        missing = {
            name: max(0, wanted - state.occupancy.devices.most_free(name))
            for name in places.candidates(pod, None)
        }
        near = nsmallest(FEW, missing, key=lambda name: (missing[name], name))
        free = nsmallest(
            FEW,
            state.occupancy.nodes,
            key=lambda name: (-state.occupancy.devices.free_cards(name), name),
        )
        for pair in zip(near, free, strict=False):
            found |= dict.fromkeys(pair)
        return frozenset(list(found)[:FEW])

    @contextmanager
    def _beyond_the_attempt(self) -> Iterator[None]:
        """Does work that does not count against what the attempt may cost, but is charged."""
        budget, self._places.budget = self._places.budget, StepBudget.unlimited()
        try:
            yield
        finally:
            budget.extend(self._places.budget.spent)
            self._places.budget = budget

    def _known(self, taken: Sequence[Taken], has: Amounts) -> _Known | None:
        """What has been decided; None if others have lost what they had in this plan only."""
        units = tuple(self._evictor.evicted.from_their_places())
        pods = [pod for unit in units for pod in unit.pods]
        if not all(isinstance(pod.state, Placed) and self._trial.is_evicted(pod) for pod in pods):
            return None
        moved = [pod.key for pod in pods if pod.key in self._state.occupancy.holds]
        keys = [*(one.pod.key for one in taken), *moved]
        placed = tuple((key, self._trial.placed[key]) for key in keys)
        return _Known(taken, has, units, placed)

    def _do_again(self, known: _Known) -> Sequence[Taken]:
        for unit in known.units:
            self._evictor.evict(unit)
        for key, decided in known.placed:
            self._trial.take(self._state.occupancy.pods[key], decided.place)
            if decided.waits:
                self._trial.wait(self._state.occupancy.pods[key])
        self.has = known.has
        return known.taken

    def _try_out(
        self, few: FewNodes, chunk: PlacementUnit, plan: Rearrangement
    ) -> Disturbance | None:
        """How much a plan disturbs; None if it cannot be carried out. Nothing has changed."""
        mark = self._state.occupancy.mark()
        try:
            if self._carry_out(plan, chunk) is None:
                return None
            members = (
                self._state.occupancy.members[group.key] for group in self._evictor.evicted.groups()
            )
            pods = sum(
                len(of_set) for group_pods in members for of_set in group_pods.by_set.values()
            )
            self._places.spend(pods // _PODS_A_STEP)
            found = disturbance(self._state.occupancy, self._evictor.evicted, FAIR)
        finally:
            self._evictor.undo(mark)
        return found._replace(fairness=few.fairness(plan.gone) or UNFAIR)

    def _carry_out(self, plan: Rearrangement, chunk: PlacementUnit) -> Sequence[Taken] | None:
        """Evicts and gives places as a plan says; None, and no change, if that is not possible."""
        mark = self._state.occupancy.mark()
        taken = self._carried_out(plan, chunk)
        if taken is None:
            self._evictor.undo(mark)
        return taken

    def _carried_out(self, plan: Rearrangement, chunk: PlacementUnit) -> Sequence[Taken] | None:
        evictor = self._evictor
        if not all(map(evictor.evict, (*plan.gone, *plan.moved))):
            return None
        taken = Gang(self._trial, self._on(plan.nodes, self._policy)).place(chunk)
        self.has = self._state.occupancy.accounts.allocated[self._eligibility.group.queue]
        if not isinstance(taken, Sequence):
            return None
        groups = {unit.group.key: unit.group for unit in plan.moved}
        for group in sorted(groups.values(), key=lambda group: (-evictor.size(group), group.key)):
            take = self._on(plan.nodes, policy_of(self._state, group))
            if not self._move(group, plan, take):
                return None
        gone = [unit.group.queue for unit in plan.gone]
        reclaims = self._eligibility.action is Action.RECLAIM
        return None if reclaims and not self._eligibility.stays_fair(gone) else taken

    def _move(self, group: Group, plan: Rearrangement, take: Take) -> bool:
        """Gives those of a group another place that move; others of it may go for good."""
        units = (unit for unit in plan.moved if unit.group.key == group.key)
        pods = {pod.key for unit in units for pod in unit.pods}
        return move(self._trial, group, pods, all_pods=True, take=take)

    def _on(self, nodes: Mapping[str, str], policy: Policy) -> Take:
        """Gives each pod a place on its node."""

        def take(
            pod: Pod, within: frozenset[str] | None, avoided: Container[str]
        ) -> Place | Reason:
            node = nodes.get(pod.key)
            if node is not None and (within is None or node in within) and node not in avoided:
                place = self._places.find(pod, policy, frozenset([node]))
                if isinstance(place, Place):
                    self._trial.take(pod, place)
                    return place
            return NoRoom(pod.key, 1, ())

        return take

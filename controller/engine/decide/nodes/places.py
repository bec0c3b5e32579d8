"""The best place for one pod: a node with room for it, and devices for its claims there."""

import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.preference import Order, Policy
from carina_dra.placement.choice.order import NodeLoss
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer, Unplaceable
from carina_dra.placement.cluster.card import NOTHING, CardParts
from carina_dra.price import attempt_limit
from carina_dra.resource import Allocation, ResourceClaim
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.nodes.claim_requests import ClaimRequests
from controller.engine.decide.nodes.extended_resources import ExtendedResources, Service
from controller.engine.decide.nodes.fitting import Fitting
from controller.engine.decide.nodes.lacking import Lacking
from controller.engine.decide.nodes.node_fit import steps_of_looks, unsuitable
from controller.engine.decide.nodes.node_losses import CostOfUse, NodeLosses
from controller.engine.decide.nodes.node_rules import NodeRules
from controller.engine.model.pod import Pod, PodNeeds
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.reason import BadClaim, BadVolume, ExclusiveDevices, NoRoom
from controller.engine.state.remembered import most_sets
from controller.engine.state.room import Room
from controller.engine.state.state import State

_NAMES: Final = uuid.UUID("7d2d7d0e-6a3b-5b0c-9a51-3f0f0c8f6c11")
"""The name space of the IDs of shares, which follow from their claims."""
_MAX_STEPS: Final = 10_000
"""The decisions of the searches for devices on one node; then other nodes are looked at."""
_TRIED: Final = 8
"""The most nodes that others are leaving which are looked at for devices that are free already."""
_USERS: Final = 256
"""The most users of a claim (`status.reservedFor`)."""
_FIND: Final = 25
"""Steps for looking for a place, with what follows from one; what selectors and the search for
devices take is charged in addition."""
_TIED: Final = 1
"""Steps for a claim that has devices already: the nodes where these are."""
_NODES_A_STEP: Final = 40
"""So many nodes are looked at in a step, where no devices are looked for."""
_ANYWHERE: Final = Policy()
_NOTES: Final = 3
"""So many nodes are named where something is wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node for a pod, and the devices of its claims that have none yet."""

    node: str
    allocations: tuple[tuple[str, Allocation], ...]
    waits: bool
    """Whether others must leave the node first."""


FoundPlace: TypeAlias = Place | BadClaim | BadVolume | ExclusiveDevices | None
"""What is found for a pod: a place, none, or why it has none anywhere."""


@dataclass(frozen=True, slots=True)
class Least:
    """A number of pods, and what each of them needs at least."""

    count: int
    cpu: int
    memory: int
    devices: int
    """0 if that cannot be said."""


Spent: TypeAlias = Callable[[], float]
"""Gives which part of the time for a cycle is spent: from 1 on, nothing more is begun."""
PodKind: TypeAlias = tuple[object, ...]
_Selection: TypeAlias = tuple[object, ...]
"""What of a pod says which nodes it may be on: its selector, its affinity and its tolerations."""


class _Division(NamedTuple):
    """The nodes of a cluster for a selection, whatever is on them now."""

    suitable: frozenset[str]
    others: Mapping[str, str]
    """Why such a pod may not be on each of the other nodes."""
    fell: Counter[str]
    """On how many nodes each of these constraints is the first."""


def no_time() -> float:
    """What is spent where time does not matter."""
    return 0.0


class PlaceFinder:
    """Finds places for pods, and remembers what does not change between them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.steps = 0
        """How many places have been looked for, and pods evicted to make room."""
        self.spent: Spent = no_time
        """Which part of its time a cycle has spent."""
        self.looked_for = ""
        """The pod for which a place was looked for last."""
        self.budget = self._unlimited = StepBudget.unlimited()
        """What the attempt may cost that is being made."""
        self._rules = NodeRules(state.occupancy)
        self._lacking = Lacking(state.occupancy)
        self._losses = NodeLosses(state)
        self._extended = ExtendedResources(state)
        self._placers: dict[Policy, Placer] = {}
        self._claim = ""
        self._shares = 0
        self._requests = ClaimRequests(state.occupancy)
        self._masks: dict[_Selection, _Division] = {}
        """Those that were asked for last at the end."""
        self._within: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        self._mask_moment = -1
        self._noted: tuple[str, tuple[str, ...]] = "", ()
        """What was noted on the last search that was in vain, and for which pod."""

    def spend(self, steps: int) -> None:
        """Charges work to the present attempt.

        Raises:
            OutOfStepsError: it has cost more than it may.
        """
        self.budget.spend(steps)

    def forget(self) -> None:
        """Forgets what has been found: a search that has failed may have left a part of it."""
        self._placers.clear()
        self._losses = NodeLosses(self._state)
        self._requests.forget()

    def find(
        self,
        pod: Pod,
        policy: Policy,
        within: frozenset[str] | None = None,
        avoided: Container[str] = (),
    ) -> FoundPlace:
        """The best node of those `within` (or of all) that are not `avoided`; None for none.

        A node where the pod can start now comes before one that others have to leave first.

        Outside of attempts, it has a budget of its own; without enough of it there is no place.

        Raises:
            OutOfStepsError: the attempt has cost more than it may.
        """
        if self.budget is not self._unlimited:
            return self._find(pod, policy, within, avoided)
        self.budget = StepBudget(attempt_limit(len(self._state.occupancy.nodes)))
        try:
            return self._find(pod, policy, within, avoided)
        except OutOfStepsError as error:
            self._noted = pod.key, (f"undecided: {error}",)
            return None
        finally:
            self.budget = self._unlimited

    def _find(
        self,
        pod: Pod,
        policy: Policy,
        within: frozenset[str] | None,
        avoided: Container[str],
    ) -> FoundPlace:
        self.spend(_FIND)
        self.looked_for = pod.key
        self.steps += 1
        self.spent()  # reports progress
        open_claims = self._open_claims(pod)
        if isinstance(open_claims, BadClaim):
            return open_claims
        problem = self._rules.problem(pod)
        if problem is not None:
            return problem
        names = self.candidates(pod, within)
        if not names:
            return None
        if pod.planned:
            self.spend(len(self._state.occupancy.nodes) * len(pod.planned) // _NODES_A_STEP)
        services = self._extended.services(pod, names, open_claims)
        if isinstance(services, ExclusiveDevices):
            return services
        found: Place | BadClaim | None = None
        for service in services:
            here = self._find_served(pod, service, policy, avoided)
            if isinstance(here, Place) and not here.waits:
                return here
            found = found if isinstance(found, Place) else here or found
        return found

    def _find_served(
        self, pod: Pod, service: Service, policy: Policy, avoided: Container[str]
    ) -> Place | BadClaim | None:
        """The best of the nodes that serve the pod in one way."""
        claims, names = service.claims, service.nodes
        request = self._request(claims)
        if isinstance(request, BadClaim):
            return BadClaim(pod.key, request.reason)
        rooms = self._state.occupancy.rooms
        awaited = self._rules.awaited(pod, self.budget)
        leaving = (
            self._state.occupancy.leaving.keys() | awaited
            if awaited
            else self._state.occupancy.leaving
        )
        fitting = Fitting(names, rooms, pod.needs, avoided, leaving)
        if service.is_planned and request is not None:
            policy = replace(policy, devices=None)
            here = self._best_chosen(pod, claims, request, policy, fitting)
        else:
            here = self._best(pod, claims, request, policy, fitting)
        if isinstance(here, BadClaim) or (isinstance(here, Place) and not here.waits):
            return here
        left = frozenset(name for name in leaving if name in names)
        if not left:
            return here
        later = Fitting(left, rooms, pod.needs, avoided, ())
        there = self._best_of_left(pod, claims, request, policy, later)
        return there if isinstance(there, Place) and not there.waits else here or there

    def _is_expired(self) -> bool:
        """Reports progress; never ends a search."""
        self.spent()
        return False

    def kind(self, pod: Pod) -> PodKind:
        """Equal for pods of which one has a place where the other would have one."""
        open_claims = self._open_claims(pod)
        if isinstance(open_claims, BadClaim):
            return (open_claims,)
        request = self._request(open_claims)
        if isinstance(request, BadClaim):
            return (request,)
        tied = tuple(claim for claim in pod.claims if not self._is_own(claim))
        rules = self._rules.kind(pod, self.budget)
        return pod.needs, None if request is None else request.key, tied, rules

    def why_not(self, pod: Pod, within: frozenset[str] | None = None) -> NoRoom:
        """On how many nodes each constraint is the first that keeps the pod away."""
        state = self._state
        self.spend(1 + len(state.occupancy.nodes) // _NODES_A_STEP)
        allowed = self._tied_to(pod)
        names = state.occupancy.nodes if within is None else within
        suitable, others, fell_of_all = self._divided(pod.needs)
        fell = (
            Counter(fell_of_all)
            if within is None
            else Counter(others[name] for name in within if name in others)
        )
        refused = self._rules.refused(pod, suitable, self.budget)
        among = suitable if within is None else suitable & within
        if allowed is None and not refused:
            fell += self._lacking.on(among, pod.needs)
            among = frozenset()
        for name in among:
            if allowed is not None and name not in allowed:
                constraint = "its claim's devices"
            elif name in refused:
                constraint = refused[name]
            else:
                constraint = state.occupancy.rooms[name].lacks(pod.needs) or "devices"
            fell[constraint] += 1
        counted = sorted(fell.items(), key=lambda pair: (-pair[1], pair[0]))
        noted, notes = self._noted
        return NoRoom(pod.key, len(names), tuple(counted), notes if noted == pod.key else ())

    def suitable(self, needs: PodNeeds) -> frozenset[str]:
        """The nodes that such a pod may be on, whatever is on them now.

        Raises:
            OutOfStepsError: as for `find`.
        """
        return self._divided(needs)[0]

    def _divided(self, needs: PodNeeds) -> _Division:
        """The nodes that such a pod may be on, and why it may not be on each of the others.

        Raises:
            OutOfStepsError: there is not enough left to look at its conditions on all nodes.
        """
        state = self._state
        if self._mask_moment != state.occupancy.capacity.moment:
            self._mask_moment = state.occupancy.capacity.moment
            self._masks.clear()
            self._within.clear()
        key = needs.node_selector, needs.affinity, needs.tolerations
        steps = steps_of_looks(needs, len(state.occupancy.nodes)) if any(key) else 0
        was_charged = key in self.budget.charged
        if steps:
            self.budget.spend_once(key, steps)
        known = self._masks.pop(key, None)
        if known is None:
            if was_charged:
                self.budget.spend(steps)  # the attempt has more unlike pods than are remembered
            found = {name: unsuitable(needs, node) for name, node in state.occupancy.nodes.items()}
            others = {name: reason for name, reason in found.items() if reason is not None}
            suitable = frozenset(found.keys() - others.keys())
            known = _Division(suitable, others, Counter(others.values()))
            if len(self._masks) >= most_sets(len(state.occupancy.nodes)):
                del self._masks[next(iter(self._masks))]
        self._masks[key] = known
        return known

    def least_of(self, pods: Sequence[Pod]) -> Least:
        """What each of some pods needs at least."""
        self.spend(len(pods))
        return Least(
            len(pods),
            min(pod.needs.cpu for pod in pods),
            min(pod.needs.memory for pod in pods),
            min(map(self.least_devices, pods)),
        )

    def may_have_room(self, least: Least, nodes: frozenset[str]) -> bool:
        """Whether nodes may have room for these pods; false is certain."""
        self.spend(1 + len(nodes) // _NODES_A_STEP)
        cpu, memory, devices = least.cpu, least.memory, least.devices
        slots, wanted = 0, least.count
        for name in nodes:
            room = self._state.occupancy.rooms[name]
            here = room.pods
            if cpu:
                here = min(here, room.cpu // cpu)
            if memory:
                here = min(here, room.memory // memory)
            if devices and here > 0:
                here = min(here, self._state.occupancy.devices.most_free(name) // devices)
            slots += max(0, here)
            if slots >= wanted:
                return True
        return False

    def has_free_devices(self) -> bool:
        """Whether a device of a node is free."""
        return any(map(self._state.occupancy.devices.most_free, self._state.occupancy.nodes))

    def free_cards(self, nodes: frozenset[str]) -> int:
        """What is free of the devices of nodes, in millionths of a card."""
        return sum(map(self._state.occupancy.devices.free_cards, nodes))

    def is_free_now(self, pod: Pod, place: Place) -> bool:
        """Whether a place that a pod has not taken yet is free without anybody leaving."""
        state, node = self._state, place.node
        is_awaited = node in self._rules.awaited(pod, self.budget)
        if not self._would_choose_what_is_free(pod, place):
            return False
        if node not in state.occupancy.leaving:
            return not is_awaited
        if not self._has_room_now(pod, node):
            return False
        mark = state.occupancy.mark()
        self._show_present(node)
        fits = all(state.occupancy.cluster.fits(allocation) for _, allocation in place.allocations)
        state.occupancy.rollback(mark)
        return fits

    def _would_choose_what_is_free(self, pod: Pod, place: Place) -> bool:
        """Whether kube-scheduler, where it chooses devices, takes nothing promised to others."""
        if not (pod.planned and self._has_promised(place.node)):
            return True
        claims = tuple(self._state.occupancy.claims[key] for key, _ in place.allocations)
        if not _is_planned(pod, claims):
            return True
        request = self._request(claims)
        if not isinstance(request, PlacementRequest):
            return False
        return self._now(pod, claims, request, Policy(devices=None), place) is not None

    def _best(
        self,
        pod: Pod,
        claims: tuple[ResourceClaim, ...],
        request: PlacementRequest | None,
        policy: Policy,
        nodes: Fitting,
    ) -> Place | BadClaim | None:
        """The best node, where nobody leaves."""
        if request is None:
            node = self._without_devices(pod, nodes, policy)
            return None if node is None else Place(node, (), waits=False)
        if not nodes.may_have_any():
            return None
        self._claim, self._shares = claims[0].key, 0
        try:
            found = self._placer(policy).place(
                request,
                nodes,
                expired=self._is_expired,
                budget=self.budget,
                loss=self._loss(pod, request, policy),
            )
        except AllocationError as error:
            return BadClaim(pod.key, str(error))
        if isinstance(found, PlacedClaims):
            return self._place(claims, found, waits=False)
        self._noted = pod.key, tuple(_notes(found))
        return None

    def _best_chosen(
        self,
        pod: Pod,
        claims: tuple[ResourceClaim, ...],
        request: PlacementRequest,
        policy: Policy,
        nodes: Fitting,
    ) -> Place | BadClaim | None:
        """The best node where nobody leaves, for a pod whose devices kube-scheduler chooses.

        It does not know what is promised to others, so it could choose that. If it would, the pod
        waits until the others have it.
        """
        if not nodes.may_have_any():
            return None
        self._claim, self._shares = claims[0].key, 0
        first: Place | None = None
        try:
            best = self._placer(policy).best(request, nodes, budget=self.budget)
            for found in islice(best, _TRIED):
                place = self._place(claims, found, waits=True)
                first = first or place
                if not self._has_promised(found.node):
                    return replace(place, waits=False)
                now = self._now(pod, claims, request, policy, place)
                if now is not None:
                    return now
        except AllocationError as error:
            return BadClaim(pod.key, str(error))
        return first

    def _has_promised(self, node: str) -> bool:
        """Whether devices of a node may be promised to pods to come."""
        return node in self._state.occupancy.nominated or node in self._state.occupancy.kept

    def _best_of_left(
        self,
        pod: Pod,
        claims: tuple[ResourceClaim, ...],
        request: PlacementRequest | None,
        policy: Policy,
        nodes: Fitting,
    ) -> Place | BadClaim | None:
        """The best of the nodes that others leave; first where it need not wait for them."""
        if request is None:
            for node in sorted(nodes):
                if self._has_room_now(pod, node):
                    return Place(node, (), waits=False)
            node_later = self._without_devices(pod, nodes, policy)
            return None if node_later is None else Place(node_later, (), waits=True)
        self._claim, self._shares = claims[0].key, 0
        first: Place | None = None
        try:
            loss = self._loss(pod, request, policy)
            best = self._placer(policy).best(request, nodes, budget=self.budget, loss=loss)
            for found in islice(best, _TRIED):
                place = self._place(claims, found, waits=True)
                first = first or place
                now = self._now(pod, claims, request, policy, place)
                if now is not None:
                    return now
        except AllocationError as error:
            return BadClaim(pod.key, str(error))
        return first

    def _now(
        self,
        pod: Pod,
        claims: tuple[ResourceClaim, ...],
        request: PlacementRequest,
        policy: Policy,
        later: Place,
    ) -> Place | None:
        """A place on the same node that is free already, and promised to nobody."""
        node = later.node
        if not self._has_room_now(pod, node):
            return None
        state = self._state
        mark = state.occupancy.mark()
        self._show_present(node, to_scheduler=_is_planned(pod, claims))
        try:
            found = self._placer(policy).place(request, [node], budget=self.budget)
        finally:
            state.occupancy.rollback(mark)
        if not isinstance(found, PlacedClaims):
            return None
        place = self._place(claims, found, waits=False)
        fits = all(state.occupancy.cluster.fits(allocation) for _, allocation in place.allocations)
        return place if fits else None

    def _show_present(self, node: str, *, to_scheduler: bool = False) -> None:
        """Marks the devices of a node as used as they are now; to be rolled back.

        `to_scheduler`: as kube-scheduler will see it when it chooses devices for a pod. What waits
        for its choice, too, has some of the same devices; which ones does not matter.
        """
        state = self._state
        for key in list(state.occupancy.nominated.get(node, ())):
            pod = state.occupancy.pods[key]
            planned = {claim for _, claim in pod.planned} if to_scheduler else ()
            for claim in pod.claims:
                if claim not in planned:
                    state.occupancy.hide(claim)
        for holder in list(state.occupancy.kept.get(node, ())) if to_scheduler else ():
            state.occupancy.hide(holder)
        for key in list(state.occupancy.leaving.get(node, ())):
            for claim in state.occupancy.pods[key].claims:
                state.occupancy.show(claim)

    def _has_room_now(self, pod: Pod, node: str) -> bool:
        """Whether a node has room for a pod, devices aside, without anybody leaving."""
        state = self._state
        if node in self._rules.awaited(pod, self.budget):
            return False
        room = Room(state.occupancy.nodes[node])
        nominated = state.occupancy.nominated.get(node, {})
        for key in (*state.occupancy.on_node.get(node, ()), *state.occupancy.leaving.get(node, ())):
            if key not in nominated and key != pod.key:
                room.take(state.occupancy.pods[key].needs)
        return room.lacks(pod.needs) is None

    def _place(
        self, claims: tuple[ResourceClaim, ...], found: PlacedClaims, *, waits: bool
    ) -> Place:
        keys = (claim.key for claim in claims)
        return Place(found.node, tuple(zip(keys, found.allocated.allocations, strict=True)), waits)

    def candidates(self, pod: Pod, within: frozenset[str] | None) -> frozenset[str]:
        """The nodes that the pod may be on, with the claims that have devices."""
        names = self.suitable(pod.needs)
        if within is not None:
            key = within, names
            known = self._within.get(key)
            if known is None:
                if len(self._within) >= most_sets(len(self._state.occupancy.nodes)):
                    self._within.clear()
                known = self._within[key] = within & names
            names = known
        tied = self._tied_to(pod)
        if tied is not None:
            names &= tied
        return self._rules.allowed(pod, names, self.budget)

    def _tied_to(self, pod: Pod) -> frozenset[str] | None:
        """The nodes where the devices are that its claims have; None for all nodes."""
        tied: frozenset[str] | None = None
        for claim in pod.claims:
            allocation = self._state.occupancy.allocation(claim)
            if allocation is None or allocation.node_selector is None:
                continue
            self.spend(_TIED)
            reached = self._rules.reached(allocation.node_selector)
            tied = reached if tied is None else tied & reached
        return tied

    def _loss(self, pod: Pod, request: PlacementRequest, policy: Policy) -> NodeLoss | None:
        """What the pod costs on each node, if the policy is about that."""
        if policy.nodes is not Order.BALANCED:
            return None
        return self._losses.of(pod.needs, request, self.budget)

    def _without_devices(self, pod: Pod, nodes: Fitting, policy: Policy) -> str | None:
        """The best node for a pod without devices.

        It is one that has none, then (balanced) where devices lose least, then the one that is used
        most (binpack, balanced) or least (spread).
        """
        occupancy = self._state.occupancy
        self.spend(len(nodes) // _NODES_A_STEP)
        sign = -1 if policy.nodes is Order.SPREAD else 1
        costs: Mapping[str, CostOfUse] | None = None
        if policy.nodes is Order.BALANCED:
            costs = self._losses.without_devices(pod.needs, self.budget)
        least: CostOfUse | None = None
        best: tuple[CostOfUse, int, int, str] | None = None
        for name in nodes.names:
            cost = CostOfUse(occupancy.devices.has_any(name), 0) if costs is None else costs[name]
            if (least is not None and cost > least) or name not in nodes:
                continue
            room = occupancy.rooms[name]
            rank = cost, sign * room.cpu, sign * room.memory, name
            if best is None or rank < best:
                least, best = cost, rank
        return None if best is None else best[-1]

    def _open_claims(self, pod: Pod) -> tuple[ResourceClaim, ...] | BadClaim:
        """Its claims without devices."""
        found = []
        for key in pod.claims:
            claim = self._state.occupancy.claims.get(key)
            if claim is None:
                return BadClaim(pod.key, f"claim {key} does not exist")
            if self._is_full(claim, pod):
                return BadClaim(pod.key, f"claim {key} has {_USERS} users, the most there can be")
            queue = claim.metadata.labels.get(QUEUE_LABEL)
            group = None if pod.group is None else self._state.occupancy.groups.get(pod.group)
            if queue is not None and group is not None and queue != group.queue:
                return BadClaim(pod.key, f"claim {key} is for groups of queue {queue}")
            if self._state.occupancy.allocation(key) is None:
                found.append(claim)
        return tuple(found)

    def _is_full(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether a claim has as many users as it can, so that a pod cannot be another one.

        Those count that it is reserved for, and the pods that get their place in this cycle.
        """
        reserved, users = claim.status.reserved_for, self._state.occupancy.users.get(claim.key, {})
        if len(reserved) + len(users) < _USERS:
            return False
        known = {
            f"{claim.metadata.namespace}/{user.name}"
            for user in reserved
            if user.resource == "pods" and not user.api_group
        }
        others = len(reserved) - len(known)
        return pod.key not in known and len(known | users.keys()) + others >= _USERS

    def least_devices(self, pod: Pod) -> int:
        """How many devices a pod needs at least; 0 if that cannot be said."""
        claims = self._open_claims(pod)
        if isinstance(claims, BadClaim) or any(self._shared(claim.key) for claim in claims):
            return 0
        if pod.planned:  # some nodes may serve it without
            needed = set(pod.claims_where(self._state.occupancy.capacity.offered))
            claims = tuple(claim for claim in claims if claim.key in needed)
        request = self._request(claims)
        return request.least_devices if isinstance(request, PlacementRequest) else 0

    def least_parts(self, pod: Pod) -> CardParts:
        """What a pod takes of the cards of its node at least, as far as that is known.

        Raises:
            OutOfStepsError: the attempt has cost more than it may.
        """
        asked = self.request_of(pod, self.budget, elsewhere=False)
        if asked is None:
            return NOTHING
        return self._state.occupancy.devices.least_of(asked.claims, self.budget)

    def request_of(
        self, pod: Pod, budget: StepBudget, *, elsewhere: bool
    ) -> PlacementRequest | None:
        """What the claims ask for that a pod needs on each node and shares with no other.

        Those that have devices do not ask, unless it gets a place `elsewhere`. None if it cannot be
        said, or is nothing.

        Raises:
            OutOfStepsError: the budget does not suffice to check them.
        """
        needed = pod.claims
        if pod.planned:  # some nodes may serve it without
            needed = pod.claims_where(self._state.occupancy.capacity.offered)
        known = self._state.occupancy.claims
        own = tuple(
            known[key]
            for key in needed
            if key in known
            and not self._shared(key)
            and (elsewhere or self._state.occupancy.allocation(key) is None)
        )
        found = self._requests.of(own, budget) if own else None
        return found if isinstance(found, PlacementRequest) else None

    def might_fit(self, pod: Pod, request: PlacementRequest, budget: StepBudget) -> bool:
        """Whether one more pod like this might have a place; false is certain.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        occupancy = self._state.occupancy
        room = Fitting(self.suitable(pod.needs), occupancy.rooms, pod.needs, (), ())
        try:
            found = self._placer(_ANYWHERE).place(request, room, budget=budget)
        except AllocationError:
            return True
        return isinstance(found, PlacedClaims) or found.undecided > 0

    def _shared(self, claim: str) -> bool:
        return self._state.occupancy.referrers(claim) > 1

    def _request(self, claims: tuple[ResourceClaim, ...]) -> PlacementRequest | BadClaim | None:
        return self._requests.of(claims, self.budget) if claims else None

    def _is_own(self, claim: str) -> bool:
        """Whether a claim has no devices yet, and one pod only that refers to it."""
        return (
            self._state.occupancy.allocation(claim) is None
            and self._state.occupancy.referrers(claim) == 1
        )

    def _placer(self, policy: Policy) -> Placer:
        known = self._placers.get(policy)
        if known is None:
            known = self._placers[policy] = Placer(
                self._state.occupancy.cluster,
                policy,
                new_share_id=self._share_id,
                max_steps=_MAX_STEPS,
            )
        return known

    def _share_id(self) -> str:
        self._shares += 1
        return str(uuid.uuid5(_NAMES, f"{self._claim}/{self._shares}"))


def _is_planned(pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    """Whether kube-scheduler is to make one of the claims."""
    if not pod.planned:
        return False
    keys = {claim.key for claim in claims}
    return any(key in keys for _, key in pod.planned)


def _notes(found: Unplaceable) -> Iterator[str]:
    """What is wrong with nodes, and where the search was not finished."""
    yield from found.failed[:_NOTES]
    if len(found.failed) > _NOTES:
        yield f"and {len(found.failed) - _NOTES} more nodes where something is wrong"
    if found.undecided:
        yield f"on {found.undecided} nodes the search for devices reached its limit"

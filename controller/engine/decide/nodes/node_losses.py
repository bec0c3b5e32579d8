"""What a pod costs pods to come on each node (the order `balanced`), kept while nodes change."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import WHOLE
from carina_dra.allocator.request import Alternative
from carina_dra.placement.choice.order import NodeLoss
from carina_dra.placement.choice.placer import PlacementRequest
from carina_dra.price import LEAST, LOSSES
from carina_dra.resource import All, ExactCount
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.nodes.usable import Left, after, loss, possible, usable
from controller.engine.model.pod import PodNeeds
from controller.engine.model.wish import TypicalWish, Wish
from controller.engine.state.devices import NodeGpus
from controller.engine.state.state import State
from controller.engine.state.wishes import Beside

_NO_GPUS: Final = NodeGpus("", 0, 0)
_NOTHING: Final = (0, 0, 0)
_SAMPLES: Final = 32
_NO_ROOM: Final = 1 << 40
"""The loss on a node that has no room."""
_UNIT: Final = 1_000_000
"""Losses are in millionths of a device."""
_REMEMBERED: Final = 50_000
"""States of nodes, and kinds of requests, of which something is remembered."""
_LISTS: Final = 16
"""Wishes without devices of which the losses of all nodes are remembered."""
_BITS: Final = 4
"""How many bits of cpu and memory count: pods that differ in others are alike."""


class _Asked(NamedTuple):
    """How many devices a request asks for, and the largest part of one."""

    devices: int
    part: int
    """In millionths."""
    steps: int
    """What it costs to find that out."""


class CostOfUse(NamedTuple):
    """What a pod without devices costs on a node, the least first."""

    has_devices: bool
    loss: int


class NodeLosses:
    """The losses of the nodes of a state for pods."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: Sequence[TypicalWish] = ()
        self._typical: Sequence[TypicalWish] = ()
        """Without wishes for parts, if no GPU can be had in parts."""
        self._epoch = 0
        """How often it has changed what is typical, or how many devices there are of a model."""
        self._moment = -1
        self._left: dict[str, Left] = {}
        self._gpus: dict[str, tuple[object, NodeGpus]] = {}
        """By node: what it offers, and its GPUs."""
        self._beside: dict[str, tuple[int, int, int]] = {}
        """Of nodes with GPUs: cpu, memory and the number of GPUs."""
        self._totals = (0, 0, 0)
        self._beside_each = Beside.of(*self._totals)
        self._of_model = Counter[str]()
        """How many GPUs there are of each model."""
        self._of_ways = Counter[int]()
        """The number of GPUs by the number of ways to use one."""
        self._of_number = Counter[int]()
        """The number of nodes by the number of GPUs that one has."""
        self._numbers_changed = False
        self._samples: Sequence[str] | None = None
        """A node for each model and number of ways to use its GPUs."""
        self._usable: dict[Left, float] = {}
        self._parts: dict[str, _Asked] = {}
        """By key of a request."""
        self._class_moment = -1
        self._lists: dict[Wish, tuple[int, int, dict[str, CostOfUse]]] = {}
        """Of wishes without devices: the epoch, the moment, and what each node costs."""

    def of(self, needs: PodNeeds, request: PlacementRequest, budget: StepBudget) -> NodeLoss:
        """What such a pod costs on each node.

        Raises:
            OutOfStepsError: the budget does not suffice to find out how much it asks for.
        """
        self._catch_up()
        asked = self._asked(request)
        budget.spend_once(("parts", request.key), asked.steps)
        wish = Wish(_rounded(needs.cpu), _rounded(needs.memory), asked.devices, asked.part)
        loss = partial(self._loss, wish)
        return NodeLoss(self._epoch, wish, loss, partial(loss, breaking=True))

    def without_devices(self, needs: PodNeeds, budget: StepBudget) -> Mapping[str, CostOfUse]:
        """What such a pod costs on each node, if it has no devices.

        Raises:
            OutOfStepsError: the budget does not suffice to find that out for pods of a new kind.
        """
        self._catch_up()
        wish = Wish(_rounded(needs.cpu), _rounded(needs.memory), 0, WHOLE)
        steps = len(self._state.occupancy.nodes) // LOSSES
        was_charged = ("losses", wish) in budget.charged
        budget.spend_once(("losses", wish), steps)
        changes = self._state.occupancy.cluster.changed_nodes
        epoch, moment, known = self._lists.pop(wish, (-1, -1, {}))
        if epoch != self._epoch or not changes.is_known_since(moment):
            if was_charged:
                budget.spend(steps)  # the attempt has more kinds of pods than are remembered
            known = {name: self._cost(wish, name) for name in self._state.occupancy.nodes}
        else:
            for name in changes.since(moment):
                if name in self._state.occupancy.nodes:
                    known[name] = self._cost(wish, name)
                else:
                    known.pop(name, None)
        if len(self._lists) >= _LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[wish] = self._epoch, changes.now, known
        return known

    def _cost(self, wish: Wish, node: str) -> CostOfUse:
        return CostOfUse(self._state.occupancy.devices.has_any(node), self._loss(wish, node))

    def _loss(self, wish: Wish, node: str, *, breaking: bool = False) -> int:
        self._catch_up()
        before = self._left_of(node)
        if before is None:
            return _NO_ROOM
        rest = after(before, wish, breaking=breaking)
        if rest is None:
            return _NO_ROOM
        whole = self._state.occupancy.nodes[node]
        has = Left(whole.cpu, whole.memory, whole.pods, (WHOLE,) * len(before.parts))
        lost = self._usable_of(before) - self._usable_of(rest)
        return round(_UNIT * loss(lost, before, rest, has, self._abundance(node)))

    def _usable_of(self, left: Left) -> float:
        known = self._usable.get(left)
        if known is None:
            if len(self._usable) >= _REMEMBERED:
                self._usable.clear()
            known = self._usable[left] = usable(left, self._typical)
        return known

    def _asked(self, request: PlacementRequest) -> _Asked:
        devices = self._state.occupancy.devices
        if self._class_moment != devices.class_moment:
            self._class_moment = devices.class_moment
            self._parts.clear()
        known = self._parts.get(request.key)
        if known is None:
            if len(self._parts) >= _REMEMBERED:
                self._parts.clear()
            known = self._parts[request.key] = self._count(request)
        return known

    def _count(self, request: PlacementRequest) -> _Asked:
        number, part, steps = 0, 0, 0
        for asked in chain.from_iterable(claim.requests for claim in request.claims):
            first = asked.alternatives[0]
            if first.admin_access:
                continue
            match first.mode:
                case ExactCount(count=count):
                    number += count
                case All():
                    number += 1
            budget = StepBudget(LEAST)
            part = max(part, self._least_part(first, budget))
            steps += budget.spent
        return _Asked(number, part or WHOLE, steps)

    def _least_part(self, wanted: Alternative, budget: StepBudget) -> int:
        """The least part of a GPU that a request gets; a whole one if nobody can say."""
        if self._samples is None:
            first: dict[tuple[str, int], str] = {}
            for node in sorted(self._gpus):
                gpus = self._gpus[node][1]
                first.setdefault((gpus.model, gpus.ways), node)
            self._samples = [first[key] for key in sorted(first)[:_SAMPLES]]
        try:
            found = (
                self._state.occupancy.devices.least_part(wanted, node, budget)
                for node in self._samples
            )
            return min(filter(None, found), default=WHOLE)
        except OutOfStepsError:
            return WHOLE

    def _left_of(self, node: str) -> Left | None:
        """What is free of a node; None if nothing can be allocated there."""
        known = self._left.get(node)
        if known is None:
            state = self._state
            try:
                parts = state.occupancy.devices.free_parts(node)
            except AllocationError:
                return None
            room = state.occupancy.rooms[node]
            known = self._left[node] = Left(room.cpu, room.memory, room.pods, parts)
        return known

    def _abundance(self, node: str) -> float:
        _, gpus = self._gpus[node]
        total = self._of_model.total()
        return self._of_model[gpus.model] / total if total else 1.0

    def _catch_up(self) -> None:
        state = self._state
        changes = state.occupancy.cluster.changed_nodes
        if self._moment == changes.now:
            self._learn()
            return
        if changes.is_known_since(self._moment):
            changed = list(changes.since(self._moment))
        else:
            changed = list(state.occupancy.cluster.nodes.keys() | self._gpus.keys())
        self._moment = changes.now
        for name in changed:
            self._left.pop(name, None)
            self._count_devices(name)
        self._learn()

    def _count_devices(self, node: str) -> None:
        offer = self._state.occupancy.devices.offered(node)
        known = self._gpus.pop(node, None)
        before = _NO_GPUS if known is None else known[1]
        gpus = _NO_GPUS
        if node in self._state.occupancy.nodes:
            gpus = (
                before if known and offer is known[0] else self._state.occupancy.devices.model(node)
            )
            self._gpus[node] = offer, gpus
        self._count_beside(node, gpus.number)
        if before != gpus:
            self._of_model[before.model] -= before.number
            self._of_model[gpus.model] += gpus.number
            self._of_ways[before.ways] -= before.number
            self._of_ways[gpus.ways] += gpus.number
            self._of_number[before.number] -= 1
            self._of_number[gpus.number] += 1
            self._numbers_changed = True
            self._samples = None
            self._parts.clear()
            self._forget()

    def _count_beside(self, node: str, gpus: int) -> None:
        before = self._beside.pop(node, _NOTHING)
        has = self._state.occupancy.nodes.get(node)
        present = (has.cpu, has.memory, gpus) if has is not None and gpus else _NOTHING
        if present != _NOTHING:
            self._beside[node] = present
        if present != before:
            totals = zip(self._totals, before, present, strict=True)
            cpu, memory, number = (total - old + new for total, old, new in totals)
            self._totals = cpu, memory, number
            self._beside_each = Beside.of(*self._totals)

    def _learn(self) -> None:
        """Takes the typical wishes that this cluster can meet."""
        known = self._state.requests.wishes.typical(self._beside_each)
        if known is self._known and not self._numbers_changed:
            return
        self._known, self._numbers_changed = known, False
        in_parts = any(number for ways, number in self._of_ways.items() if ways > 1)
        most = max((gpus for gpus, nodes in self._of_number.items() if nodes > 0), default=0)
        typical = possible(self._known, in_parts=in_parts, most=most)
        if typical != self._typical:
            self._typical = typical
            self._forget()

    def _forget(self) -> None:
        self._epoch += 1
        self._usable.clear()


def _rounded(number: int) -> int:
    """A number of which only the first bits are kept."""
    rest = max(0, number.bit_length() - _BITS)
    return number >> rest << rest

"""Whether those who may leave a node could leave enough for a pod: no search where they could not.

What a pod takes of the cards of a node at least is compared with what is free there, and with what
others could free at most: as many as may move, as much as queues have to give, and nobody who has
to move and has no place elsewhere. All of it is bounded from the safe side, so a no is certain.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.allocator.group import WHOLE
from carina_dra.placement.cluster.card import CardParts, PartKind
from carina_dra.placement.cluster.gpu import GPU, GpuId
from carina_dra.price import LEAST
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.gangs.evicted import EvictedUnits
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Placed, Pod
from controller.engine.model.resource import Gpus
from controller.engine.state.cards import had

_PODS_A_STEP: Final = 2
"""The pods of a node that are looked at in a step."""
_TESTED: Final = 4
"""The most pods of a node of which it is found out whether they have a place elsewhere."""
_SIDE: Final = 1 << 50
"""All that a side has to give, so that resources can be compared."""
_ANY: Final[PartKind] = ("", "")
"""Stands for each kind that is not named."""


@dataclass(frozen=True, slots=True)
class _Leaver:
    """A pod that may leave a node."""

    pod: Pod
    group: Group
    gain: int
    """What it frees at most, in millionths of a card."""
    cost: int
    """What it takes at least of what may be taken."""
    must_move: bool


@dataclass(frozen=True, slots=True)
class _Side:
    """A queue that has to give, with those below it."""

    name: str
    excess: Mapping[int, int]
    """By resource, how much more it has than it may keep; it gives while it has more of any."""

    @property
    def allowance(self) -> int:
        """What it gives at most before the last one who goes: less than all of its excess."""
        return _SIDE - _SIDE // max(self.excess.values())

    def cost(self, amounts: Sequence[int]) -> int:
        """What of its excess amounts are at least."""
        return min(max(0, amounts[at]) * _SIDE // most for at, most in self.excess.items())

    def at_most(self, amount: int) -> int:
        """What of its excess an amount is at most, whatever the resource."""
        return amount * _SIDE // min(self.excess.values()) + 1


class Freeable:
    """Answers for one search, as things are in the trial."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        victims: Victims,
        evicted: EvictedUnits,
        *,
        moves: bool,
    ) -> None:
        """With `moves`, groups whose queue need not give may move."""
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._eligibility = eligibility
        self._victims = victims
        self._evicted = evicted
        self._moves = moves
        self._wanted: dict[str, CardParts] = {}
        """By pod: what it takes of cards at least."""
        self._stuck: tuple[int, dict[tuple[object, ...], bool]] = (-1, {})

    def may_suffice(self, pod: Pod, node: str) -> bool:
        """Whether a pod might get a place on a node if others leave it; false is certain."""
        occupancy = self._state.occupancy
        if occupancy.devices.cards.are_apart(node):
            wanted = CardParts({}, WHOLE * self._places.least_devices(pod))
        else:
            wanted = self._parts_wanted(pod)
        if not (wanted.others or any(wanted.kinds.values())):
            return True
        if occupancy.nodes[node].unschedulable:
            return True  # what requests take at least is not known of its devices
        free = occupancy.devices.cards.free(node)
        kinds = sorted({*wanted.kinds, *free.kinds}) or [_ANY]
        kind = max(kinds, key=lambda found: wanted.of(found) - free.of(found))
        missing = wanted.of(kind) - free.of(kind)
        return missing <= 0 or self._could_free(node, kind, missing)

    def _parts_wanted(self, pod: Pod) -> CardParts:
        known = self._wanted.get(pod.key)
        if known is None:
            known = self._wanted[pod.key] = self._places.least_parts(pod)
        return known

    def _could_free(self, node: str, kind: PartKind, missing: int) -> bool:
        here = self._state.occupancy.on_node.get(node, {})
        self._charge(1 + len(here) // _PODS_A_STEP)
        leavers, allowance = self._leavers(node, kind)
        left = sum(leaver.gain for leaver in leavers)
        if left < missing:
            return False
        if allowance is not None and not _is_within(leavers, missing, allowance):
            return False
        movers = sorted(
            (leaver for leaver in leavers if leaver.must_move and leaver.gain),
            key=lambda leaver: (-leaver.gain, leaver.pod.key),
        )
        groups = {leaver.group.key: leaver.group for leaver in leavers} if movers else {}
        if any(map(self._is_elsewhere, groups.values())):
            return True  # with them, others may get places on their other nodes
        for leaver in movers[:_TESTED]:
            left -= self._withheld(leaver, kind)
            if left < missing:
                return False
        return True

    def _leavers(self, node: str, kind: PartKind) -> tuple[list[_Leaver], int | None]:
        """Who may leave a node, and what they may take together; None for no bound."""
        occupancy, eligibility = self._state.occupancy, self._eligibility
        consolidates = eligibility.action is Action.CONSOLIDATE
        reclaims = eligibility.action is Action.RECLAIM
        sides: dict[str, _Side | None] = {}
        last: dict[tuple[str, str], int] = {}
        leavers = []
        devices = occupancy.devices.cards.devices(node)
        for key in occupancy.on_node.get(node, ()):
            pod = occupancy.pods[key]
            group = None if pod.group is None else occupancy.groups.get(pod.group)
            if group is None or not self._may_leave(pod, group):
                continue
            side = self._side(group.queue, sides) if reclaims else None
            gives = not consolidates and self._gives(group, side)
            if not gives and not consolidates and not (self._moves and group.moves):
                continue
            allocations = [
                found for claim in pod.claims if (found := occupancy.allocation(claim)) is not None
            ]
            gain = had(devices, allocations, kind)
            cost = int(consolidates)
            if gives and side is not None:
                cost = self._cost(pod, side)
                unit = side.name, group.key
                last[unit] = last.get(unit, 0) + cost
            self._victims.see(group)
            leavers.append(_Leaver(pod, group, gain, cost, consolidates or not gives))
        if consolidates:
            most = self._state.settings.consolidation_limit
            return leavers, None if most is None else most - self._evicted.pods
        if not reclaims:
            return leavers, None
        giving = {side.name: side for side in sides.values() if side is not None and side.excess}
        overlap = self._overlap(node) if giving else 0
        allowance = 0
        for name, side in giving.items():
            allowance += side.allowance
            allowance += max((cost for (at, _), cost in last.items() if at == name), default=0)
            allowance += side.at_most(overlap) if overlap else 0
        return leavers, allowance

    def _may_leave(self, pod: Pod, group: Group) -> bool:
        eligibility, trial = self._eligibility, self._trial
        return (
            group.key != eligibility.group.key
            and group.key not in trial.settled
            and (eligibility.may_go(pod) or pod.key in trial.placed)
            and eligibility.may_lose(group)
        )

    def _gives(self, group: Group, side: _Side | None) -> bool:
        """Whether a group may have to give, now or once others have given."""
        reclaims = self._eligibility.action is Action.RECLAIM
        if reclaims and (side is None or side.excess):
            return True
        return self._eligibility.may_take(group)

    def _side(self, queue: str, known: dict[str, _Side | None]) -> _Side | None:
        """The side of a queue with what it has to give; None if nothing bounds that."""
        if queue not in known:
            found = self._eligibility.excess(queue)
            known[queue] = None if found is None else _Side(*found)
        return known[queue]

    def _cost(self, pod: Pod, side: _Side) -> int:
        """What of the excess of its side goes with a pod at least."""
        occupancy = self._state.occupancy
        if not side.excess or not isinstance(pod.state, Placed):
            return 0  # it is charged until it is gone
        hold = occupancy.holds[pod.key]
        amounts = list(occupancy.asking.of_pod(hold.needs))
        for key in pod.claims:
            charge = occupancy.charged(key, hold.queue)
            if charge is None or len(occupancy.users.get(key, ())) != 1:
                continue
            for at, amount in enumerate(charge.amounts):
                amounts[at] += amount
            for gpu in charge.gpus:
                for at in gpu.columns:
                    amounts[at] += gpu.part
        return side.cost(amounts)

    def _overlap(self, node: str) -> int:
        """By how much the parts of GPUs of a node exceed what accounts count of each GPU."""
        occupancy = self._state.occupancy
        if not any(isinstance(resource, Gpus) for resource in occupancy.tree.resources):
            return 0
        parts: dict[GpuId, int] = {}
        for key in (*occupancy.on_node.get(node, ()), *occupancy.leaving.get(node, ())):
            queue = occupancy.queue_of(occupancy.pods[key])
            for claim in occupancy.pods[key].claims:
                charge = occupancy.charged(claim, queue)
                for gpu in () if charge is None else charge.gpus:
                    if gpu.columns:
                        parts[gpu.gpu] = parts.get(gpu.gpu, 0) + gpu.part
        return sum(max(0, part - GPU) for part in parts.values())

    def _is_elsewhere(self, group: Group) -> bool:
        members = self._state.occupancy.members.get(group.key)
        return members is not None and sum(map(len, members.by_set.values())) > 1

    def _withheld(self, leaver: _Leaver, kind: PartKind) -> int:
        """What a pod keeps of a node at least, if it has a place on no other one as things are."""
        moment = self._state.occupancy.cluster.changed_nodes.now
        if self._stuck[0] != moment:
            self._stuck = moment, {}
        budget = StepBudget(LEAST)
        try:
            asked = self._places.request_of(leaver.pod, budget, elsewhere=True)
            if asked is None:
                return 0
            key = asked.key, leaver.pod.needs
            known = self._stuck[1]
            if key not in known:
                known[key] = not self._places.might_fit(leaver.pod, asked, budget)
            if not known[key]:
                return 0
            least = self._state.occupancy.devices.least_of(asked.claims, budget)
            return min(leaver.gain, least.of(kind))
        except OutOfStepsError:
            return 0
        finally:
            self._places.budget.extend(budget.spent)

    def _charge(self, steps: int) -> None:
        if self._eligibility.action is Action.RECLAIM:
            # Whoever has borrowed chooses how many pods there are; that must not void a guarantee.
            self._places.budget.extend(steps)
        else:
            self._places.spend(steps)


def _is_within(leavers: Iterable[_Leaver], missing: int, allowance: int) -> bool:
    """Whether what is missing might be freed at no more than a cost, parts of pods allowed."""
    worth = sorted(
        (leaver for leaver in leavers if leaver.gain),
        key=lambda leaver: (leaver.cost / leaver.gain, leaver.pod.key),
    )
    spent = 0
    for leaver in worth:
        if leaver.gain >= missing:
            return spent + leaver.cost * missing // leaver.gain <= allowance
        missing -= leaver.gain
        spent += leaver.cost
        if spent > allowance:
            return False
    return missing <= 0

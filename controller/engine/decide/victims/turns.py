"""Whether queues may give what a plan takes for good, and in which order they do."""

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.gangs.placement_unit import has_active
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.disturbance import FAIR, FairGiving
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action

_EVICTION: Final = 10
"""Steps for the trial to evict a pod."""
_GROUPS_A_STEP: Final = 4
"""So many groups are asked in a step whether they have to give."""
_TRIED: Final = 4
"""So many units are tried as the next one to go."""
_FEW: Final = 6
"""Of more units that are left, only the first one."""
_Order: TypeAlias = tuple[FairGiving, tuple[EvictionUnit, ...]]


class Turns:
    """The queue that has most beyond its share gives first, compared again after each victim."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        victims: Victims,
        givers: Collection[Group],
    ) -> None:
        """`givers` are all groups that could give."""
        self._trial = trial
        self._state = trial.state
        self._eligibility = eligibility
        self._victims = victims
        self._givers = givers
        self._known: dict[frozenset[str], _Order | None] = {}
        """By the pods that go."""

    def order(self, units: Sequence[EvictionUnit]) -> _Order | None:
        """The fairest order in which units go; None if a queue need not give."""
        if self._eligibility.action is not Action.RECLAIM:
            return FAIR, tuple(sorted(units, key=self._rank))
        key = frozenset(pod.key for unit in units for pod in unit.pods)
        if key not in self._known:
            self._known[key] = self._order(units, frozenset(range(len(units))), {})
        return self._known[key]

    def _rank(self, unit: EvictionUnit) -> tuple[object, ...]:
        falls, _, *others = self._victims.rank(unit.group)
        return falls, *others

    def _order(
        self,
        units: Sequence[EvictionUnit],
        left: frozenset[int],
        known: dict[frozenset[int], _Order | None],
    ) -> _Order | None:
        """The best order of those that are left, as things are in the trial; `known` are others."""
        if not left:
            is_below = any(
                self._eligibility.is_below(queue) for queue in {unit.group.queue for unit in units}
            )
            return FairGiving(0, is_below), ()
        if left in known:
            return known[left]
        self._trial.places.spend(1 + (len(left) + len(self._givers)) // _GROUPS_A_STEP)
        giving = {
            group.queue
            for group in self._givers
            if has_active(self._state.occupancy, group.key)
            and self._eligibility.may_take_from(group.queue)
        }
        ranked = sorted(
            (self._eligibility.turn(units[at].group.queue, giving), self._rank(units[at]), at)
            for at in left
            if self._eligibility.may_take(units[at].group)
        )
        best: _Order | None = None
        for turn, _, at in ranked[: _TRIED if len(left) <= _FEW else 1]:
            mark = self._state.occupancy.mark()
            for pod in units[at].pods:
                self._trial.places.spend(_EVICTION)
                self._trial.evict(pod, self._eligibility.action, self._eligibility.group.key)
            rest = self._order(units, left - {at}, known)
            self._state.occupancy.rollback(mark)
            if rest is None:
                continue
            fairness = rest[0]._replace(turn=max(turn, rest[0].turn))
            if best is None or fairness < best[0]:
                best = fairness, (units[at], *rest[1])
            if best[0].turn <= turn:
                break
        known[left] = best
        return best

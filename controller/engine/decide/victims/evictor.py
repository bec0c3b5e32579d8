"""Evicts pods on trial for one group, and says what has become of them."""

from collections.abc import Iterator
from typing import Final

from controller.engine.decide.gangs.evicted import EvictedUnits, EvictionUnit
from controller.engine.decide.gangs.gang import Take
from controller.engine.decide.gangs.placement_unit import is_satisfied
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.guarded import Guarded
from controller.engine.decide.victims.move import move
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting

EVICTION: Final = 10
"""Steps for the trial to evict a pod."""


class Evictor:
    """Evicts by one action, within disruption budgets and the limit of moves."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        guarded: Guarded,
        past_budgets: frozenset[str],
    ) -> None:
        """Budgets of the queues `past_budgets` are not respected for what these have borrowed."""
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._eligibility = eligibility
        self._action = eligibility.action
        self._group = eligibility.group
        self._guarded = guarded
        self.past_budgets = past_budgets
        """The queues of which budgets are not respected any more."""
        self.evicted = EvictedUnits()
        """Who has been evicted, in this order."""
        self.refused_by_budgets: set[str] = set()
        """The queues of which budgets have refused an eviction."""
        self.refused_for_a_time: set[str] = set()
        """Those of them of which budgets are respected for a time only."""

    def undo(self, mark: int) -> None:
        """Takes back everything since a mark at which nobody had been evicted for the group."""
        self._state.occupancy.rollback(mark)
        self.evicted.cut(0)

    def evict(self, unit: EvictionUnit) -> bool:
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
            grace = self._guarded.grace(self._group, queue)
        mark = self._state.occupancy.mark()
        self._places.steps += len(unit.pods)  # about as much work as a search
        price = EVICTION * len(unit.pods)
        if self._action is Action.RECLAIM:
            # Whoever has borrowed chooses how many pods have to go; that must not void a guarantee.
            self._places.budget.extend(price)
        else:
            self._places.spend(price)
        for pod in unit.pods:
            is_new = pod.key not in self._trial.placed
            past_budgets = is_new and not self._state.occupancy.disrupt(pod)
            if past_budgets:
                if not is_overdue:
                    self._note_budgets(unit)
                    self._state.occupancy.rollback(mark)
                    return False
                self._state.occupancy.disrupt_anyway(pod)
            self._trial.evict(
                pod, self._action, self._group.key, grace=grace, past_budgets=past_budgets
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

    def move(self, group: Group, *, all_pods: bool, take: Take | None = None) -> bool:
        """Gives the evicted pods of a group another place; `take` says where."""
        evicted = {
            pod.key
            for pod in self.evicted.pods_of(group)
            if pod.key not in self._state.occupancy.holds and not isinstance(pod.state, Evicting)
        }
        return move(self._trial, group, evicted, all_pods=all_pods, take=take)

    def size(self, group: Group) -> int:
        """How many devices the largest of the evicted pods of a group had."""
        pods = self.evicted.pods_of(group)
        return max(map(self._state.occupancy.device_count_before, pods), default=0)

    def is_all_moved(self, group: Group) -> bool:
        """Whether all evicted pods of a group have another place."""
        return all(pod.key in self._state.occupancy.holds for pod in self.evicted.pods_of(group))

    def gone(self) -> Iterator[EvictionUnit]:
        """Who has no other place: groups that fall, and single pods of others."""
        for group in self.evicted.groups():
            pods = [
                pod
                for pod in self.evicted.pods_of(group)
                if pod.key not in self._state.occupancy.holds
            ]
            if pods and not is_satisfied(self._state.occupancy, group):
                yield EvictionUnit(group, tuple(pods), must_move=False)
            else:
                yield from (EvictionUnit(group, (pod,), must_move=False) for pod in pods)

    def someone_leaves(self) -> bool:
        """Whether a pod has to go that runs, and not only pods placed in this cycle."""
        return any(self._trial.is_evicted(pod) for unit in self.evicted for pod in unit.pods)

    def displaced(self) -> list[str]:
        """The groups that only had a place in this plan, and have lost it."""
        evicted, holds = self._trial.evictions, self._state.occupancy.holds
        return [
            unit.group.key
            for unit in self.evicted
            if any(pod.key not in evicted and pod.key not in holds for pod in unit.pods)
        ]

    def moved(self) -> list[str]:
        """The groups with pods that leave, and have another place."""
        holds = self._state.occupancy.holds
        return list(
            {
                unit.group.key: None
                for unit in self.evicted
                if any(self._trial.is_evicted(pod) and pod.key in holds for pod in unit.pods)
            }
        )

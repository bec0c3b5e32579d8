"""Disruption budgets that guard what a queue has borrowed, and until when they are respected.

A budget is respected for as long as the `evictionGrace` of its queue, since it has first refused a
group of the queue that asks. The clock belongs to the two queues: new budgets, new pods, and groups
that are created again do not set it back. It ends when no group that was refused has waited for as
long as `evictionGrace`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.model.group import Group
from controller.engine.model.plan import BudgetClock
from controller.engine.model.queue import LEAST_GRACE, RespectBudgets
from controller.engine.state.state import State


@dataclass(slots=True)
class _Running:
    """A clock that groups are added to, however many there are."""

    since: float
    groups: set[str]
    idle: float | None

    def value(self) -> BudgetClock:
        return BudgetClock(self.since, tuple(sorted(self.groups)), self.idle)


class Guarded:
    """Which queues have been refused by budgets, of which queues, and since when."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._clocks: dict[str, dict[str, _Running]] = {}
        for asker, clocks in state.memory.budget_refusals.items():
            kept = {giver: self._now(giver, clock) for giver, clock in clocks.items()}
            self._clocks[asker] = {giver: one for giver, one in kept.items() if one is not None}

    def _now(self, giver: str, clock: BudgetClock) -> "_Running | None":
        """A clock as it is now; None if it has ended."""
        state = self._state
        groups = {key for key in clock.groups if key in state.waiting}
        if groups:
            return _Running(clock.since, groups, clock.idle)
        idle = state.now if clock.idle is None else clock.idle
        if idle + state.occupancy.tree.eviction_grace(giver) <= state.now:
            return None
        return _Running(clock.since, groups, idle)

    @property
    def clocks(self) -> Mapping[str, Mapping[str, BudgetClock]]:
        """By queue that asks, and queue that has to give."""
        return {
            asker: {giver: clock.value() for giver, clock in sorted(clocks.items())}
            for asker, clocks in sorted(self._clocks.items())
            if clocks
        }

    @property
    def wake(self) -> float | None:
        """When the next budgets are respected no longer, as a Unix time; None for never."""
        ends = (
            end
            for asker, clocks in self._clocks.items()
            for giver, end in self._ends(asker)
            if clocks[giver].groups
        )
        return min((end for end in ends if end > self._state.now), default=None)

    def _ends(self, asker: str) -> Iterator[tuple[str, float]]:
        """Until when budgets are respected, by queue that has to give."""
        for giver, clock in self._clocks.get(asker, {}).items():
            yield giver, clock.since + self._state.occupancy.tree.eviction_grace(giver)

    def grace(self, group: Group, giver: str) -> float:
        """The longest grace period of pods of a queue that are reclaimed for a group, in seconds.

        What budgets have taken of the `evictionGrace` is not given a second time.
        """
        whole = self._state.occupancy.tree.eviction_grace(giver)
        end = dict(self._ends(group.queue)).get(giver)
        return whole if end is None else min(whole, max(end - self._state.now, LEAST_GRACE))

    def is_borrowed(self, victim: Group, eligibility: Eligibility) -> bool:
        """Whether budgets guard the pods of a group for a time only."""
        respect = self._state.occupancy.tree.respect_budgets(victim.queue)
        return respect is RespectBudgets.WITHIN_QUOTA and eligibility.has_borrowed(victim)

    def refuse(self, group: Group, queues: Iterable[str]) -> None:
        """Records that budgets of queues have refused a group."""
        clocks = self._clocks.setdefault(group.queue, {})
        for queue in queues:
            clock = clocks.setdefault(queue, _Running(self._state.now, set(), None))
            if group.key not in clock.groups:
                clock.groups.add(group.key)
                clock.idle = None

    def overdue(self, group: Group) -> frozenset[str]:
        """The queues of which budgets have refused the queue of a group for too long."""
        now = self._state.now
        if group.queue not in self._clocks:
            return frozenset()
        return frozenset(giver for giver, end in self._ends(group.queue) if end <= now)

"""Keeps work for one group from harming others: where it fails, it is undone.

The group is then set aside: it is not asked for a while, which is longer each time, unless it
changes.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from traceback import format_exception
from typing import Final, TypeAlias, TypeVar

from carina_dra.step_budget import GaveWayError, OutOfStepsError, StepBudget
from controller.engine.decide.gangs.attempt import Attempt, Enough, Outcome, Refused
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.decision_time import DecisionTime
from controller.engine.model.group import Group
from controller.engine.model.plan import Failure, SetAsideGroup
from controller.engine.model.reason import DecisionFailed, Reason, Undecided

T = TypeVar("T")
HasNewcomers: TypeAlias = Callable[[Container[str]], bool]
"""Says whether pods wait that the state has not seen yet, in other namespaces than these."""

_FIRST: Final = 10.0
"""Seconds for which a group is set aside the first time; they double each time."""
_LONGEST: Final = 900.0
_FIRST_UNDECIDED: Final = 3.0
"""The least that an undecided group waits the first time, in seconds."""
_STEPS_A_SECOND: Final = 5_000
"""An undecided group waits a second for as many steps: about 20 times what it has cost."""
_FIRST_PART: Final = 4
"""The first attempt of a group may cost this part of the limit: half a second on 50 nodes, if it
shares a core. Others wait for its end."""
_GIVES_WAY: Final = 300.0
"""Seconds after which attempts for a group give way no more at all, so that it is decided."""
_GIVES_WAY_STEPS: Final = 1_000
"""An attempt gives way for a second for each of as many steps that it may cost: 100 times as long
as it takes. Otherwise who always has pods that come could keep all others from ever being decided
that asked expensively once."""
_FRAMES: Final = 12
"""How many calls of a failure are shown, the innermost ones."""


def nobody(_: Container[str]) -> bool:
    """Nobody comes, where time does not matter."""
    return False


class Isolation:
    """The work of one cycle, group by group, and the groups that are set aside."""

    def __init__(self, trial: Trial, newcomers: HasNewcomers = nobody) -> None:
        self._trial = trial
        self._newcomers = newcomers
        self.next_chunks = trial.next_chunks
        self._state = trial.state
        self.set_aside = {
            key: known
            for key, known in self._state.memory.set_aside.items()
            if known.until > self._state.now and key in self._state.occupancy.groups
        }
        """By group: those that are not asked now."""
        self.failures: list[Failure] = []
        self.undecided: list[str] = []
        """The groups of which an attempt has cost too much."""
        settings = self._state.settings
        nodes = len(self._state.occupancy.nodes)
        self.gave_way: set[str] = set()
        """The groups of which an attempt was given up in this cycle."""
        self._gives_way_since = {
            key: since
            for key, since in self._state.memory.gives_way_since.items()
            if key in self._state.waiting
        }
        self.limit = settings.attempt_steps + settings.attempt_steps_per_node * nodes
        """What an attempt for a group without pods may cost, in steps."""
        self.first_limit = self.limit // _FIRST_PART
        """What one may cost of a group of which none has been undecided."""
        self._limits = {
            key: limit
            for key, limit in self._state.memory.attempt_limits.items()
            if key in self._state.waiting
        }
        memory = self._state.memory
        self.time = DecisionTime(
            memory.debts, self.limit, self.first_limit, memory.asked_late, self._state.now
        )

    def attempt(self, group: Group, attempt: Attempt) -> Outcome:
        """Tries what may give a group what it asks for next.

        An attempt of who asks expensively gives way to others who come meanwhile.
        """
        limit = self.limit_of(group)
        since = self._gives_way_since.get(group.key, self._state.now)
        until = since + min(limit / _GIVES_WAY_STEPS, _GIVES_WAY)
        waits = self.time.is_late(group) and self._state.now < until
        budget = StepBudget(limit, self._somebody_comes if waits else None)
        outcome = self._attempt(group, attempt, budget)
        if group.key in self.gave_way:
            self._gives_way_since[group.key] = since
            return Enough()
        self._gives_way_since.pop(group.key, None)
        return Refused(self.reason(group)) if outcome is None else outcome

    def limit_of(self, group: Group) -> int:
        """What an attempt for a group may cost now, in steps."""
        return min(self._most(group), self._limits.get(group.key, self.first_limit))

    def _attempt(self, group: Group, attempt: Attempt, budget: StepBudget) -> Outcome | None:
        over = partial(self._leave_undecided, group, budget)
        return self._charged(group, partial(attempt, group), budget, over)

    def _somebody_comes(self) -> bool:
        return self._newcomers(self.time.late_namespaces)

    def gives_way_since(self, waiting: Container[str]) -> Mapping[str, float]:
        """Since when attempts for groups have given way, that still wait."""
        return {key: at for key, at in sorted(self._gives_way_since.items()) if key in waiting}

    def run_within_limit(self, group: Group, work: Callable[[], T]) -> T | None:
        """Does some work for a group, which is charged for it; None if it has come to nothing.

        Then it has failed, or would cost more steps than the highest limit of the group, and is
        undone.
        """
        budget = StepBudget(self._most(group))
        return self._charged(group, work, budget, partial(self._leave_undecided, group, budget))

    def run_for_others(self, group: Group, work: Callable[[], T]) -> T | None:
        """Does some work that concerns others, for which a group is charged; None as above.

        The group is not set aside if it costs too much.
        """
        return self._charged(group, work, StepBudget(self.limit), lambda: None)

    def _charged(
        self, group: Group, work: Callable[[], T], budget: StepBudget, over: Callable[[], None]
    ) -> T | None:
        """Does some work for a group within a budget; `over` is told that it does not suffice."""
        places, mark = self._trial.places, self._state.occupancy.mark()
        before, places.budget = places.budget, budget
        try:
            return work()
        except OutOfStepsError:
            self._state.occupancy.rollback(mark)
            over()
            return None
        except GaveWayError:
            self._state.occupancy.rollback(mark)
            self.gave_way.add(group.key)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this group only
            self._undo(group, mark, error)
            return None
        finally:
            places.budget = before
            self.time.charge(group, budget.spent)

    def run(self, group: Group, work: Callable[[], T]) -> T | None:
        """Does some work for a group; None if it has failed and is undone."""
        mark = self._state.occupancy.mark()
        try:
            return work()
        except (OutOfStepsError, GaveWayError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this group only
            self._undo(group, mark, error)
            return None

    def _undo(self, group: Group, mark: int, error: Exception) -> None:
        """Takes back what has failed."""
        self._state.occupancy.rollback(mark)
        self._trial.places.forget()
        self._fail(group, error)

    def reason(self, group: Group) -> Reason:
        """Why a group has been set aside in this cycle."""
        return self.set_aside[group.key].reasons[-1]

    def remembered(
        self, waiting: Mapping[str, tuple[Reason, ...]], not_asked: Iterable[str]
    ) -> Mapping[str, SetAsideGroup]:
        """The groups that the next cycles do not ask, with the reasons for which they wait.

        Also those that could be asked again, but were `not_asked` in this cycle.
        """
        known = self._state.memory.set_aside
        due = {key: known[key] for key in sorted(not_asked) if key in known}
        return due | {
            key: replace(group, reasons=waiting.get(key, group.reasons))
            for key, group in self.set_aside.items()
        }

    def attempt_limits(self, waiting: Container[str]) -> Mapping[str, int]:
        """What the next attempts of groups may cost that still wait, if more than a first one."""
        return {key: limit for key, limit in sorted(self._limits.items()) if key in waiting}

    def _fail(self, group: Group, error: Exception) -> None:
        if group.key in self.set_aside:
            return  # its time is not over
        times = self._times(group)
        until = self._until(times, _FIRST)
        reason = DecisionFailed(type(error).__name__, until)
        self.set_aside[group.key] = SetAsideGroup(until, times, (reason,))
        text = "".join(format_exception(error, limit=-_FRAMES))
        self.failures.append(Failure(group.key, times, text))

    def _leave_undecided(self, group: Group, budget: StepBudget) -> None:
        self._limits[group.key] = min(self._most(group), 2 * budget.limit)
        if group.key in self.set_aside:
            return
        steps = budget.spent
        times = self._times(group)
        until = self._until(times, max(_FIRST_UNDECIDED, steps / _STEPS_A_SECOND))
        reason = Undecided(steps, f"pod {self._trial.places.looked_for}", until)
        self.set_aside[group.key] = SetAsideGroup(until, times, (reason,))
        self.undecided.append(group.key)
        self.time.overdraw(group)

    def _most(self, group: Group) -> int:
        """The most that an attempt for a group may cost, in steps."""
        members = self._state.occupancy.members.get(group.key)
        pods = 0 if members is None else sum(map(len, members.pending.values()))
        return self.limit + self._state.settings.attempt_steps_per_pod * pods

    def _times(self, group: Group) -> int:
        """How often in a row a group is set aside with this time."""
        known = self._state.memory.set_aside.get(group.key)
        return 1 if known is None else known.times + 1

    def _until(self, times: int, first: float) -> float:
        wait: float = min(first * 2 ** min(times - 1, 10), _LONGEST)
        return self._state.now + wait


def next_end(set_aside: Mapping[str, SetAsideGroup], now: float) -> float | None:
    """When the next group is asked again that is set aside, as a Unix time; None for never."""
    return min((one.until for one in set_aside.values() if one.until > now), default=None)


def earlier(first: float | None, second: float | None) -> float | None:
    """The earlier of two times; None is never."""
    return min((time for time in (first, second) if time is not None), default=None)

"""Runs a vector: rounds of deciding and settling, and what is compared of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from controller.engine.model.plan import Plan
from controller.engine.model.snapshot import Snapshot
from tests.conformance.scheduling.comparison import Difference, differences, outcome_of
from tests.conformance.scheduling.devices import Gpus
from tests.conformance.scheduling.occupancy import violations
from tests.conformance.scheduling.state import (
    State,
    pod_key,
    settle,
    state_after,
    state_at_start,
    tasks_of,
)
from tests.conformance.scheduling.translation import snapshot_of
from tests.conformance.scheduling.vector import Vector

Decide: TypeAlias = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class Round:
    """A decision, and the states before and after it; nothing is settled in `after`."""

    before: State
    plan: Plan
    after: State


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a vector."""

    rounds: tuple[Round, ...]
    unsound: tuple[str, ...]
    """What a plan did that no plan may do, such as to allocate a device twice."""
    differences: tuple[Difference, ...]
    """What is not as expected."""

    @property
    def passed(self) -> bool:
        """Whether it is as expected."""
        return not (self.unsound or self.differences)


def run(vector: Vector, decide: Decide) -> Result:
    """Runs a vector until something is wrong, or nothing is left to compare.

    After the rounds that it takes to come to the expected state, that state must be kept: the
    vector says for how many rounds.

    Raises:
        VectorError: the vector asks for what the engine has no value for.
    """
    gpus = Gpus.of(vector)
    state = state_at_start(vector, gpus)
    rounds: list[Round] = []
    for number in range(1, vector.run.rounds_until + vector.run.rounds_after + 1):
        plan = decide(snapshot_of(vector, gpus, state))
        unsound = violations(vector, gpus, state, plan)
        after = state if unsound else state_after(vector, state, plan)
        rounds.append(Round(state, plan, after))
        if unsound:
            return Result(tuple(rounds), tuple(unsound), ())
        settled = settle(vector, after)
        found: list[Difference] = []
        if number == vector.run.rounds_until:
            at_once = vector.run.compare == "after-actions"
            found = differences(vector, gpus, after if at_once else settled)
        elif number > vector.run.rounds_until:
            found = _moves(vector, plan, number) or differences(vector, gpus, after)
        if found:
            return Result(tuple(rounds), (), tuple(found))
        state = settled
    return Result(tuple(rounds), (), ())


def _moves(vector: Vector, plan: Plan, number: int) -> list[Difference]:
    """Decisions about constrained tasks, after the state that is expected of them has come."""
    constrained = {
        pod_key(job, task): task.name
        for job, task in tasks_of(vector)
        if outcome_of(vector, job, task) is not None
    }
    decided = (
        *(("starts", step.pod) for step in plan.starts),
        *(("is nominated", step.pod) for step in plan.nominations),
        *(("is evicted", step.pod) for step in plan.evictions),
    )
    return [
        Difference(constrained[pod], "nothing more to be decided", f"{what} in round {number}")
        for what, pod in decided
        if pod in constrained
    ]

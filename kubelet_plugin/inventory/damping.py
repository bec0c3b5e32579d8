"""When a GPU that failed and answers again is back in service: damping, as of a flapping route.

A problem counts at once. It is over when the GPU has answered for a while without a break, and that
takes twice as long after each relapse. So a GPU that answers now and then stays out of service, and
its slices are not written again at each change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import HEALTHY, GpuProblems, is_hang, since
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
)


@dataclass(frozen=True, slots=True)
class Damping:
    """How long a GPU has to answer, in seconds."""

    first: float = 60.0
    """After the first fault. A first hang is over at once, because it has lasted long."""
    longest: float = 1800.0
    """At most. After this time without a fault, earlier ones no longer count."""

    def wait(self, problems: GpuProblems, faults: int) -> float:
        """Returns how long a GPU has to answer after its n-th fault in a row."""
        if faults == 1 and all(is_hang(problem) for problem in problems):
            return 0.0
        doublings = min(faults - 1, 32)
        return min(self.first * 2.0**doublings, max(self.first, self.longest))


@dataclass(frozen=True, slots=True)
class Failing:
    """The GPU did not answer at the last read."""

    problems: GpuProblems
    faults: int
    """How often it has failed in a row, with this time."""


@dataclass(frozen=True, slots=True)
class Recovering:
    """The GPU answers, and not yet for long enough."""

    problems: GpuProblems
    faults: int
    answers_since: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """The GPU is back in service."""

    faults: int
    at: float


Trouble: TypeAlias = Failing | Recovering | Recovered
Troubles: TypeAlias = Mapping[str, Trouble]
"""By the UUID of the GPU. Those that have not failed for long have none."""


def damped(
    inventory: Inventory, troubles: Troubles, now: float, damping: Damping
) -> tuple[Inventory, Troubles]:
    """Returns the inventory with the problems that are not over yet, and what to remember.

    `troubles` is what was remembered after the previous read; `now` is monotonic, in seconds.
    """
    match inventory:
        case DriverReady(gpus):
            found: dict[str, Trouble] = {}
            for observed in gpus:
                uuid, problems = observed.gpu.uuid, observed.state.problems
                trouble = _next(troubles.get(uuid), problems, now, damping)
                if trouble is not None:
                    found[uuid] = trouble
            seen = tuple(_with(observed, found.get(observed.gpu.uuid)) for observed in gpus)
            return replace(inventory, gpus=seen), found
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            return inventory, troubles
    assert_never(inventory)


def _next(
    trouble: Trouble | None, problems: GpuProblems, now: float, damping: Damping
) -> Trouble | None:
    if problems:
        return _failing(trouble, problems)
    match trouble:
        case None:
            return None
        case Failing(before, faults):
            return _answering(Recovering(before, faults, now), now, damping)
        case Recovering():
            return _answering(trouble, now, damping)
        case Recovered(_, at):
            return None if now - at >= damping.longest else trouble
    assert_never(trouble)


def _failing(trouble: Trouble | None, problems: GpuProblems) -> Failing:
    """Returns the trouble after a fault. A problem of another kind stays beside the new one."""
    match trouble:
        case None:
            return Failing(problems, 1)
        case Recovered(faults):
            return Failing(problems, faults + 1)
        case Failing(before, faults) | Recovering(before, faults):
            dated = {type(problem): since(problem, before) for problem in problems}
            others = (problem for problem in before if type(problem) not in dated)
            return Failing(frozenset((*dated.values(), *others)), faults)
    assert_never(trouble)


def _answering(trouble: Recovering, now: float, damping: Damping) -> Recovering | Recovered:
    if now - trouble.answers_since < damping.wait(trouble.problems, trouble.faults):
        return trouble
    return Recovered(trouble.faults, now)


def _with(observed: ObservedGpu, trouble: Trouble | None) -> ObservedGpu:
    match trouble:
        case Failing(problems) | Recovering(problems):
            pass
        case None | Recovered():
            problems = HEALTHY
        case _:
            assert_never(trouble)
    return replace(observed, state=replace(observed.state, problems=problems))

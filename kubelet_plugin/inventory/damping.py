"""When a GPU that failed and answers again is back in service: damping, as of a flapping route.

A problem counts at once. It is over when the GPU has been without it for a while without a break,
and that takes twice as long after each relapse. So a GPU that answers now and then stays out of
service, and its slices are not written again at each change. Each problem is over by itself, but
those of a GPU that does not answer count as one, since lost and unreadable take turns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import (
    HEALTHY,
    GpuProblem,
    GpuProblems,
    ProblemIdentity,
    identity,
    is_hang,
    is_unanswered,
    since,
)
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
)


@dataclass(frozen=True, slots=True)
class Damping:
    """How long a GPU has to be without a problem, in seconds."""

    first: float = 60.0
    """After the first fault. A first hang is over at once, because it has lasted long."""
    longest: float = 1800.0
    """At most. After this time without a fault, earlier ones no longer count."""

    def wait(self, problems: GpuProblems, faults: int) -> float:
        """Returns how long a GPU has to be well after its n-th fault in a row."""
        if faults == 1 and all(is_hang(problem) for problem in problems):
            return 0.0
        doublings = min(faults - 1, 32)
        return min(self.first * 2.0**doublings, max(self.first, self.longest))


@dataclass(frozen=True, slots=True)
class Failing:
    """The GPU had the problem at the last read."""

    problems: GpuProblems
    faults: int
    """How often it has failed in a row, with this time."""


@dataclass(frozen=True, slots=True)
class Recovering:
    """The GPU is well, and not yet for long enough."""

    problems: GpuProblems
    faults: int
    answers_since: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """The GPU is back in service."""

    faults: int
    at: float


Trouble: TypeAlias = Failing | Recovering | Recovered
TroubleKey: TypeAlias = tuple[str, ProblemIdentity]
"""UUID of the GPU, and what is wrong."""
Troubles: TypeAlias = Mapping[TroubleKey, Trouble]
"""What has not failed for long has none."""
_SILENCE: Final[ProblemIdentity] = ("unanswered", None)


def damped(
    inventory: Inventory, troubles: Troubles, now: float, damping: Damping
) -> tuple[Inventory, Troubles]:
    """Returns the inventory with the problems that are not over yet, and what to remember.

    `troubles` is what was remembered after the previous read; `now` is in seconds. If it goes back,
    waits are longer, and are over in the end. A GPU that is gone, perhaps for a moment, has as long
    a wait as one that is well.
    """
    match inventory:
        case DriverReady(gpus):
            found: dict[TroubleKey, Trouble] = {}
            of_gpus = _by_gpu(troubles)
            seen = []
            for observed in gpus:
                known = of_gpus.get(observed.gpu.uuid, {})
                of_gpu = _troubles(known, observed.state.problems, now, damping)
                found |= {(observed.gpu.uuid, key): trouble for key, trouble in of_gpu.items()}
                counts = _with(observed, of_gpu.values())
                wait = _flapping(of_gpu.values(), damping)
                seen.append(replace(counts, state=replace(counts.state, flapping=wait)))
            for uuid in of_gpus.keys() - {observed.gpu.uuid for observed in gpus}:
                of_gpu = _troubles(of_gpus[uuid], HEALTHY, now, damping)
                found |= {(uuid, key): trouble for key, trouble in of_gpu.items()}
            return replace(inventory, gpus=tuple(seen)), found
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            return inventory, troubles
    assert_never(inventory)


def counted(inventory: DriverReady, troubles: Troubles) -> DriverReady:
    """Returns the inventory with the problems that counted when `troubles` was remembered."""
    of_gpus = _by_gpu(troubles)
    gpus = (
        _with(observed, of_gpus.get(observed.gpu.uuid, {}).values()) for observed in inventory.gpus
    )
    return replace(inventory, gpus=tuple(gpus))


def _by_gpu(troubles: Troubles) -> dict[str, dict[ProblemIdentity, Trouble]]:
    of_gpus: dict[str, dict[ProblemIdentity, Trouble]] = {}
    for (uuid, key), trouble in troubles.items():
        of_gpus.setdefault(uuid, {})[key] = trouble
    return of_gpus


def _troubles(
    known: Mapping[ProblemIdentity, Trouble], problems: GpuProblems, now: float, damping: Damping
) -> dict[ProblemIdentity, Trouble]:
    """Returns the troubles of one GPU after a read."""
    wrong: dict[ProblemIdentity, set[GpuProblem]] = {}
    for problem in problems:
        key = _SILENCE if is_unanswered(problem) else identity(problem)
        wrong.setdefault(key, set()).add(problem)
    after = {
        key: _next(known.get(key), frozenset(wrong.get(key, ())), now, damping)
        for key in {**known, **wrong}
    }
    return {key: trouble for key, trouble in after.items() if trouble is not None}


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
            return None if now - at >= damping.longest else replace(trouble, at=min(at, now))
    assert_never(trouble)


def _failing(trouble: Trouble | None, problems: GpuProblems) -> Failing:
    """Returns the trouble after a fault. A problem of another kind stays beside the new one."""
    match trouble:
        case None:
            return Failing(problems, 1)
        case Recovered(faults):
            return Failing(problems, faults + 1)
        case Failing(before, faults) | Recovering(before, faults):
            dated = {identity(problem): since(problem, before) for problem in problems}
            others = (problem for problem in before if identity(problem) not in dated)
            return Failing(frozenset((*dated.values(), *others)), faults)
    assert_never(trouble)


def _answering(trouble: Recovering, now: float, damping: Damping) -> Recovering | Recovered:
    trouble = replace(trouble, answers_since=min(trouble.answers_since, now))
    if now - trouble.answers_since < damping.wait(trouble.problems, trouble.faults):
        return trouble
    return Recovered(trouble.faults, now)


def _with(observed: ObservedGpu, troubles: Iterable[Trouble]) -> ObservedGpu:
    problems = HEALTHY.union(*(_problems(trouble) for trouble in troubles))
    return replace(observed, state=replace(observed.state, problems=problems))


def _flapping(troubles: Iterable[Trouble], damping: Damping) -> float:
    """Returns how long a GPU has to be well that has failed again; 0 if it has not."""
    return max(
        (
            damping.wait(trouble.problems, trouble.faults)
            for trouble in troubles
            if isinstance(trouble, Failing | Recovering) and trouble.faults > 1
        ),
        default=0.0,
    )


def _problems(trouble: Trouble) -> GpuProblems:
    match trouble:
        case Failing(problems) | Recovering(problems):
            return problems
        case Recovered():
            return HEALTHY
    assert_never(trouble)

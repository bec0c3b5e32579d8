"""What little changes cost: cycles on a large cluster whose pods run, with groups that wait."""

from collections.abc import Sequence
from typing import Final

from controller.engine.model.plan import Plan
from tests.benchmarks.engine.hardware import ALIKE, build
from tests.benchmarks.engine.jobs import Job, filling, queue, snapshot, waiting
from tests.benchmarks.engine.rehearsal import Rehearsal
from tests.benchmarks.engine.scenarios import expect
from tests.benchmarks.gpus import PER_NODE
from tests.benchmarks.measurement import NOT_MEASURED, Measurement
from tests.benchmarks.memory import resident_kib
from tests.benchmarks.stopwatch import cpu_ms
from tests.benchmarks.subject import Hear

NAME: Final = "engine-changes"
_NODES: Final = 5_000
_EACH: Final = 4
"""Devices of each pod that runs: 10,000 pods on 5,000 nodes."""
_WAITING: Final = 100
_TIMES: Final = 9
_UNCHANGED_MS, _CHANGED_MS, _LOAD_S, _MEMORY_MIB = 5, 10, 15, 1_024
_RUNS, _WAITS = "runs", "waits"


def measure(hear: Hear, *, scale: float = 1) -> None:
    """Measures everything; goals are for full size.

    Raises:
        WrongAnswerError: a plan is not the right one.
    """
    nodes = max(4, round(_NODES * scale))
    rehearsal, running = _load(hear, nodes)
    _Changes(hear, rehearsal, f"{nodes:,} nodes, nothing waits").measure(running, 0)
    _fill_up(rehearsal)
    rehearsal.submit(waiting("waits", _WAITS, ALIKE.one, jobs=_WAITING))
    plan = rehearsal.decide()
    expect(len(plan.waiting) == _WAITING, f"{len(plan.waiting)} of {_WAITING} groups wait")
    what = f"{nodes:,} nodes, {_WAITING} groups wait"
    _Changes(hear, rehearsal, what).measure(running[_TIMES:], _WAITING)


def _fill_up(rehearsal: Rehearsal) -> None:
    """Has the devices in use that are free since pods have ended."""
    jobs = waiting("fill", _WAITS, ALIKE.one, jobs=_TIMES * (_EACH - 1))
    rehearsal.submit(jobs)
    plan = rehearsal.decide()
    expect(len(plan.starts) == len(jobs), f"{len(plan.starts)} of {len(jobs)} started")
    rehearsal.carry_out(plan)


def _load(hear: Hear, nodes: int) -> tuple[Rehearsal, list[Job]]:
    """The state of a full cluster from the values of its objects, and its jobs."""
    before = resident_kib()
    begun = cpu_ms()
    site = build(ALIKE, nodes)
    parsed_ms = cpu_ms() - begun
    running = filling(ALIKE, _RUNS, range(nodes), _EACH)
    # Nobody has more than its share, so those who wait are not given what others have.
    queues = [queue(_RUNS, quota=None), queue(_WAITS, weight=0)]
    rehearsal = Rehearsal(snapshot(site, queues, running))
    expect(rehearsal.decide().is_empty, "nothing waits, and something happens")
    what = f"{nodes:,} nodes, {nodes * PER_NODE:,} devices, {len(running):,} pods: load"
    loaded_s = (rehearsal.load_ms + rehearsal.decide_ms) / 1000
    hear(
        Measurement(
            NAME,
            f"{what}, from values to the first plan",
            loaded_s,
            "s",
            goal=_LOAD_S,
            note=f"slices are parsed in {parsed_ms / 1000:.1f} s before",
        )
    )
    grown = (resident_kib() - before) / 1024
    hear(Measurement(NAME, f"{what}, memory", grown, "MiB", goal=_MEMORY_MIB, note="all objects"))
    return rehearsal, running


class _Changes:
    """Cycles after small changes, each several times."""

    def __init__(self, hear: Hear, rehearsal: Rehearsal, of: str) -> None:
        self._hear = hear
        self._rehearsal = rehearsal
        self._of = of

    def measure(self, running: Sequence[Job], waiting_jobs: int) -> None:
        """Measures cycles; the first of the jobs that run end, and so many jobs wait."""
        self._tell("nothing changed", [self._unchanged() for _ in range(_TIMES)], _UNCHANGED_MS)
        came = [self._came_in_vain(number) for number in range(_TIMES)]
        self._tell("a pod came that has no place", came, _CHANGED_MS)
        ended, started = [], []
        for number, job in enumerate(running[:_TIMES]):
            take = min(_EACH, max(0, waiting_jobs - number * _EACH))
            ended.append(self._ended(job, take))
            if not waiting_jobs:
                started.append(self._started(number))
        self._tell("a pod ended", ended, _CHANGED_MS)
        if started:
            self._tell("a pod came and starts", started, _CHANGED_MS)

    def _unchanged(self) -> float:
        plan, took = self._cycle()
        expect(plan.is_empty, "nothing changed, and something happens")
        return took

    def _came_in_vain(self, number: int) -> float:
        (job,) = waiting(f"vain-{number}", _WAITS, ALIKE.one)
        plan, took = self._cycle(came=job)
        expect(job.group.key in plan.waiting, "the pod that came does not wait")
        self._cycle(gone=job)
        return took

    def _ended(self, job: Job, starts: int) -> float:
        plan, took = self._cycle(gone=job)
        expect(len(plan.starts) == starts, f"{len(plan.starts)} of {starts} started")
        self._rehearsal.carry_out(plan)
        return took

    def _started(self, number: int) -> float:
        (job,) = waiting(f"start-{number}", _WAITS, ALIKE.one)
        plan, took = self._cycle(came=job)
        expect(len(plan.starts) == 1, "the pod that came does not start")
        self._rehearsal.carry_out(plan)
        return took

    def _cycle(self, *, came: Job | None = None, gone: Job | None = None) -> tuple[Plan, float]:
        """A cycle after a change, and the milliseconds that both take."""
        rehearsal = self._rehearsal
        rehearsal.forget_times()
        rehearsal.submit([came] if came else [])
        rehearsal.withdraw([gone] if gone else [])
        plan = rehearsal.decide()
        return plan, rehearsal.total_ms

    def _tell(self, what: str, times_ms: list[float], goal_ms: float) -> None:
        self._hear(
            Measurement.of_times(
                NAME,
                f"{self._of}: {what}",
                times_ms,
                goal=goal_ms,
                upstream=NOT_MEASURED,
                limited_by_upstream=False,
            )
        )

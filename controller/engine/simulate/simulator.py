"""The event loop: a trace in virtual time.

At each event the state of the engine changes as it would by the watches of a real cluster. A cycle
follows each change, and runs when the last plan asks for it, but no more often than the period
allows. What a plan says happens at once: pods start when it starts them. An evicted pod holds what
it has for the period of grace. A while later its job makes another one, under another name.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeAlias, assert_never

from carina_dra.allocator.preference import Policy
from carina_dra.resource import ResourceClaimStatus
from controller.engine.files.value import codec_of
from controller.engine.model.plan import Eviction, Plan, Start
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod
from controller.engine.simulate.gpus import SimulatedGpus
from controller.engine.simulate.occupancy import SimulatedOccupancy
from controller.engine.simulate.progress import Progress, has_minimum
from controller.engine.simulate.record import (
    Arrived,
    Finished,
    JobRecord,
    NodeCame,
    NodeLeft,
    PodOutcome,
    PodRun,
    Record,
)
from controller.engine.simulate.recorder import Recorder
from controller.engine.simulate.trace import Job, NodeAdded, NodeEvent, NodeGone, Trace
from controller.engine.state.state import State

Decider: TypeAlias = Callable[[State], Callable[[], Plan]]
"""What decides for a state: called once for the state, and then for each cycle."""
_IDLE_CYCLES: Final = 100
"""After as many cycles without an effect, a simulation with no event to come is over."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    job: Job


@dataclass(frozen=True, slots=True)
class _End:
    """A job has done its work, if it still works as it did when this was foreseen."""

    job: str
    version: int


@dataclass(frozen=True, slots=True)
class _Leave:
    """The grace of an evicted pod is over."""

    pod: str


@dataclass(frozen=True, slots=True)
class _Replace:
    """A job makes a pod in place of one that is gone."""

    pod: Pod


_Event: TypeAlias = _Arrival | _End | _Leave | _Replace | NodeEvent


@dataclass(slots=True, eq=False)
class _Live:
    """A job that has come."""

    job: Job
    progress: Progress
    pods: dict[str, Pod]
    """By key: those that are there now, as they came."""
    placed: Counter[str] = field(default_factory=Counter)
    """The pods that run, by pod set."""
    has_minimum: bool = False
    version: int = 0
    """How often its rate has changed."""
    started: float | None = None
    ended: float | None = None
    evictions: int = 0
    replaced: int = 0
    """How many pods are gone that others replace."""
    runs: list[PodRun] = field(default_factory=list)


def simulate(trace: Trace, engine: Decider) -> Record:
    """Runs a trace to its end."""
    return _Simulation(trace, engine).run()


class _Simulation:
    def __init__(self, trace: Trace, engine: Decider) -> None:
        start = trace.start
        self._trace = trace
        self._now = start.now
        self._state = State(start)
        self._decide = engine(self._state)
        self._gpus = SimulatedGpus(start.slices)
        self._gpus_at_start = self._gpus.total
        self._events: list[tuple[float, int, _Event]] = []
        self._numbers = count()
        self._live: dict[str, _Live] = {}
        self._unready: set[str] = set()
        """The jobs that have not what they need to run."""
        self._occupancy = SimulatedOccupancy(self._gpus)
        self._recorder = Recorder(self._state, self._gpus, self._occupancy)
        self._plan: Plan | None = None
        self._cycles = self._steps = self._idle = 0
        for job in trace.jobs:
            self._push(job.arrival, _Arrival(job))
        for event in trace.node_events:
            self._push(event.at, event)

    def run(self) -> Record:
        """Runs to the end."""
        last_cycle = -float("inf")
        is_due = True
        until = float("inf") if self._trace.until is None else self._trace.until
        while True:
            wake = self._plan.wake if self._plan is not None else None
            cycle = float("inf")
            if is_due or wake is not None:
                wanted = self._now if is_due or wake is None else wake
                cycle = max(wanted, last_cycle + self._trace.period, self._now)
            event = self._events[0][0] if self._events else float("inf")
            following = min(event, cycle)
            if following > until or following == float("inf") or self._is_idle():
                break
            self._now = following
            if event <= cycle:
                while self._events and self._events[0][0] == following:
                    self._happen(heappop(self._events)[2])
                is_due = True
                self._idle = 0
            else:
                last_cycle = following
                is_due = self._cycle()
            self._sample()
        return self._record(self._now if self._trace.until is None else until)

    def _is_idle(self) -> bool:
        return not self._events and self._idle >= _IDLE_CYCLES

    def _push(self, at: float, event: _Event) -> None:
        heappush(self._events, (at, next(self._numbers), event))

    # What happens.

    def _happen(self, event: _Event) -> None:
        match event:
            case _Arrival(job=job):
                self._arrive(job)
            case _End(job=name, version=version):
                if self._live[name].version == version:
                    self._finish(self._live[name])
            case _Leave(pod=key):
                self._leave(key)
            case _Replace(pod=pod):
                self._replace(pod)
            case NodeAdded(node=node, slices=slices):
                self._state.put_node(node)
                for published in slices:
                    self._state.put_devices(published)
                self._gpus.add(slices)
                self._recorder.add(NodeCame(self._now, node.name))
            case NodeGone():
                self._lose(event)
            case _:
                assert_never(event)

    def _arrive(self, job: Job) -> None:
        self._recorder.add(Arrived(self._now, job.name))
        pods = {pod.key: pod for pod in job.pods}
        live = _Live(job, Progress(job.work, job.checkpoints, since=self._now), pods)
        self._live[job.name] = live
        for claim in job.claims:
            self._state.put_claim(claim)
        self._state.put_group(job.group)
        for pod in job.pods:
            self._state.put_pod(pod)
            match pod.state:
                case Placed(node=node):
                    self._hold(live, pod, node)
                case Evicting(node=node):
                    self._hold(live, pod, node)
                    live.placed[pod.pod_set] -= 1
                    self._push(self._now + self._trace.grace, _Leave(pod.key))
                case Pending() | Gated() | Ended():
                    pass
                case _:
                    assert_never(pod.state)
        if has_minimum(job.group, live.placed):  # it runs already when the simulation begins
            live.has_minimum = True
            live.started = job.group.started if job.group.started is not None else self._now
        self._update(live)

    def _finish(self, live: _Live) -> None:
        self._recorder.add(Finished(self._now, live.job.name))
        live.ended = self._now
        self._unready.discard(live.job.name)
        for pod in list(live.pods.values()):
            if not isinstance(self._state.occupancy.pods[pod.key].state, Evicting):
                self._remove(live, pod, PodOutcome.ENDED)
        self._tidy(live)

    def _leave(self, key: str) -> None:
        pod = self._state.occupancy.pods.get(key)
        if pod is None or not isinstance(pod.state, Evicting):  # its node went first
            return
        live = self._live_of(pod)
        self._remove(live, pod, PodOutcome.EVICTED)
        self._tidy(live)

    def _lose(self, event: NodeGone) -> None:
        here = [
            *self._state.occupancy.on_node.get(event.node, ()),
            *self._state.occupancy.leaving.get(event.node, ()),
        ]
        jobs: dict[str, None] = {}
        for key in here:
            pod = self._state.occupancy.pods[key]
            if pod.group not in self._live:
                self._state.remove_pod(key)
                continue
            live = self._live_of(pod)
            if isinstance(pod.state, Placed):
                live.placed[pod.pod_set] -= 1
            elif not isinstance(pod.state, Evicting):  # it was to come when others have left
                continue
            jobs[live.job.name] = None
            self._remove(live, pod, PodOutcome.NODE_GONE)
        for published in event.slices:
            self._state.remove_devices(published)
        self._state.remove_node(event.node)
        self._gpus.remove(event.slices)
        self._recorder.add(NodeLeft(self._now, event.node, tuple(jobs)))
        for name in jobs:
            if self._live[name].ended is None:
                self._update(self._live[name])
            else:
                self._tidy(self._live[name])

    def _remove(self, live: _Live, pod: Pod, outcome: PodOutcome) -> None:
        """Records that a pod is gone; its job replaces it, unless it has ended."""
        del live.pods[pod.key]
        self._state.remove_pod(pod.key)
        self._release(live, pod, outcome)
        if live.ended is None:
            live.replaced += 1
            name = f"{live.job.name}-r{live.replaced}"
            at = self._now + self._trace.replaced_after
            self._push(at, _Replace(replace(pod, key=name, state=Pending(), created=at)))

    def _replace(self, pod: Pod) -> None:
        live = self._live_of(pod)
        if live.ended is None:
            live.pods[pod.key] = pod
            self._state.put_pod(pod)

    def _tidy(self, live: _Live) -> None:
        """Removes what is left of a job that has ended, when the last of its pods is gone."""
        if live.ended is not None and not live.pods:
            for claim in live.job.claims:
                self._state.remove_claim(claim.key)
            self._state.remove_group(live.job.name)

    # What the engine says.

    def _cycle(self) -> bool:
        """Runs a cycle; whether another one should follow."""
        self._state.advance(self._now)
        plan = self._plan = self._decide()
        self._state.memory = plan.memory
        self._cycles += 1
        self._steps += plan.steps
        self._idle = self._idle + 1 if plan.is_empty else 0
        self._recorder.add_starts(self._now, plan.starts)
        self._recorder.add_evictions(self._now, plan.evictions)
        for start in plan.starts:
            self._start(start)
        for eviction in plan.evictions:
            self._evict(eviction)
        moved = [start.pod for start in plan.starts] + [eviction.pod for eviction in plan.evictions]
        for live in dict.fromkeys(self._live_of(self._state.occupancy.pods[pod]) for pod in moved):
            self._update(live)
        return not plan.is_empty or plan.is_unfinished

    def _start(self, start: Start) -> None:
        pod = self._state.occupancy.pods[start.pod]
        for key, allocation in start.allocations:
            claim = self._state.occupancy.claims[key]
            status = replace(claim.status, allocation=allocation)
            self._state.put_claim(replace(claim, status=status))
        self._state.put_pod(replace(pod, state=Placed(start.node)))
        self._hold(self._live_of(pod), pod, start.node)

    def _evict(self, eviction: Eviction) -> None:
        pod = self._state.occupancy.pods[eviction.pod]
        live = self._live_of(pod)
        self._state.put_pod(replace(pod, state=Evicting(eviction.node)))
        live.placed[pod.pod_set] -= 1
        live.evictions += 1
        self._put_group(live, evicted=self._now)
        self._push(self._now + self._trace.grace, _Leave(pod.key))

    # What jobs have.

    def _live_of(self, pod: Pod) -> _Live:
        return self._live[pod.group or ""]

    def _hold(self, live: _Live, pod: Pod, node: str) -> None:
        live.placed[pod.pod_set] += 1
        queue = live.job.group.queue
        self._occupancy.hold(pod, node, queue, self._state.occupancy.claims, self._now)

    def _release(self, live: _Live, pod: Pod, outcome: PodOutcome) -> None:
        """Records that a pod is gone from its node; what nobody else holds is free."""
        released = self._occupancy.release(pod, outcome, self._now)
        if released is not None:
            run, freed = released
            live.runs.append(run)
            for key in freed:
                claim = self._state.occupancy.claims[key]
                self._state.put_claim(replace(claim, status=ResourceClaimStatus()))

    def _update(self, live: _Live) -> None:
        """Records that a job has more or fewer pods than before."""
        group = self._state.occupancy.groups[live.job.name]
        placed = sum(live.placed.values())
        had, has = live.has_minimum, has_minimum(group, live.placed)
        live.has_minimum = has
        rate = placed / live.job.size if has else 0.0
        if rate != live.progress.rate:
            live.progress.advance(self._now, rate)
            live.version += 1
            end = live.progress.end()
            if end is not None:
                self._push(end, _End(live.job.name, live.version))
        if has:
            self._unready.discard(live.job.name)
            if live.started is None:
                live.started = self._now
        else:
            self._unready.add(live.job.name)
        is_stale = placed > 0 and not has
        self._put_group(
            live,
            started=self._now if has and not had else group.started,
            stale_since=(group.stale_since or self._now) if is_stale else None,
        )

    def _put_group(self, live: _Live, **changes: float | None) -> None:
        group = self._state.occupancy.groups[live.job.name]
        self._state.put_group(replace(group, **changes))  # type: ignore[arg-type] # of times

    # What is recorded.

    def _sample(self) -> None:
        waiting = Counter(self._live[name].job.group.queue for name in self._unready)
        fair_shares = {} if self._plan is None else self._plan.fair_shares
        self._recorder.sample(self._now, waiting, fair_shares)

    def _record(self, end: float) -> Record:
        start = self._trace.start
        waiting: Mapping[str, tuple[object, ...]] = {} if self._plan is None else self._plan.waiting
        return Record(
            name=self._trace.name,
            policy=codec_of(Policy).write(start.settings.placement),
            start=start.now,
            end=end,
            nodes=len(start.nodes),
            gpus=self._gpus_at_start,
            queues=self._recorder.queues,
            cycles=self._cycles,
            steps=self._steps,
            jobs=tuple(
                self._job_record(live, waiting.get(name, ())) for name, live in self._live.items()
            ),
            happenings=tuple(self._recorder.happenings),
            samples=tuple(self._recorder.samples),
        )

    def _job_record(self, live: _Live, reasons: Iterable[object]) -> JobRecord:
        runs = map(self._occupancy.run_of, live.pods)
        return JobRecord(
            job=live.job.name,
            queue=live.job.group.queue,
            pods=live.job.size,
            arrival=live.job.arrival,
            started=live.started,
            ended=live.ended,
            evictions=live.evictions,
            lost=live.progress.lost,
            runs=(*live.runs, *(run for run in runs if run is not None)),
            waits=live.job.name in self._unready,
            waits_for=tuple(dict.fromkeys(map(str, reasons))) if live.ended is None else (),
        )

"""What KAI Scheduler measures of itself, asked of the engine: one fleet of 500 nodes of 8 GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.engine.model.group import PodSet, TopologyConstraint
from controller.engine.model.plan import Action, Plan
from controller.engine.model.queue import Queue
from controller.engine.model.reason import NoVictims, OverLimit
from tests.benchmarks.engine.hardware import ALIKE, Hardware, Site, build
from tests.benchmarks.engine.jobs import Job, filling, queue, snapshot, waiting
from tests.benchmarks.engine.rehearsal import Rehearsal, WrongAnswerError
from tests.benchmarks.gpus import PER_NODE
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.subject import Hear

NAME: Final = "engine"
_NODES: Final = 500
_GANG_PODS: Final = 10
_OURS, _THEIRS = "ours", "theirs"
"""The queue that asks, and the one whose jobs run."""
_QUEUES: Final = 19
"""Queues that reclaim at once."""
_RECLAIMED_A_SECOND: Final = 100
_ZONE, _BLOCK, _RACK = "zone", "block", "rack"
_TREE: Final = "tree"
_ZONES, _BLOCKS, _RACKS, _IN_RACK = 4, 8, 8, 2


@dataclass(frozen=True, slots=True)
class Goal:
    """The most that is allowed, and what KAI Scheduler has published, in seconds."""

    seconds: float | None
    kai_s: float | None = None


def measure(hear: Hear, *, scale: float = 1) -> None:
    """Measures everything; goals are for full size.

    Raises:
        WrongAnswerError: a plan is not the right one.
    """
    nodes = max(2 * _GANG_PODS, round(_NODES * scale))
    site = build(ALIKE, nodes)
    bench = Bench(NAME, ALIKE, site, hear)
    bench.fill(nodes * PER_NODE, Goal(4, 397.8))
    bench.grow(nodes * PER_NODE, Goal(4))
    for what, topology, kai_s in (
        ("no topology", None, 49.4),
        ("preferred rack", TopologyConstraint(_TREE, preferred=_RACK), 48.7),
        ("required zone", TopologyConstraint(_TREE, required=_ZONE), None),
    ):
        _gang_in_tree(hear, scale, what, topology, Goal(1, kai_s))
    for reserves in (False, True):
        bench.backfill(Goal(None), reserves=reserves)
    bench.no_limit(Goal(0.1))
    bench.no_full(Goal(0.1))
    bench.no_reclaim(Goal(1, 249.5))
    bench.reclaim_one(Goal(0.2, 13.9))
    bench.reclaim_all(Goal(20, 694.5))
    bench.reclaim_by_many(nodes * PER_NODE // 4)
    _consolidation(bench, Goal(5, 455.7))


class Bench:
    """The scenarios on one site."""

    def __init__(self, name: str, hardware: Hardware, site: Site, hear: Hear) -> None:
        self.name = name
        self.hardware = hardware
        self.site = site
        self.nodes = len(site.nodes)
        self._hear = hear

    def tell(self, what: str, rehearsal: Rehearsal, goal: Goal, note: str = "") -> None:
        """Reports what cycles and events have taken."""
        cycles = f"{rehearsal.cycles} cycles, {rehearsal.events_ms / 1000:.2g} s of it for events"
        self._hear(
            Measurement(
                self.name,
                f"{self.nodes:,} nodes: {what}",
                rehearsal.total_ms / 1000,
                "s",
                goal=goal.seconds,
                kai=goal.kai_s,
                note=f"{cycles}{'; ' if note else ''}{note}",
            )
        )

    def full(self, queues: Sequence[Queue], each: int = 1) -> Rehearsal:
        """The site filled with jobs of the other queue, and the engine after a first cycle."""
        running = filling(self.hardware, _THEIRS, range(self.nodes), each)
        rehearsal = Rehearsal(snapshot(self.site, queues, running))
        expect(rehearsal.decide().is_empty, "nothing waits, and something happens")
        rehearsal.forget_times()
        return rehearsal

    def fill(self, count: int, goal: Goal) -> None:
        """Jobs of one device on a free cluster."""
        jobs = waiting("fill", _OURS, self.hardware.one, jobs=count)
        rehearsal = Rehearsal(snapshot(self.site, [queue(_OURS)], jobs))
        plan = rehearsal.decide()
        expect(len(plan.starts) == count, f"{len(plan.starts)} of {count} started")
        self.tell(f"{count:,} jobs of one device start", rehearsal, goal, f"{plan.steps} steps")

    def grow(self, count: int, goal: Goal) -> None:
        """One job that needs one pod, and gets one more after the other."""
        (gang,) = waiting("grow", _OURS, self.hardware.one, pods=count)
        job = replace(gang, group=replace(gang.group, root=PodSet("", 1)))
        rehearsal = Rehearsal(snapshot(self.site, [queue(_OURS)], [job]))
        plan = rehearsal.decide()
        expect(len(plan.starts) == count, f"{len(plan.starts)} of {count} started")
        self.tell(f"one job of {count:,} pods of one device starts", rehearsal, goal)

    def gang(self, job: Job, what: str, goal: Goal) -> Plan:
        """A gang on a free cluster, where nothing has been asked before."""
        rehearsal = Rehearsal(snapshot(self.site, [queue(_OURS)], ()))
        rehearsal.decide()
        rehearsal.forget_times()
        rehearsal.submit([job])
        plan = rehearsal.decide()
        expect(len(plan.starts) == len(job.pods), f"{len(plan.starts)} of {len(job.pods)} started")
        self.tell(what, rehearsal, goal)
        return plan

    def backfill(self, goal: Goal, *, reserves: bool) -> None:
        """Small jobs that run on for long, beside a gang that waits for jobs to end."""
        running = [
            replace(job, group=replace(job.group, run_time=3_600.0 + number))
            for number, job in enumerate(
                filling(self.hardware, _OURS, range(self.nodes - self.nodes // 10))
            )
        ]
        queues = [replace(queue(_OURS, quota=None), reserves=reserves)]
        rehearsal = Rehearsal(snapshot(self.site, queues, running))
        rehearsal.decide()
        rehearsal.forget_times()
        rehearsal.submit(
            waiting("gang", _OURS, self.hardware.one, pods=self.nodes)
            + waiting("small", _OURS, self.hardware.one, jobs=self.nodes // 5)
        )
        plan = rehearsal.settle()
        (waits,) = waiting("gang", _OURS, self.hardware.one)
        expect(waits.group.key in plan.waiting, "the gang does not wait")
        expect((waits.group.key in plan.memory.reservations) == reserves, "its reservation is lost")
        what = "with a reservation" if reserves else "without a reservation"
        self.tell(f"{self.nodes // 5} small jobs beside a gang, {what}", rehearsal, goal)

    def no_limit(self, goal: Goal) -> None:
        """A gang of whole nodes whose queue has reached its limit."""
        count = self.nodes * PER_NODE
        rehearsal = self.full([queue(_THEIRS, quota=None, limit=count)])
        self._refused(rehearsal, _THEIRS, OverLimit, "no: limit of the queue reached", goal)

    def no_full(self, goal: Goal, each: int = 1) -> None:
        """A gang of whole nodes of the queue that has all devices."""
        rehearsal = self.full([queue(_THEIRS, quota=None)], each)
        self._refused(rehearsal, _THEIRS, NoVictims, "no: everything in use by the queue", goal)

    def no_reclaim(self, goal: Goal, each: int = 1) -> None:
        """A gang of whole nodes for which one job too few may be reclaimed."""
        jobs = self._held() - _GANG_PODS * PER_NODE + each
        queues = [queue(_THEIRS, quota=jobs), queue(_OURS, quota=None)]
        rehearsal = self.full(queues, each)
        self._refused(rehearsal, _OURS, NoVictims, "no: one job short of reclaimable", goal)

    def reclaim_one(self, goal: Goal, each: int = 1) -> None:
        """A job of one device, for which one of another queue has to go."""
        queues = [queue(_THEIRS, quota=0), queue(_OURS, quota=1)]
        rehearsal = self.full(queues, each)
        rehearsal.submit(waiting("new", _OURS, self.hardware.one))
        plan = rehearsal.decide()
        evicted, nominated = len(plan.evictions), len(plan.nominations)
        expect((evicted, nominated) == (1, 1), f"{evicted} evicted, {nominated} nominated")
        expect(plan.evictions[0].action is Action.RECLAIM, "it was not reclaimed")
        self.tell("reclaim of one device", rehearsal, goal, f"{plan.steps} steps")

    def reclaim_all(self, goal: Goal) -> None:
        """As many jobs of another queue as run, each for one device."""
        count = self.nodes * PER_NODE
        queues = [queue(_THEIRS, weight=0), queue(_OURS, quota=None)]
        rehearsal = self.full(queues)
        jobs = waiting("new", _OURS, self.hardware.one, jobs=count)
        rehearsal.submit(jobs)
        rehearsal.settle()
        expect(len(rehearsal.started) == count, f"{len(rehearsal.started)} of {count} started")
        evicted = len(rehearsal.evicted)
        expect(evicted == count, f"{evicted} evictions for {count} jobs")
        self.tell(f"reclaim of {count:,} devices by as many jobs", rehearsal, goal)

    def reclaim_by_many(self, count: int) -> None:
        """Many queues that are below their quotas take what one queue has beyond its own."""
        names = [f"{_OURS}-{number:02}" for number in range(_QUEUES)]
        quota = self.nodes * PER_NODE // (_QUEUES + 1)
        rehearsal = self.full([queue(name, quota=quota) for name in (_THEIRS, *names)])
        jobs = [
            job
            for number in range(count)
            for job in waiting(f"new-{number:06}", names[number % _QUEUES], self.hardware.one)
        ]
        rehearsal.submit(jobs)
        rehearsal.settle()
        expect(len(rehearsal.started) == count, f"{len(rehearsal.started)} of {count} started")
        evicted = len(rehearsal.evicted)
        expect(evicted == count, f"{evicted} evictions for {count} jobs")
        what = f"reclaim of {count:,} devices by {_QUEUES} queues"
        self.tell(what, rehearsal, Goal(count / _RECLAIMED_A_SECOND))

    def _held(self) -> int:
        """How many devices are in use when the site is full."""
        return sum(1 for node in range(self.nodes) for _ in self.hardware.full(node))

    def _refused(
        self,
        rehearsal: Rehearsal,
        of_queue: str,
        why: type[NoVictims] | type[OverLimit],
        what: str,
        goal: Goal,
    ) -> None:
        (gang,) = waiting("gang", of_queue, self.hardware.whole_node, pods=_GANG_PODS)
        rehearsal.submit([gang])
        plan = rehearsal.settle()
        expect(not rehearsal.started and not rehearsal.evicted, "it was not refused")
        reasons = plan.waiting[gang.group.key]
        expect(any(isinstance(one, why) for one in reasons), "; ".join(map(str, reasons)))
        self.tell(f"gang of {_GANG_PODS} whole nodes, {what}", rehearsal, goal)


def expect(condition: bool, otherwise: str) -> None:
    """Ends the run if an answer is wrong.

    Raises:
        WrongAnswerError: the condition does not hold.
    """
    if not condition:
        raise WrongAnswerError(otherwise)


def _gang_in_tree(
    hear: Hear, scale: float, what: str, topology: TopologyConstraint | None, goal: Goal
) -> None:
    """One job of as many pods as there are nodes, with two GPUs each, in a tree of domains."""
    zones = _ZONES
    blocks = max(1, round(_BLOCKS * scale))
    nodes = zones * blocks * _RACKS * _IN_RACK

    def labels(node: int) -> dict[str, str]:
        rack = node // _IN_RACK
        block = rack // _RACKS
        return {_ZONE: f"{block // blocks}", _BLOCK: f"{block}", _RACK: f"{rack}"}

    plain = build(ALIKE, nodes, labels)
    site = Site(plain.nodes, plain.slices, {_TREE: (_ZONE, _BLOCK, _RACK)})
    asked = {**ALIKE.one, "exactly": {**ALIKE.one["exactly"], "count": 2}}
    (job,) = waiting("gang", _OURS, asked, pods=nodes, topology=topology)
    bench = Bench(NAME, ALIKE, site, hear)
    plan = bench.gang(job, f"gang of {nodes} pods of 2 devices, {what}", goal)
    zones_used = {labels(int(start.node.removeprefix("node-")))[_ZONE] for start in plan.starts}
    expect(topology is None or len(zones_used) == 1, f"it is in zones {sorted(zones_used)}")


def _consolidation(bench: Bench, goal: Goal) -> None:
    """Three jobs of one GPU run on each node; gangs whose pods ask for six GPUs need two to go.

    As in the scale test of KAI: on 500 nodes, 41 gangs of 10 pods have room if one job moves for
    each pod.
    """
    running_here, asked_here = 3, PER_NODE // 2 + 2
    free = bench.nodes // _GANG_PODS * _GANG_PODS * (PER_NODE - running_here)
    count = free // (asked_here * _GANG_PODS)
    running = [
        job
        for job in filling(bench.hardware, _THEIRS, range(bench.nodes))
        if int(job.group.key[-3:]) < running_here
    ]
    queues = [queue(_THEIRS), queue(_OURS)]
    rehearsal = Rehearsal(snapshot(bench.site, queues, running))
    rehearsal.decide()
    rehearsal.forget_times()
    asked = {**ALIKE.one, "exactly": {**ALIKE.one["exactly"], "count": asked_here}}
    gangs = waiting("gang", _OURS, asked, jobs=count, pods=_GANG_PODS)
    rehearsal.submit(gangs)
    rehearsal.settle()
    wanted = {pod.key for gang in gangs for pod in gang.pods}
    lost = {
        pod.key
        for job in running
        for pod in job.pods
        if rehearsal.state.occupancy.is_pending(pod.key)
    }
    expect(wanted <= rehearsal.started, f"{len(wanted - rehearsal.started)} pods did not start")
    expect(not lost, f"{len(lost)} of the moved jobs run no more")
    what = f"consolidation for {count} gangs of {_GANG_PODS} pods"
    bench.tell(what, rehearsal, goal, f"{len(rehearsal.evicted)} moved")

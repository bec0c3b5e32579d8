"""A cluster that does what plans say, round by round, and keeps its own books."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from carina_dra.resource import (
    Allocation,
    ConsumerReference,
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from controller.engine.model.group import Group, PodSet, SubGroup, SubGroups
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import CarriedOver, Plan
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import EngineSettings, Snapshot
from tests.unit.controller.engine.properties.clusters import (
    LEVELS,
    TOPOLOGY,
    classes,
    leaves,
    offered,
    random_devices,
    random_nodes,
    random_queues,
)
from tests.unit.controller.engine.properties.jobs import Job, Slot, claim, random_job

STUCK_AFTER: Final = 2
"""Rounds after which a pod that is being evicted counts as stuck."""


@dataclass(slots=True)
class _Life:
    """A pod's place in its job, and how long it goes on leaving."""

    slot: Slot
    generation: int
    rounds_left: int = 0
    rounds_leaving: int = 0


@dataclass
class RunningCluster:
    """Nodes, queues and jobs; each round takes a second."""

    nodes: tuple[ClusterNode, ...]
    slices: tuple[ResourceSlice, ...]
    queues: tuple[Queue, ...]
    settings: EngineSettings = field(default_factory=EngineSettings)
    classes: tuple[DeviceClass, ...] = field(default_factory=classes)
    rounds_to_leave: tuple[int, ...] = (1,)
    """How many rounds an evicted pod goes on holding what it has; one of these numbers."""
    rng: Random = field(default_factory=lambda: Random(0))
    now: float = 1000
    groups: dict[str, Group] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    may_miss: dict[str, int] = field(default_factory=dict)
    memory: CarriedOver = field(default_factory=CarriedOver)
    jobs: list[Job] = field(default_factory=list)
    """All that have been submitted."""
    _lives: dict[str, _Life] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        """What the engine is told."""
        return Snapshot(
            now=self.now,
            nodes=self.nodes,
            slices=self.slices,
            classes=self.classes,
            claims=tuple(self.claims.values()),
            queues=self.queues,
            groups=tuple(self.groups.values()),
            pods=tuple(self.pods.values()),
            topologies={TOPOLOGY: LEVELS},
            budgets=self.budgets(),
            settings=self.settings,
            memory=self.memory,
        )

    def budgets(self) -> Mapping[str, int]:
        """How many pods may be disrupted still: those that may be missing, but are not."""
        left = dict(self.may_miss)
        for pod in self.pods.values():
            for name in pod.budgets:
                left[name] -= not isinstance(pod.state, Placed)
        return {name: max(0, count) for name, count in left.items()}

    # What users do.

    def submit(self, jobs: Iterable[Job]) -> None:
        """Adds jobs, whose pods wait for a place."""
        for job in jobs:
            self.jobs.append(job)
            self.groups[job.group.key] = job.group
            self.claims |= {one.key: one for one in job.shared}
            self.may_miss |= job.budgets
            for slot in job.slots:
                self._create(slot, 0)

    def finish(self, group: str) -> None:
        """A job is done, and all of it disappears."""
        for key in [pod.key for pod in self.pods.values() if pod.group == group]:
            self._remove(key)
        del self.groups[group]
        for job in self.jobs:
            if job.group.key == group:
                for one in job.shared:
                    del self.claims[one.key]

    def evict(self, key: str, *, charged: bool = False) -> None:
        """A pod is deleted, and holds what it has for a time; `charged` if its user did that."""
        pod = self.pods[key]
        assert isinstance(pod.state, Placed), f"{key} is evicted, and is {pod.state}"
        self.pods[key] = replace(pod, state=Evicting(pod.state.node, charged=charged))
        self._lives[key].rounds_left = self.rng.choice(self.rounds_to_leave)
        if pod.group in self.groups:
            self.groups[pod.group] = replace(self.groups[pod.group], evicted=self.now)

    # What the plan says, and what follows.

    def apply(self, plan: Plan) -> None:
        """Starts and evicts pods."""
        for start in plan.starts:
            for key, allocation in start.allocations:
                status = replace(self.claims[key].status, allocation=allocation)
                self.claims[key] = replace(self.claims[key], status=status)
            pod = self.pods[start.pod]
            for key in pod.claims:
                self._reserve(key, start.pod)
            self.pods[start.pod] = replace(pod, state=Placed(start.node))
        for eviction in plan.evictions:
            self.evict(eviction.pod)
        kept = plan.memory
        # What was refused may be possible after any change: who follows events knows of which.
        self.memory = CarriedOver(
            kept.nominations, reservations=kept.reservations, deferred=kept.deferred
        )
        self._note_groups()

    def pass_round(self) -> None:
        """Time passes: pods that are being evicted go, and others take their place."""
        self.now += 1
        for key, life in list(self._lives.items()):
            pod = self.pods[key]
            if isinstance(pod.state, Evicting):
                life.rounds_left -= 1
                life.rounds_leaving += 1
                if life.rounds_left <= 0:
                    self._remove(key)
                    self._create(life.slot, life.generation + 1)
                elif life.rounds_leaving >= STUCK_AFTER:
                    self.pods[key] = replace(pod, state=Evicting(pod.state.node, stuck=True))
        self._note_groups()

    @property
    def is_leaving(self) -> bool:
        """Whether a pod is being evicted."""
        return any(isinstance(pod.state, Evicting) for pod in self.pods.values())

    def _create(self, slot: Slot, generation: int) -> None:
        pod = slot.pod(generation, self.now if generation else 0)
        self.pods[pod.key] = pod
        self._lives[pod.key] = _Life(slot, generation)
        if slot.wants:
            own = pod.claims[0]
            self.claims[own] = claim(own, slot.wants)

    def _remove(self, key: str) -> None:
        pod, life = self.pods.pop(key), self._lives.pop(key)
        for name in pod.claims:
            if name != life.slot.shared:
                del self.claims[name]
            elif isinstance(pod.state, Placed | Evicting):
                self._release(name, key)

    def _reserve(self, name: str, pod: str) -> None:
        status = self.claims[name].status
        user = ConsumerReference(resource="pods", name=pod, uid=pod)
        status = replace(status, reserved_for=(*status.reserved_for, user))
        self.claims[name] = replace(self.claims[name], status=status)

    def _release(self, name: str, pod: str) -> None:
        status = self.claims[name].status
        left = tuple(user for user in status.reserved_for if user.uid != pod)
        kept = ResourceClaimStatus(status.allocation if left else None, left)
        self.claims[name] = replace(self.claims[name], status=kept)

    def _note_groups(self) -> None:
        """Takes down which groups have their minimum, and since when they have not."""
        for key, group in self.groups.items():
            placed = [pod for pod in self.pods.values() if pod.group == key and _is_placed(pod)]
            whole = is_satisfied(group.root, pods_by_set(placed))
            started, stale = group.started, group.stale_since
            if not placed:
                started = stale = None
            elif whole:
                started, stale = self.now if started is None or stale else started, None
            elif stale is None:
                stale = self.now
            if (started, stale) != (group.started, group.stale_since):
                self.groups[key] = replace(group, started=started, stale_since=stale)


def is_satisfied(part: SubGroup, pods: Mapping[str, int]) -> bool:
    """Whether so many pods of each pod set are the minimum of a part of a group, or more."""
    match part:
        case PodSet(name=name, min_count=least):
            return pods.get(name, 0) >= least
        case SubGroups(children=children, min_count=least):
            return sum(is_satisfied(child, pods) for child in children) >= least


def pods_by_set(pods: Iterable[Pod]) -> Mapping[str, int]:
    """How many pods there are of each pod set."""
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.pod_set] = counts.get(pod.pod_set, 0) + 1
    return counts


def held_by(claims: Mapping[str, ResourceClaim]) -> Iterator[tuple[str, Allocation]]:
    """The claims that have devices."""
    for key, one in claims.items():
        if one.status.allocation is not None:
            yield key, one.status.allocation


def random_cluster(
    rng: Random, decide: Callable[[Snapshot], Plan], jobs: int = 12
) -> RunningCluster:
    """A cluster in use: some jobs run, some pods are leaving, and some jobs wait.

    The queues have changed since the first jobs started, so some have more than they should.
    """
    nodes = random_nodes(rng)
    queues = random_queues(rng)
    free = tuple(Queue(queue.name, queue.parent) for queue in queues)
    found = RunningCluster(
        nodes,
        random_devices(rng, nodes),
        free,
        rounds_to_leave=rng.choice(((1,), (1, 2), (2, 3, 4))),
        rng=rng,
        settings=EngineSettings(actions=()),
    )
    names, classes_here = leaves(queues), offered(found.slices)
    all_jobs = [random_job(rng, n, names, classes_here) for n in range(rng.randint(1, jobs))]
    first = rng.randint(0, len(all_jobs))
    found.submit(all_jobs[:first])
    found.apply(decide(found.snapshot()))
    found.now += rng.choice((0, 5, 100))
    for key in [pod.key for pod in found.pods.values() if _is_placed(pod)]:
        if rng.random() < 0.15:
            found.evict(key, charged=rng.random() < 0.5)
    found._note_groups()
    found.queues, found.settings, found.memory = queues, EngineSettings(), CarriedOver()
    found.submit(all_jobs[first:])
    return found


def _is_placed(pod: Pod) -> bool:
    return isinstance(pod.state, Placed)

"""A vector and the state of its tasks as the snapshot that the engine is asked about."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Final, assert_never

from carina_dra.allocator.node import Node as NodeOfDevices
from carina_dra.allocator.preference import Order, Policy
from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from controller.engine.model.group import Group, PodSet, SubGroup, SubGroups, TopologyConstraint
from controller.engine.model.label_selector import with_labels
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Action
from controller.engine.model.pod import (
    Ended,
    Evicting,
    Gated,
    Pending,
    Placed,
    Pod,
    PodAffinity,
    PodNeeds,
    PodSelection,
    PodState,
)
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import Cpu, Memory, Resource
from controller.engine.model.snapshot import EngineSettings, Snapshot
from tests.conformance.scheduling.devices import Gpus
from tests.conformance.scheduling.state import State, TaskState, claims_of, pod_key, tasks_of
from tests.conformance.scheduling.vector import (
    ACTIVE,
    UNLIMITED,
    ActionName,
    Affinity,
    Job,
    Number,
    Part,
    Status,
    Task,
    Vector,
    VectorError,
)
from tests.conformance.scheduling.vector import Queue as QueueOfVector

NOW: Final = 1_000_000.0
_RUNS_FOR: Final = 60.0
"""For how many seconds a job runs that holds something at the start of a round."""
_ACTIONS: Final = {
    ActionName.CONSOLIDATION: Action.CONSOLIDATE,
    ActionName.RECLAIM: Action.RECLAIM,
    ActionName.PREEMPT: Action.PREEMPT,
    ActionName.STALE_GANG_EVICTION: Action.STALE,
}


def snapshot_of(vector: Vector, gpus: Gpus, state: State) -> Snapshot:
    """The snapshot of a state. Ages do not grow from round to round.

    Raises:
        VectorError: the vector asks for what the engine has no value for.
    """
    cluster = vector.cluster
    created = _creation_times(vector)
    return Snapshot(
        now=NOW,
        nodes=tuple(
            ClusterNode(
                NodeOfDevices(node.name, node.labels),
                cpu=node.cpu_milli,
                memory=node.memory_bytes,
                pods=node.max_pods,
            )
            for node in cluster.nodes
        ),
        slices=gpus.slices(cluster),
        classes=gpus.classes(cluster),
        claims=tuple(state.claims.values()),
        queues=_queues(vector, gpus),
        groups=tuple(_group(job, state, created[job.name]) for job in vector.jobs),
        pods=tuple(_pods(vector, state, created)),
        topologies={each.name: each.levels for each in cluster.topologies},
        settings=settings_of(vector),
    )


def settings_of(vector: Vector) -> EngineSettings:
    """How the engine decides in a vector.

    Raises:
        VectorError: it does something before it allocates, which the engine never does.
    """
    run, params = vector.run, vector.run.params
    actions = [_ACTIONS[name] for name in run.actions if name is not ActionName.ALLOCATE]
    allocates = ActionName.ALLOCATE in run.actions
    if allocates and run.actions[0] is not ActionName.ALLOCATE:
        raise VectorError(f"actions {', '.join(run.actions)}: allocate comes first")
    for_gpus = any(task.request.gpu or task.request.is_shared for _, task in tasks_of(vector))
    most = params.max_consolidation_preemptees
    return EngineSettings(
        actions=tuple(actions),
        allocates=allocates,
        placement=Policy(
            Order(params.gpu_placement if for_gpus else params.cpu_placement),
            Order.BINPACK if params.gpu_sharing == "pack" else Order.SPREAD,
        ),
        consolidation_limit=None if most == UNLIMITED else most,
        moves_reclaimed=params.allow_consolidating_reclaim,
        staleness_grace=params.staleness_grace_period_s,
        preempt_min_runtime=params.default_preempt_min_runtime_s,
        reclaim_min_runtime=params.default_reclaim_min_runtime_s,
        usage_weight=_fraction(params.k_value),
        search_steps=None,
    )


def _creation_times(vector: Vector) -> dict[str, float]:
    """When each job was created: its age, and among equal ages its rank."""
    jobs = sorted(vector.jobs, key=lambda job: job.age_rank)
    for older, younger in pairwise(jobs):
        if older.created_ago_s < younger.created_ago_s:
            raise VectorError(f"job {younger.name} is older than {older.name}, and ranks after it")
    return {job.name: NOW - job.created_ago_s + rank / 1_000_000 for rank, job in enumerate(jobs)}


def _queues(vector: Vector, gpus: Gpus) -> tuple[Queue, ...]:
    queues = vector.cluster.queues
    of_cpu = any(n != UNLIMITED for q in queues for n in (q.quota.cpu_milli, q.limit.cpu_milli))
    of_memory = any(
        n != UNLIMITED for q in queues for n in (q.quota.memory_bytes, q.limit.memory_bytes)
    )

    def entitlements(queue: QueueOfVector) -> Mapping[Resource, Entitlement]:
        quota, limit, weight = queue.quota, queue.limit, queue.weight
        given: dict[Resource, Entitlement] = {
            gpus.resource: Entitlement(
                None if quota.gpu == UNLIMITED else gpus.amount(quota.gpu),
                None if limit.gpu == UNLIMITED else gpus.amount(limit.gpu),
                _fraction(weight.gpu),
            )
        }
        if of_cpu:
            given[Cpu()] = _entitlement(quota.cpu_milli, limit.cpu_milli, weight.cpu)
        if of_memory:
            given[Memory()] = _entitlement(quota.memory_bytes, limit.memory_bytes, weight.memory)
        return given

    return tuple(
        Queue(
            queue.name,
            queue.parent,
            priority=queue.priority,
            created=float(queue.age_rank),
            entitlements=entitlements(queue),
            preempt_min_runtime=queue.preempt_min_runtime_s,
            reclaim_min_runtime=queue.reclaim_min_runtime_s,
        )
        for queue in queues
    )


def _entitlement(quota: Number, limit: Number, weight: Number) -> Entitlement:
    return Entitlement(
        None if quota == UNLIMITED else round(quota),
        None if limit == UNLIMITED else round(limit),
        _fraction(weight),
    )


def _fraction(number: Number) -> Fraction:
    return Fraction(str(number))


def _group(job: Job, state: State, created: float) -> Group:
    runs = any(state.tasks[task.name].status in ACTIVE for task in job.tasks)
    ran = _RUNS_FOR if job.last_start_ago_s is None else job.last_start_ago_s
    grace = job.staleness_grace_period_s
    stale = 0.0 if job.stale_for_s is None and is_stale(job, state) else job.stale_for_s
    return Group(
        key=f"{job.namespace}/{job.name}",
        queue=job.queue,
        root=_sub_group(job.tree),
        priority=job.priority,
        preemptible=job.preemptible,
        created=created,
        started=NOW - ran if runs else None,
        stale_since=None if stale is None else NOW - stale,
        staleness_grace=float("inf") if grace is not None and grace < 0 else grace,
        preemption_delay=job.preemption_delay_s,
    )


def is_stale(job: Job, state: State) -> bool:
    """Whether some of its tasks have a place, none succeeded, and a leaf has less than it needs."""
    statuses = {task.name: state.tasks[task.name].status for task in job.tasks}
    active = {name for name, status in statuses.items() if status in {*ACTIVE, Status.EVICTING}}
    if not active or Status.SUCCEEDED in statuses.values():
        return False
    return any(
        sum(task.subgroup == leaf.name and task.name in active for task in job.tasks) < leaf.min
        for leaf in job.tree.leaves()
    )


def _sub_group(part: Part) -> SubGroup:
    together = part.topology
    topology = (
        TopologyConstraint(together.topology, together.required, together.preferred)
        if together
        else None
    )
    if part.unit == "tasks":
        return PodSet(part.name, part.min, topology)
    return SubGroups(part.name, tuple(map(_sub_group, part.children)), part.min, topology)


def _pods(vector: Vector, state: State, created: Mapping[str, float]) -> list[Pod]:
    ranks: dict[tuple[str, int | None], int] = {}
    for job in vector.jobs:
        levels = {task.task_priority for task in job.tasks}
        first = sorted(levels, key=lambda level: (level is None, -(level or 0)))
        ranks |= {(job.name, level): rank for rank, level in enumerate(first)}
    return [
        Pod(
            pod_key(job, task),
            _needs(task, job.namespace),
            _pod_state(state.tasks[task.name]),
            group=f"{job.namespace}/{job.name}",
            pod_set=task.subgroup,
            claims=claims_of(job, task),
            rank=ranks[job.name, task.task_priority],
            created=created[job.name],
            labels=task.labels,
        )
        for job, task in tasks_of(vector)
    ]


def _needs(task: Task, namespace: str) -> PodNeeds:
    affinity = task.affinity or Affinity()
    others = [(term, False) for term in affinity.pod_affinity]
    others += [(term, True) for term in affinity.pod_anti_affinity]
    return PodNeeds(
        cpu=task.request.cpu_milli,
        memory=task.request.memory_bytes,
        affinity=None if affinity.node_names is None else _one_of(affinity.node_names),
        pod_affinity=tuple(
            PodAffinity(
                term.topology_key,
                PodSelection(with_labels(term.match_labels), (namespace,)),
                anti,
            )
            for term, anti in others
        ),
    )


def _one_of(names: tuple[str, ...]) -> NodeSelector:
    """Selects the nodes with these names; without any, none."""
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                match_fields=(
                    NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (name,)),
                )
            )
            for name in names
        )
    )


def _pod_state(task: TaskState) -> PodState:
    node = task.node or ""
    match task.status:
        case Status.PENDING | Status.NOMINATED:
            return Pending()
        case Status.GATED:
            return Gated()
        case Status.ALLOCATED | Status.BOUND | Status.RUNNING:
            return Placed(node)
        case Status.EVICTING:
            return Evicting(node)
        case Status.STUCK:
            return Evicting(node, stuck=True)
        case Status.SUCCEEDED | Status.FAILED:
            return Ended(succeeded=task.status is Status.SUCCEEDED)
    assert_never(task.status)

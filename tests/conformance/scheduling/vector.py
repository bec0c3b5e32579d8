"""A scheduling vector as values, read strictly (schema `sched-vector/1`).

A field or a word that is not known is an error: a rule that is read past would make a case pass
that it does not pass. Amounts are in GPUs, milli-CPU and bytes, times in seconds; -1 in a quota or
limit stands for no limit.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

SCHEMA: Final = "sched-vector/1"
UNLIMITED: Final = -1
NOT_APPLICABLE: Final = frozenset({"mig", "numa", "custom-conf", "pvc"})
"""Tags of cases about what the engine leaves to others, or does otherwise by design."""

Placement: TypeAlias = Literal["binpack", "spread"]
Number: TypeAlias = int | float


class VectorError(ValueError):
    """A vector that cannot be run: names the file or object, and why."""


class Status(StrEnum):
    """The state of a task."""

    PENDING = "pending"
    GATED = "gated"
    ALLOCATED = "allocated"
    """It starts: its binding is issued."""
    BOUND = "bound"
    RUNNING = "running"
    NOMINATED = "nominated"
    """It has a place, and waits for what is being freed there."""
    EVICTING = "evicting"
    STUCK = "stuck-evicting"
    """It does not end: what it holds must not be promised to anyone."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ACTIVE: Final = frozenset({Status.ALLOCATED, Status.BOUND, Status.RUNNING})
"""It has its place and keeps it."""
LEAVING: Final = frozenset({Status.EVICTING, Status.STUCK})
ENDED: Final = frozenset({Status.SUCCEEDED, Status.FAILED})


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class Source(_Value):
    """Where the case comes from."""

    project: str
    license: str
    commit: str
    file: str
    line: int
    func: str
    index: int
    case: str
    expectations_from: str


class Node(_Value):
    """A node; `gpus` are whole ones."""

    name: str
    gpus: int
    gpu_memory_mib: Annotated[int, Field(alias="gpuMemoryMiB")]
    cpu_milli: int
    memory_bytes: int
    max_pods: int
    labels: Mapping[str, str]


class Amounts(_Value):
    """A quota or a limit."""

    gpu: Number
    cpu_milli: Number
    memory_bytes: Number


class Weight(_Value):
    """Parts of what is over the quotas."""

    gpu: Number
    cpu: Number
    memory: Number


class Queue(_Value):
    """A queue; `age_rank` 0 is the oldest."""

    name: str
    parent: str | None
    priority: int
    age_rank: int
    quota: Amounts
    limit: Amounts
    weight: Weight
    preempt_min_runtime_s: float | None
    reclaim_min_runtime_s: float | None
    implicit: bool = False


class Topology(_Value):
    """Keys of node labels, the widest level first."""

    name: str
    levels: tuple[str, ...]


class DeviceClass(_Value):
    """A DeviceClass; every device matches."""

    name: str
    selectors: Annotated[tuple[str, ...], Field(max_length=0)]


class ResourceSlice(_Value):
    """The devices of one node."""

    name: str
    node: str
    driver: str
    pool: str
    devices: tuple[str, ...]


class AllocatedDevice(_Value):
    """A device of a claim."""

    driver: str
    pool: str
    device: str


class Claim(_Value):
    """A claim for `count` devices of a class."""

    name: str
    namespace: str
    device_class: str
    count: int
    labels: Mapping[str, str]
    allocation: tuple[AllocatedDevice, ...] | None
    reserved_for: tuple[str, ...]


class Cluster(_Value):
    """What jobs run on."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    topologies: tuple[Topology, ...]
    device_classes: tuple[DeviceClass, ...]
    resource_slices: tuple[ResourceSlice, ...]
    claims: tuple[Claim, ...]


class TopologyConstraint(_Value):
    """All below are in one domain of a level."""

    topology: str
    required: str | None
    preferred: str | None


class Part(_Value):
    """A part of a job: `min` of its tasks or children are needed."""

    name: str
    unit: Literal["children", "tasks"]
    min: Annotated[int, Field(ge=0)]
    topology: TopologyConstraint | None
    children: tuple["Part", ...]

    def leaves(self) -> Iterator["Part"]:
        """The parts that have tasks."""
        if self.unit == "tasks":
            yield self
        for child in self.children:
            yield from child.leaves()


class PodAffinityTerm(_Value):
    """The pods with these labels, and the domain that is meant."""

    topology_key: str
    match_labels: Mapping[str, str]


class Affinity(_Value):
    """What is required of the node; with `node_names` it is one of these, and of none if empty."""

    node_names: tuple[str, ...] | None = None
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()


class Request(_Value):
    """What a task asks for.

    Of GPUs that is `gpu` whole ones, or a fraction or an amount of memory of each of
    `shared_devices`.
    """

    gpu: int
    gpu_fraction: float | None
    gpu_memory_mib: Annotated[int | None, Field(alias="gpuMemoryMiB")]
    shared_devices: int | None
    cpu_milli: int
    memory_bytes: int
    claims: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Whether it asks for parts of GPUs."""
        return self.gpu_fraction is not None or self.gpu_memory_mib is not None


class Task(_Value):
    """A pod of a job."""

    name: str
    subgroup: str
    state: Status
    node: str | None
    task_priority: int | None
    request: Request
    gpu_groups: tuple[str, ...] = ()
    affinity: Affinity | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    qos_class: str | None = None
    """It follows from the requests, and decides nothing but NUMA placement."""


class Job(_Value):
    """A group of tasks of one queue; `age_rank` 0 is the oldest."""

    name: str
    queue: str
    namespace: str = "default"
    priority: int
    preemptible: bool
    age_rank: int
    created_ago_s: float
    last_start_ago_s: float | None
    stale_for_s: float | None
    staleness_grace_period_s: float | None
    preemption_delay_s: float
    after_eviction: Literal["pending", "stays-evicting"]
    tree: Part
    tasks: tuple[Task, ...]


class Parameters(_Value):
    """How the scheduler decides. Values that would need another scheduler are not accepted."""

    max_consolidation_preemptees: int
    allow_consolidating_reclaim: bool
    gpu_placement: Placement
    cpu_placement: Placement
    gpu_sharing: Literal["pack", "spread"]
    staleness_grace_period_s: float
    scheduling_signatures: bool
    """A way to save work."""
    k_value: float
    reclaim_resolve_method: Literal["lca"]
    reclaimer_saturation_multiplier: Annotated[float, Field(ge=1, le=1)]
    default_preempt_min_runtime_s: float
    default_reclaim_min_runtime_s: float
    dra_enabled: bool
    """Whether the source could allocate claims: the cases with claims have it."""
    quota_enforced: Literal[True]
    node_predicates: bool
    """Without, the source ran without checks that would not have mattered."""


class ActionName(StrEnum):
    """An action of a round."""

    ALLOCATE = "allocate"
    CONSOLIDATION = "consolidation"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE_GANG_EVICTION = "stalegangeviction"


class Run(_Value):
    """What is run, and when it is compared."""

    actions: tuple[ActionName, ...]
    compare: Literal["after-actions", "after-settle"]
    rounds_until: Annotated[int, Field(ge=1)]
    rounds_after: Annotated[int, Field(ge=0)]
    params: Parameters


class Outcome(_Value):
    """What becomes of a task, or of every task of a job."""

    status: Status
    node: str | None = None
    node_strict: bool = False
    gpus: Number
    gpus_accepted: Number | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    gpu_groups: tuple[str, ...] = ()
    reason_text: str | None = None
    last_start_older_than_s: float | None = None
    """Follows from the status: who is not evicted keeps the time at which it started."""


class NodeOutcome(_Value):
    """What is left of a node."""

    idle_gpus: int
    evicting_gpus: int


class Domain(_Value):
    """All of the tasks of a subgroup are on nodes with this value of a label."""

    type: Literal["domain"]
    job: str
    subgroup: str
    label: str
    value: str
    tasks: int


class NodeSet(_Value):
    """The tasks are on exactly these nodes."""

    type: Literal["nodeSet"]
    job: str
    nodes: tuple[str, ...]
    subgroup: str | None = None
    tasks: int | None = None


class DistinctDomains(_Value):
    """The subgroups are in different domains, which are these."""

    type: Literal["distinctDomains"]
    job: str
    subgroups: tuple[str, ...]
    label: str
    values: tuple[str, ...] | None = None


Constraint: TypeAlias = Annotated[Domain | NodeSet | DistinctDomains, Field(discriminator="type")]


class Expectations(_Value):
    """What must come of it."""

    jobs: Mapping[str, Outcome]
    tasks: Mapping[str, Outcome]
    nodes: Mapping[str, NodeOutcome]
    max_per_round: Mapping[str, int]
    """How much the source did in a round at most: policy."""
    unconstrained_tasks: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()
    unverified: Mapping[str, object] = Field(default_factory=dict)
    """What the source never checks."""


class Strictness(_Value):
    """Which expectations must match, and which of them pick among equals."""

    status: bool
    node: bool
    gpu_groups: Literal["advisory"]
    max_per_round: Literal[False]
    reason_text: Literal[False]
    age_tie_break: bool
    task_tie_break: bool
    queue_tie_break: bool


class Vector(_Value):
    """A case."""

    format: Annotated[Literal["sched-vector/1"], Field(alias="schema")]
    name: str
    kind: Literal[
        "integration", "allocate", "reclaim", "preempt", "consolidation", "stalegangeviction"
    ]
    source: Source
    tags: tuple[str, ...]
    notes: tuple[str, ...] = ()
    cluster: Cluster
    jobs: tuple[Job, ...]
    run: Run
    expect: Expectations
    strict: Strictness

"""All that a decision depends on, at one time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from carina_dra.allocator.features import DEFAULT_FEATURES, Features
from carina_dra.allocator.preference import DEFAULT, Policy
from carina_dra.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from controller.engine.model.group import Group
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Action, CarriedOver
from controller.engine.model.pod import Pod
from controller.engine.model.queue import Queue
from controller.engine.model.resource import Resource
from controller.engine.model.volume import Storage


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine decides, for all queues."""

    actions: tuple[Action, ...] = (
        Action.CONSOLIDATE,
        Action.RECLAIM,
        Action.PREEMPT,
        Action.STALE,
    )
    """What is tried for groups that have no room, in this order; STALE evicts what is broken."""
    allocates: bool = True
    """Whether groups start where there is room."""
    placement: Policy = DEFAULT
    consolidation_limit: int | None = 16
    """How many pods move at most for one group; None for no limit."""
    moves_reclaimed: bool = True
    """Whether victims that get another place in the same plan do not count as reclaimed."""
    staleness_grace: float = 60
    """Seconds."""
    move_seconds: float = 60
    """For which a place is kept for the pod that replaces one that moves, once that is gone."""
    move_interval: float = 3_600
    """Seconds after an eviction for which a group does not move."""
    replace_interval: float = 600
    """Seconds after an eviction for which a group with `on_device_failure: replace` is not replaced
    when a device of it fails."""
    preempt_min_runtime: float = 0
    """Seconds, for queues that say nothing."""
    reclaim_min_runtime: float = 0
    usage_weight: Fraction = Fraction(0)
    """How much past usage matters for what is over the quotas."""
    driver: str = "gpu.carina.dev"
    """The name of the driver whose devices are GPUs; those of NVIDIA's driver are, too."""
    exclusive: bool = False
    """Whether kube-scheduler cannot allocate GPUs, which only claims of queues get (exclusive
    mode): the claims that it makes for extended resources tolerate no taint."""
    search_steps: int | None = 2_000
    """How many places the searches for victims look for in a cycle, with the evictions that they
    try, at most; None for no limit."""
    attempt_steps: int = 50_000
    """What one attempt to place what a group asks for next may cost, in steps of about 10
    microseconds, whatever the size of the cluster."""
    attempt_steps_per_node: int = 200
    """What it may cost in addition, for each node of the cluster. The first attempt of a group may
    cost a quarter of both."""
    attempt_steps_per_pod: int = 120
    """What it may cost in addition, for each pod of the group that waits, unless it is the first.
    A pod of a gang takes 40 steps, or 100 if others are evicted for it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one time. The order of the objects does not matter."""

    now: float
    """Unix time in seconds."""
    nodes: tuple[ClusterNode, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    queues: tuple[Queue, ...] = ()
    groups: tuple[Group, ...] = ()
    pods: tuple[Pod, ...] = ()
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name: the keys of node labels, the widest level first."""
    budgets: Mapping[str, int] = field(default_factory=dict)
    """By name: how many pods may still be disrupted."""
    usage: Mapping[str, Mapping[Resource, Fraction]] = field(default_factory=dict)
    """By queue: its decayed usage of the past, as a part of what the cluster had."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name: the labels of a namespace; one that is not known has its name as one."""
    storage: Storage = field(default_factory=Storage)
    """What says where the volumes of pods can be."""
    features: Features = DEFAULT_FEATURES
    settings: EngineSettings = field(default_factory=EngineSettings)
    memory: CarriedOver = field(default_factory=CarriedOver)

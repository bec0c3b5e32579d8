"""PodGroup: pods of one namespace and one queue that start together, or not at all.

apiVersion: scheduling.carina.dev/v1alpha1
kind: PodGroup
metadata: {namespace: research, name: train}
spec:
  subGroups:
  - name: workers
    minCount: 8
    topologyConstraint: {topology: racks, requiredLevel: example.com/rack}
  - {name: driver, minCount: 1}
  runTime: 6h

The queue of a group is that of its pods, which name it and their group with labels.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from carina_dra.allocator.preference import Policy
from carina_dra.resource import JsonObject, ObjectMeta
from carina_dra.resource.errors import BadValueError
from controller.api import sub_group
from controller.api.condition import StatusCondition
from controller.api.status import status_body
from controller.api.sub_group import PodCount, SubGroupSpec, Topology
from controller.engine.files.amount import DURATION, Seconds, read_duration, write_duration
from controller.engine.files.checked import LONGEST_LABEL, Checked, Rule, items
from controller.engine.files.queue import API_VERSION, PlacementSetting
from controller.engine.files.value import codec_of
from controller.engine.model.group import OnDeviceFailure, PodSet, SubGroup

KIND: Final = "PodGroup"
NEVER: Final = "never"
"""The grace period of a group that is never evicted for being stale."""
_MOST_SUB_GROUPS: Final = 64


def _read_grace(value: object) -> float:
    return math.inf if value == NEVER else read_duration(value)


_Grace: TypeAlias = Annotated[
    float,
    Checked(
        _read_grace,
        lambda seconds: NEVER if seconds == math.inf else write_duration(seconds),
        {**DURATION.schema, "pattern": f"^({NEVER}|{DURATION.schema['pattern'][1:-1]})$"},
    ),
]
_OnDeviceFailure: TypeAlias = Annotated[
    OnDeviceFailure,
    Checked(
        codec_of(OnDeviceFailure).read,
        codec_of(OnDeviceFailure).write,
        {"type": "string", "enum": [value.value for value in OnDeviceFailure]},
    ),
]


@dataclass(frozen=True, slots=True)
class PodGroupSpec:
    """What a group needs to start, and how it is treated.

    Raises:
        ValueError: the counts and sub-groups do not fit together.
    """

    RULES: ClassVar = (
        Rule(
            "has(self.minCount) != has(self.subGroups)",
            "write either minCount, if all pods are alike, or subGroups",
        ),
        *sub_group.RULES,
        Rule(
            "self.preemptible == oldSelf.preemptible",
            "preemptible cannot be changed; delete the PodGroup and its pods, and create them",
        ),
    )

    min_count: PodCount | None = None
    """How many pods start together. More pods start one by one, as there is room. With 0, all pods
    are optional."""
    sub_groups: (
        Annotated[
            tuple[SubGroupSpec, ...],
            items(lambda: codec_of(SubGroupSpec), _MOST_SUB_GROUPS, least=1, key="name"),
        ]
        | None
    ) = None
    """The parts of a group whose pods are not alike, or are close to each other by parts."""
    min_sub_groups: PodCount | None = None
    """How many of the sub-groups without a parent must have what they need. All of them if it is
    absent."""
    topology_constraint: Topology | None = None
    """How close all pods of the group are to each other."""
    preemptible: bool = True
    """Whether pods of the group may be evicted for other groups. If not, the group starts only
    within the quota of its queue. It cannot be changed."""
    staleness_grace_period: _Grace | None = None
    """After which time a group that has some pods, but fewer than it needs, is evicted if others
    need its place, such as `5m`, or `never`. If it is absent, that of the controller's settings
    holds."""
    preemption_delay: Seconds = 0
    """How long the group waits before others are evicted for it, such as `10m`."""
    run_time: Seconds | None = None
    """How long the group runs, as far as it is known, such as `90m`. Queues with `reserves` let it
    start before others that wait, if it ends in time."""
    placement: PlacementSetting | None = None
    """Which nodes and devices come first: `balanced`, `binpack`, `spread`, `fragmentation`,
    `upstream`, or an order of nodes and one of devices, such as `spread/binpack`. If it is absent,
    that of the queue holds."""
    on_device_failure: _OnDeviceFailure = OnDeviceFailure.WAIT
    """What becomes of the group when the driver of a device that it has taints the device. `wait`:
    the group is `Degraded`, and goes on. `replace`: its pods are evicted, as far as disruption
    budgets allow, and it is planned again, without that device."""

    def __post_init__(self) -> None:
        if (self.min_count is None) == (self.sub_groups is None):
            raise ValueError("write either minCount, if all pods are alike, or subGroups")
        sub_group.check(self.sub_groups or (), self.min_sub_groups)

    def root(self) -> SubGroup:
        """The tree of pod sets. A group without sub-groups is one pod set without a name."""
        topology = self.topology_constraint
        constraint = None if topology is None else topology.constraint()
        if self.sub_groups is None:
            return PodSet("", self.min_count or 0, constraint)
        return sub_group.tree(self.sub_groups, self.min_sub_groups, constraint)


class GroupPhase(StrEnum):
    """Where a group is in its life."""

    PENDING = "Pending"
    """Less than its minimum has a place."""
    RUNNING = "Running"
    """Its minimum has nodes and devices; the pods start there or run."""
    SUCCEEDED = "Succeeded"
    """All of its pods have ended, and at least its minimum succeeded."""
    FAILED = "Failed"
    """All of its pods have ended, and less than its minimum succeeded."""
    REFUSED = "Refused"
    """It cannot be decided on until its pods or its spec are corrected."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """How many pods of a group are in each state."""

    pending: PodCount = 0
    """Pods that wait for a place."""
    gated: PodCount = 0
    """Pods that are held by a scheduling gate of another controller, or are not ready to be
    placed."""
    placed: PodCount = 0
    """Pods that have a node and devices."""
    evicting: PodCount = 0
    """Pods that are leaving because they were evicted."""
    succeeded: PodCount = 0
    """Pods that ended with success."""
    failed: PodCount = 0
    """Pods that ended without success."""


@dataclass(frozen=True, slots=True)
class PodGroupStatus:
    """What the controller says of a group."""

    phase: GroupPhase | None = None
    """`Pending`, `Running`, `Succeeded`, `Failed` or `Refused`. A group runs if its minimum has
    nodes and devices; it is refused if its pods or its spec must be corrected first."""
    queue: str = ""
    """The queue of the pods of the group."""
    pods: PodCounts = field(default_factory=PodCounts)
    """How many pods of the group are in each state."""
    conditions: Annotated[
        tuple[StatusCondition, ...], items(lambda: codec_of(StatusCondition), 8, key="type")
    ] = ()
    """Why the group is in its phase. `Admitted` is true if its minimum has nodes and devices.
    `Degraded` is there, and true, while its pods have a device that the driver has tainted."""

    def body(self) -> dict[str, Any]:
        """Returns the status as an object of the API; desired conditions have no times."""
        return status_body(self)


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one namespace and one queue that start together, or not at all.

    Pods are in a group if their label `scheduling.carina.dev/pod-group` has its name.
    """

    RULES: ClassVar = (
        Rule(
            f"self.metadata.name.size() <= {LONGEST_LABEL}",
            f"metadata.name must have at most {LONGEST_LABEL} characters: pods have it in a label",
        ),
    )

    spec: PodGroupSpec
    """What the group needs to start, and how it is treated."""
    status: PodGroupStatus = field(default_factory=PodGroupStatus)
    """What the controller says of the group."""


@dataclass(frozen=True, slots=True)
class DeclaredGroup:
    """What a PodGroup says of the engine's `Group`; everything else comes from its pods."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: float
    """Unix time in seconds."""
    root: SubGroup
    preemptible: bool = True
    staleness_grace: float | None = None
    """Seconds; infinite for never, None for the controller's."""
    preemption_delay: float = 0
    """Seconds."""
    run_time: float | None = None
    """Seconds."""
    placement: Policy | None = None
    on_device_failure: OnDeviceFailure = OnDeviceFailure.WAIT

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class _Document:
    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: PodGroupSpec
    status: JsonObject = field(default_factory=dict)


def read_pod_group(body: object) -> DeclaredGroup:
    """Reads a PodGroup object; its status is not looked at.

    Raises:
        BadValueError: the object is not a valid PodGroup.
    """
    document: _Document = codec_of(_Document).read(body)
    if (document.api_version, document.kind) != (API_VERSION, KIND):
        raise BadValueError(f"is not apiVersion: {API_VERSION}, kind: {KIND}")
    metadata, spec = document.metadata, document.spec
    if not 1 <= len(metadata.name) <= LONGEST_LABEL:
        raise BadValueError(
            f"metadata.name has {len(metadata.name)} characters; write 1 to {LONGEST_LABEL}, since "
            "pods have it in a label"
        )
    created = metadata.creation_timestamp
    return DeclaredGroup(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created=created.timestamp() if created else 0,
        root=spec.root(),
        preemptible=spec.preemptible,
        staleness_grace=spec.staleness_grace_period,
        preemption_delay=spec.preemption_delay,
        run_time=spec.run_time,
        placement=spec.placement,
        on_device_failure=spec.on_device_failure,
    )

"""ResourceSlice: part of a pool of devices that a driver publishes (KEP-4381)."""

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from carina_dra.resource.counter import CounterSet
from carina_dra.resource.device import Device, OnAllNodes, OnMatchingNodes, OnNode
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.node_operation import NodeOperation
from carina_dra.resource.schema import Member, Struct, Unrecognized


@dataclass(frozen=True, slots=True)
class PerDevice(Member):
    """Each device says for itself where it is usable."""

    json_key: ClassVar[str] = "perDeviceNodeSelection"


SliceNodes: TypeAlias = OnNode | OnMatchingNodes | OnAllNodes | PerDevice


@dataclass(frozen=True, slots=True)
class ResourcePool(Struct):
    """The pool that a slice is part of: complete when its newest generation has all its slices."""

    name: str
    generation: int
    resource_slice_count: int


@dataclass(frozen=True, slots=True)
class ResourceSliceSpec(Struct):
    """Devices, or the counter sets that devices of the pool draw from."""

    driver: str
    pool: ResourcePool
    nodes: SliceNodes | None
    """Where its devices are usable; None where that is said in a way that only a newer API knows,
    so that they are usable nowhere."""
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    """Devices with the same value of this attribute draw the same from their counters (gate
    DRAPartitionableDevicesType)."""
    skip_node_operations: tuple[NodeOperation | Unrecognized, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceSlice(Struct):
    """Part of a pool."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceSlice"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = field(kw_only=True)

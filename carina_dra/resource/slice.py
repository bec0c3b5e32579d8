"""ResourceSlice: a part of a driver's pool of devices (KEP-4381)."""

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from carina_dra.resource.counter import CounterSet
from carina_dra.resource.device import Device, OnAllNodes, OnMatchingNodes, OnNode
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.node_operation import NodeOperation
from carina_dra.resource.schema import Struct, UnionMember, Unrecognized


@dataclass(frozen=True, slots=True)
class PerDevice(UnionMember):
    """Each device has its own node selection."""

    json_key: ClassVar[str] = "perDeviceNodeSelection"


SliceNodes: TypeAlias = OnNode | OnMatchingNodes | OnAllNodes | PerDevice


@dataclass(frozen=True, slots=True)
class ResourcePool(Struct):
    """The pool of a slice. It is complete when all slices of its newest generation exist."""

    name: str
    generation: int
    resource_slice_count: int


@dataclass(frozen=True, slots=True)
class ResourceSliceSpec(Struct):
    """Devices, or the counter sets that devices of the pool consume."""

    driver: str
    pool: ResourcePool
    nodes: SliceNodes | None
    """Where the devices are usable; None for a way to select nodes that only a newer API knows:
    then they are usable on no node."""
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    """Devices with the same value of this attribute consume the same counters (feature gate
    DRAPartitionableDevicesType)."""
    skip_node_operations: tuple[NodeOperation | Unrecognized, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceSlice(Struct):
    """A part of a pool."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceSlice"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = field(kw_only=True)

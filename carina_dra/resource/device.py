"""A device as a driver publishes it (KEP-4381)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from carina_dra.resource.attribute import DeviceAttribute
from carina_dra.resource.capacity import DeviceCapacity
from carina_dra.resource.counter import DeviceCounterConsumption
from carina_dra.resource.node_allocatable import NodeAllocatableResource
from carina_dra.resource.node_selector import NodeSelector
from carina_dra.resource.schema import Struct, UnionMember
from carina_dra.resource.taint import DeviceTaint


@dataclass(frozen=True, slots=True)
class OnNode(UnionMember):
    """Usable on one node."""

    node_name: str
    json_key: ClassVar[str] = "nodeName"


@dataclass(frozen=True, slots=True)
class OnMatchingNodes(UnionMember):
    """Usable on the nodes that a selector with one term matches."""

    node_selector: NodeSelector
    json_key: ClassVar[str] = "nodeSelector"


@dataclass(frozen=True, slots=True)
class OnAllNodes(UnionMember):
    """Usable on all nodes."""

    json_key: ClassVar[str] = "allNodes"


DeviceNodes: TypeAlias = OnNode | OnMatchingNodes | OnAllNodes


@dataclass(frozen=True, slots=True)
class Device(Struct):
    """One device of a slice. Its maps have qualified names as keys: see `attribute.lookup`."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    nodes: DeviceNodes | None = None
    """Where it is usable, if its slice leaves this to the devices (PerDevice)."""
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    """Whether an allocation with it is usable only on the node that it was made for."""
    binding_conditions: tuple[str, ...] = ()
    """Conditions that must hold before a pod is bound (KEP-5007)."""
    binding_failure_conditions: tuple[str, ...] = ()
    """If one of these conditions holds, binding fails."""
    allow_multiple_allocations: bool | None = None
    """Whether several allocations can share its capacity (KEP-5075)."""
    node_allocatable_resources: Mapping[str, NodeAllocatableResource] = field(default_factory=dict)
    """By the name of the node's resource."""

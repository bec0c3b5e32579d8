"""A device as a driver publishes it: attributes, capacities, counters, taints (KEP-4381)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from carina_dra.quantity import Quantity
from carina_dra.resource.attribute import DeviceAttribute
from carina_dra.resource.codec import Member, OneOf, Struct, inline
from carina_dra.resource.node_selector import NodeSelector
from carina_dra.resource.taint import DeviceTaint


@dataclass(frozen=True, slots=True)
class OnNode(Member):
    """Usable on one node."""

    node_name: str
    json_key: ClassVar[str] = "nodeName"


@dataclass(frozen=True, slots=True)
class OnMatchingNodes(Member):
    """Usable on the nodes that a selector with one term chooses."""

    node_selector: NodeSelector
    json_key: ClassVar[str] = "nodeSelector"


@dataclass(frozen=True, slots=True)
class OnAllNodes(Member):
    """Usable everywhere."""

    json_key: ClassVar[str] = "allNodes"


DeviceNodes: TypeAlias = OnNode | OnMatchingNodes | OnAllNodes


@dataclass(frozen=True, slots=True)
class ValidValues(Member):
    """The amounts that may be asked for, ascending; others are rounded up to the next."""

    values: tuple[Quantity, ...]
    json_key: ClassVar[str] = "validValues"


@dataclass(frozen=True, slots=True)
class CapacityRange(Struct):
    """Amounts from `min` to `max`, in steps from `min`."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True)
class ValidRange(Member):
    """The range in which amounts may be asked for."""

    range: CapacityRange
    json_key: ClassVar[str] = "validRange"


@dataclass(frozen=True, slots=True)
class CapacityRequestPolicy(Struct):
    """How much of a capacity may be asked for, and how much is taken unasked (KEP-5075)."""

    default: Quantity | None = None
    valid: ValidValues | ValidRange | None = field(
        default=None, metadata=inline(OneOf(ValidValues, ValidRange, optional=True))
    )


@dataclass(frozen=True, slots=True)
class DeviceCapacity(Struct):
    """So much of something."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class Counter(Struct):
    """So much of what devices share."""

    value: Quantity


@dataclass(frozen=True, slots=True)
class CounterSet(Struct):
    """What devices of a pool draw from (KEP-4815)."""

    name: str
    counters: Mapping[str, Counter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceCounterConsumption(Struct):
    """What a device draws from one counter set."""

    counter_set: str
    counters: Mapping[str, Counter] = field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()
    """Devices on one set need a group in common (gate DRADeviceCompatibilityGroups)."""


@dataclass(frozen=True, slots=True)
class CapacityMultiplier(Struct):
    """So much of a node resource for each unit of a capacity, or for the device."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


@dataclass(frozen=True, slots=True)
class NodeAllocatableOverhead(Struct):
    """What using the device costs in a node resource."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


@dataclass(frozen=True, slots=True)
class NodeAllocatableResource(Struct):
    """How a device counts in a resource of the node (gate DRANodeAllocatableResources)."""

    mapping: CapacityMultiplier | None = None
    overhead: NodeAllocatableOverhead | None = None


@dataclass(frozen=True, slots=True)
class Device(Struct):
    """One device of a slice."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    nodes: DeviceNodes | None = field(
        default=None,
        metadata=inline(OneOf(OnNode, OnMatchingNodes, OnAllNodes, optional=True)),
    )
    """Where it is usable, in a slice that leaves this to its devices."""
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Mapping[str, NodeAllocatableResource] = field(default_factory=dict)

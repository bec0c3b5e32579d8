"""What a claim was given: `status.allocation`, and what drivers say of its devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from carina_dra.quantity import Quantity
from carina_dra.resource.device_class import OpaqueConfiguration
from carina_dra.resource.metadata import Condition
from carina_dra.resource.node_operation import NodeOperation
from carina_dra.resource.node_selector import NodeSelector
from carina_dra.resource.schema import JsonObject, Struct, Unrecognized, json_name
from carina_dra.resource.taint import DeviceToleration


class AllocationConfigSource(StrEnum):
    """Who wrote a configuration."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@dataclass(frozen=True, slots=True)
class DeviceResult(Struct):
    """One device given to one request."""

    request: str
    """`req`, or `req/sub` where an alternative was chosen."""
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    """The request's."""
    binding_conditions: tuple[str, ...] = ()
    """The device's, as are those of failure."""
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, metadata=json_name("shareID"))
    """Which share of a device that allows multiple allocations: a UID."""
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    """What the share has of each of the device's capacities."""
    skip_node_operations: tuple[NodeOperation | Unrecognized, ...] = ()
    """The slice's."""


@dataclass(frozen=True, slots=True)
class AllocationConfiguration(Struct):
    """A configuration that is in force for some requests; for all where none is named."""

    source: AllocationConfigSource
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None
    """None where it is of a kind that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class DeviceAllocation(Struct):
    """All devices of a claim, and how they are to be set up."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[AllocationConfiguration, ...] = ()
    """Those of classes first; of several for one request the later ones have precedence."""


@dataclass(frozen=True, slots=True)
class Allocation(Struct):
    """What a claim was given. Never changes once it is there; it may be taken away."""

    devices: DeviceAllocation = field(default_factory=DeviceAllocation)
    node_selector: NodeSelector | None = None
    """Where it is usable; everywhere if not given."""
    allocation_timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class NetworkDeviceData(Struct):
    """What a driver says of a network device."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    """Addresses with the length of their network's prefix, such as 192.0.2.5/24."""
    hardware_address: str = ""


@dataclass(frozen=True, slots=True)
class AllocatedDeviceStatus(Struct):
    """What a driver says of one device of a claim (KEP-4817)."""

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, metadata=json_name("shareID"))
    conditions: tuple[Condition, ...] = ()
    data: JsonObject | None = None
    network_data: NetworkDeviceData | None = None

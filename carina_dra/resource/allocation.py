"""The allocation of a claim (`status.allocation`), and what drivers report about its devices."""

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
    """The object that a configuration comes from."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@dataclass(frozen=True, slots=True)
class DeviceResult(Struct):
    """One device, allocated for one request."""

    request: str
    """`request`, or `request/subrequest` if an alternative was chosen."""
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    """Copied from the request."""
    binding_conditions: tuple[str, ...] = ()
    """Copied from the device, like `binding_failure_conditions`."""
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, metadata=json_name("shareID"))
    """The UID of the share, for a device that allows multiple allocations."""
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    """The share's part of each capacity of the device."""
    skip_node_operations: tuple[NodeOperation | Unrecognized, ...] = ()
    """Copied from the slice."""


@dataclass(frozen=True, slots=True)
class AllocationConfiguration(Struct):
    """A configuration that applies to some requests; to all if none is named."""

    source: AllocationConfigSource
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None
    """None for a kind of configuration that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class DeviceAllocation(Struct):
    """The allocated devices of a claim, and their configuration."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[AllocationConfiguration, ...] = ()
    """Those of classes come first. For one request, later entries have precedence."""


@dataclass(frozen=True, slots=True)
class Allocation(Struct):
    """The allocation of a claim. It is immutable once set, but can be removed."""

    devices: DeviceAllocation = field(default_factory=DeviceAllocation)
    node_selector: NodeSelector | None = None
    """The nodes where the devices are usable; all nodes if None."""
    allocation_timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class NetworkDeviceData(Struct):
    """What a driver reports about a network device."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    """Addresses in CIDR notation, such as 192.0.2.5/24."""
    hardware_address: str = ""


@dataclass(frozen=True, slots=True)
class AllocatedDeviceStatus(Struct):
    """What a driver reports about one device of a claim (KEP-4817)."""

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, metadata=json_name("shareID"))
    conditions: tuple[Condition, ...] = ()
    data: JsonObject | None = None
    network_data: NetworkDeviceData | None = None

"""A claim as this node sees it: its reference, its allocated devices and its prepared devices.

Pure values. A `NodeClaim` is read from a ResourceClaim's allocation when the kubelet asks to
prepare the claim. It is recorded before anything is created for it, and kept until it is
unprepared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from carina_dra.config.device import (
    DeviceConfig,
    GpuConfig,
    MigDeviceConfig,
    ShareConfig,
    demands_mps,
    time_slice,
)
from carina_dra.quantity import Quantity
from kubelet_plugin.devices.conflict import DeviceHold
from kubelet_plugin.devices.name import (
    MonitorName,
    PartitionName,
    ShareName,
    UnknownName,
    WholeGpuName,
    gpu_name,
    parse_name,
)
from kubelet_plugin.devices.room import DeviceUse


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """The identity of a claim, as the kubelet passes it."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, for messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A prepared device, as the plugin returns it to the kubelet."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One allocation result of this driver: a device allocated to one request of the claim."""

    request: str
    """Name of the request, without the name of the subrequest (`req`, never `req/sub`)."""
    pool: str
    device: str
    """Name of the device in its pool, such as `gpu-3`."""
    config: DeviceConfig
    """The configuration, of a kind that the device accepts."""
    admin_access: bool = False
    """Whether this is admin access (KEP-5018), which does not hold the device."""
    share_id: str | None = None
    """ID of this share of a device that allows multiple allocations (KEP-5075)."""
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    """The share's part of the device's capacities, by name (KEP-5075)."""

    @property
    def uses_mps(self) -> bool:
        """Whether containers compute on the device through the MPS daemon of the claim."""
        return not self.admin_access and demands_mps(self.config)


def accepted_config(device: str) -> type[DeviceConfig]:
    """Returns the kind of configuration that the device with this name accepts."""
    name = parse_name(device)
    match name:
        case WholeGpuName() | MonitorName():
            return GpuConfig
        case PartitionName():
            return MigDeviceConfig
        case ShareName():
            return ShareConfig
        case UnknownName():
            return GpuConfig  # it is refused later, as missing
    assert_never(name)


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A claim with its devices on this node: the input for preparing and unpreparing it."""

    uid: str
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...]
    """In the order of the allocation's results. Empty if they are not known."""
    pod_claim: str | None = None
    """Name of the claim in its pod (`spec.resourceClaims[].name`), if a template made the claim."""
    subrequests: Mapping[str, str] = field(default_factory=dict)
    """Names of the alternatives that were allocated, by the name of their request."""
    pods: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """UIDs of the pods for which the claim is reserved, if nothing else uses it, as read for this
    call; None if that is not known. Not recorded."""
    # The two follow from `devices`. Every call asks for them of all recorded claims.
    gpus: frozenset[str] = field(init=False, repr=False, compare=False)
    """Names of the GPUs on which the claim has a device."""
    holds: tuple[DeviceHold, ...] = field(init=False, repr=False, compare=False)
    """The devices that no other claim may hold: all except those with admin access."""

    def __post_init__(self) -> None:
        names = [parse_name(device.device) for device in self.devices]
        object.__setattr__(self, "gpus", frozenset(map(gpu_name, names)))
        holds = (
            DeviceHold(name, device.share_id, time_slice(device.config))
            for name, device in zip(names, self.devices, strict=True)
            if not device.admin_access
        )
        object.__setattr__(self, "holds", tuple(holds))

    @classmethod
    def unknown(cls, claim: ClaimReference) -> "NodeClaim":
        """Returns a claim whose devices are not known."""
        return cls(claim.uid, claim.namespace, claim.name, ())

    @property
    def reference(self) -> ClaimReference:
        """The identity of the claim, as the kubelet passes it."""
        return ClaimReference(self.uid, self.namespace, self.name)

    @property
    def key(self) -> str:
        """`namespace/name`, for messages."""
        return self.reference.key

    def holds_as(self, other: "NodeClaim") -> bool:
        """Returns whether the two have the same devices allocated, with the same time slices.

        Other configuration may differ. It changes nothing on a GPU.
        """
        return self.holds == other.holds and self.has_same_devices(other)

    def has_same_devices(self, other: "NodeClaim") -> bool:
        """Returns whether the two have the same devices allocated, however configured."""
        devices, others = map(_unconfigured, self.devices), map(_unconfigured, other.devices)
        return list(devices) == list(others)

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """What the claim takes of the devices that it holds."""
        return tuple(
            DeviceUse(device.device, device.consumed_capacity)
            for device in self.devices
            if not device.admin_access
        )


def _unconfigured(device: AllocatedDevice) -> AllocatedDevice:
    return replace(device, config=accepted_config(device.device)())

"""A claim as this node sees it: what the kubelet calls it, what it was allocated, what it gets.

Pure values. A `NodeClaim` is read from a ResourceClaim's allocation when the kubelet asks for the
claim to be prepared, recorded before anything is made for it, and kept until it is unprepared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from carina_dra.config.device import DeviceConfig
from carina_dra.quantity import Quantity
from kubelet_plugin.devices.conflict import Hold
from kubelet_plugin.devices.name import gpu_name, parse_name


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """A claim as the kubelet names it."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as messages name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A prepared device, as the kubelet hands it to the container runtime."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One allocation result of this driver: a device allocated to one request of the claim."""

    request: str
    """Name of the request, without the chosen alternative's (`req`, never `req/sub`)."""
    pool: str
    device: str
    """Name of the device in its pool, such as `gpu-3`."""
    config: DeviceConfig
    """Of the kind that the device takes."""
    admin_access: bool = False
    """Allocated beside the other users of the device (KEP-5018): never holds it."""
    share_id: str | None = None
    """The API's id of this share of a device that allows multiple allocations (KEP-5075)."""
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    """What the share has of each of the device's capacities, by name (KEP-5075)."""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A claim with its devices on this node: all that is needed to prepare it, and to undo that."""

    uid: str
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...]
    """In the order of the allocation's results. Empty where it is not known what they were."""

    @classmethod
    def unknown(cls, claim: ClaimReference) -> "NodeClaim":
        """A claim of which no devices are known."""
        return cls(claim.uid, claim.namespace, claim.name, ())

    @property
    def reference(self) -> ClaimReference:
        """The claim as the kubelet names it."""
        return ClaimReference(self.uid, self.namespace, self.name)

    @property
    def key(self) -> str:
        """`namespace/name`, as messages name it."""
        return self.reference.key

    @property
    def gpus(self) -> frozenset[str]:
        """Names of the GPUs on which the claim has a device."""
        return frozenset(gpu_name(parse_name(device.device)) for device in self.devices)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The devices that nobody else may hold meanwhile: all but those for admin access."""
        return tuple(
            Hold(parse_name(device.device), device.share_id)
            for device in self.devices
            if not device.admin_access
        )

"""A claim as this node sees it: which of our devices it was given, for which request, how.

Pure values. They are read from a ResourceClaim's allocation (`allocation.py` of the API types) when
the kubelet asks for the claim to be prepared, and kept in the checkpoint until it is unprepared.
"""

from dataclasses import dataclass

from carina_dra.device_config import GpuConfig


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """One allocation result of this driver: a device given to one request of the claim."""

    request: str
    """Name of the request, without the chosen alternative's (`req`, never `req/sub`)."""
    pool: str
    device: str
    """Name of the device in its pool, such as `gpu-3`."""
    config: GpuConfig
    admin_access: bool = False
    """Granted beside whoever else uses the device (KEP-5018): never counts as an overlap."""
    share_id: str | None = None
    """The API's id of this share of a device that allows multiple allocations (KEP-5075)."""


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A claim that holds devices on this node, with all that is needed to prepare it again."""

    uid: str
    namespace: str
    name: str
    devices: tuple[ClaimDevice, ...]
    """In the order of the allocation's results."""

    @property
    def key(self) -> str:
        """`namespace/name`, as messages for people name it."""
        return f"{self.namespace}/{self.name}"

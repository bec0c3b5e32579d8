"""A claim as this node sees it: what the kubelet calls it, what it was given, what it gets.

Pure values, and the error that goes with them. A `PreparedClaim` is read from a ResourceClaim's
allocation when the kubelet asks for the claim to be prepared, and kept in the checkpoint until it
is unprepared.
"""

from dataclasses import dataclass

from carina_dra.config.device import GpuConfig


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """A claim as the kubelet names it."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as messages for people name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GrantedDevice:
    """A prepared device, as the kubelet hands it to the container runtime."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None


class ClaimError(Exception):
    """A claim could not be prepared or unprepared; the text goes to the pod's events."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        """`may_pass`: whether the same call may succeed in a while, with nobody doing anything."""
        super().__init__(message)
        self.may_pass = may_pass


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

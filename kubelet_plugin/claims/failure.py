"""Why a claim cannot be prepared or unprepared, as a closed union with the evidence.

Each failure names an object and a remedy in its text, which becomes the pod's event. `retriable`
says whether the same call may succeed after a while although nobody does anything; `reason` is one
word for metrics.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.inventory.health import Problem, Severity


@dataclass(frozen=True, slots=True)
class ClaimGone:
    """The claim was deleted or made again, or no longer has devices on this node."""

    reason: ClassVar[str] = "ClaimGone"
    retriable: ClassVar[bool] = False
    claim: ClaimReference
    evidence: str

    def __str__(self) -> str:
        return self.evidence


@dataclass(frozen=True, slots=True)
class AllocationRefused:
    """The allocation, or a configuration in it, cannot be served."""

    reason: ClassVar[str] = "AllocationRefused"
    retriable: ClassVar[bool] = False
    claim: ClaimReference
    problem: str
    """With the field and the remedy."""

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class ApiUnavailable:
    """The claim cannot be read from the API server, and is not recorded on this node."""

    reason: ClassVar[str] = "ApiUnavailable"
    claim: ClaimReference
    problem: str
    retriable: bool
    """False where the API server refuses, such as by RBAC."""

    def __str__(self) -> str:
        return f"ResourceClaim {self.claim.key} cannot be read from the API server: {self.problem}"


@dataclass(frozen=True, slots=True)
class DeviceHeld:
    """Another claim holds the device, or one that overlaps it."""

    reason: ClassVar[str] = "DeviceHeld"
    retriable: ClassVar[bool] = True
    claim: NodeClaim
    device: str
    holder: NodeClaim
    held: str

    def __str__(self) -> str:
        held = "" if self.held == self.device else f" as {self.held}"
        return (
            f"device {self.device} of ResourceClaim {self.claim.key} (UID {self.claim.uid}) is "
            f"still held on this node{held} by ResourceClaim {self.holder.key} "
            f"(UID {self.holder.uid}); it is free once the last pod using that claim has ended here"
        )


@dataclass(frozen=True, slots=True)
class DeviceMissing:
    """The node has no such device."""

    reason: ClassVar[str] = "DeviceMissing"
    retriable: ClassVar[bool] = True
    claim: NodeClaim
    device: str
    present: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"device {self.device} of ResourceClaim {self.claim.key} is not on this node, which "
            f"has {', '.join(self.present) or 'none'}; unless the GPU comes back, delete the pod "
            "to have it scheduled again"
        )


@dataclass(frozen=True, slots=True)
class DeviceUnhealthy:
    """The device has a problem that keeps it from being used."""

    reason: ClassVar[str] = "DeviceUnhealthy"
    claim: NodeClaim
    device: str
    gpu_uuid: str
    problem: Problem

    @property
    def retriable(self) -> bool:
        return self.problem.severity is Severity.TRANSIENT

    def __str__(self) -> str:
        return (
            f"device {self.device} ({self.gpu_uuid}) of ResourceClaim {self.claim.key} "
            f"{self.problem}; {self.problem.remedy}"
        )


@dataclass(frozen=True, slots=True)
class DriverUnknown:
    """The NVIDIA driver does not report its version, so that its files cannot be chosen."""

    reason: ClassVar[str] = "DriverUnknown"
    retriable: ClassVar[bool] = True
    claim: NodeClaim

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key}: the NVIDIA driver does not report its version, "
            "without which its libraries cannot be found; check that nvidia-smi works on the node"
        )


@dataclass(frozen=True, slots=True)
class NodeResourceFailed:
    """Something that the claim needs on the node cannot be made or removed."""

    reason: ClassVar[str] = "NodeResourceFailed"
    claim: ClaimReference | None
    """None where it concerns no claim, or is not known which."""
    problem: str
    """With the resource and the remedy."""
    retriable: bool

    def __str__(self) -> str:
        return (
            self.problem
            if self.claim is None
            else (f"ResourceClaim {self.claim.key} (UID {self.claim.uid}): {self.problem}")
        )


@dataclass(frozen=True, slots=True)
class CheckpointUnusable:
    """The record of prepared claims cannot be read or written."""

    reason: ClassVar[str] = "CheckpointUnusable"
    retriable: ClassVar[bool] = True
    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class LockUnavailable:
    """Another call or another plugin process holds a lock for too long, or it cannot be used."""

    reason: ClassVar[str] = "LockUnavailable"
    retriable: ClassVar[bool] = True
    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class CallerGone:
    """The kubelet no longer waits for the answer: what it asks for now is another call."""

    reason: ClassVar[str] = "CallerGone"
    retriable: ClassVar[bool] = False
    claim: ClaimReference

    def __str__(self) -> str:
        return f"ResourceClaim {self.claim.key}: the kubelet no longer waits for this call"


ClaimFailure: TypeAlias = (
    ClaimGone
    | AllocationRefused
    | ApiUnavailable
    | DeviceHeld
    | DeviceMissing
    | DeviceUnhealthy
    | DriverUnknown
    | NodeResourceFailed
    | CheckpointUnusable
    | LockUnavailable
    | CallerGone
)


class ClaimError(Exception):
    """A claim could not be prepared or unprepared."""

    def __init__(self, failure: ClaimFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure

"""Why a claim cannot be prepared or unprepared, as a closed union.

The text of each failure names an object and a remedy; it becomes an Event. `retriable` says whether
the same call may succeed later without intervention. `reason` is the label in metrics, described in
docs/claim-failures.md.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from carina_dra.config.enforcement import LackingLevel
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.resource_failure import ResourceFailure
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.inventory.health import GpuProblem, Severity

_SHOWN: Final = 10
"""Devices that one message names: an Event has 1,024 bytes."""


@dataclass(frozen=True, slots=True)
class ClaimGone:
    """The claim was deleted or recreated, or no longer has devices on this node."""

    reason: ClassVar[str] = "ClaimGone"
    retriable: ClassVar[bool] = False
    claim: ClaimReference
    evidence: str

    def __str__(self) -> str:
        return self.evidence


@dataclass(frozen=True, slots=True)
class AllocationRefused:
    """The allocation, or a configuration in it, is not valid for this node."""

    reason: ClassVar[str] = "AllocationRefused"
    retriable: ClassVar[bool] = False
    claim: ClaimReference
    problem: str
    """Names the field and the remedy."""

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class ApiUnavailable:
    """The claim cannot be read from the API server, and is not recorded on this node."""

    reason: ClassVar[str] = "ApiUnavailable"
    claim: ClaimReference
    problem: str
    retriable: bool
    """False if the API server denies the request, for example by RBAC."""

    def __str__(self) -> str:
        return f"ResourceClaim {self.claim.key} cannot be read from the API server: {self.problem}"


@dataclass(frozen=True, slots=True)
class DeviceHeld:
    """Another claim holds the device, or a device that overlaps it."""

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
            f"still held on this node{held} by {_holder(self.holder, self.claim)}; it becomes free "
            "when the last pod that uses that claim on this node has ended"
        )


@dataclass(frozen=True, slots=True)
class PreparedByNvidia:
    """NVIDIA's DRA driver has prepared the claim, and containers may use its devices."""

    reason: ClassVar[str] = "PreparedByNvidia"
    retriable: ClassVar[bool] = False
    claim: ClaimReference

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} (UID {self.claim.uid}) was prepared on this node by "
            "NVIDIA's DRA driver, in whose place Carina runs, and is not prepared a second time; "
            "delete all pods on this node that use the claim, and create them again"
        )


@dataclass(frozen=True, slots=True)
class HeldByNvidia:
    """A claim that NVIDIA's DRA driver prepared holds the device, or one that overlaps it."""

    reason: ClassVar[str] = "HeldByNvidia"
    retriable: ClassVar[bool] = True
    claim: NodeClaim
    device: str
    holder: str
    """UID of that claim. Its name is not known."""
    held: str

    def __str__(self) -> str:
        held = "" if self.held == self.device else f" as {self.held}"
        return (
            f"device {self.device} of ResourceClaim {self.claim.key} (UID {self.claim.uid}) is "
            f"still held on this node{held} by a ResourceClaim (UID {self.holder}) that NVIDIA's "
            "DRA driver prepared; it becomes free when the last pod that uses that claim on this "
            "node has ended"
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
            f"device {self.device} of ResourceClaim {self.claim.key} does not exist on this node "
            f"({self._alternatives()}); if it does not come back, delete the pod so that it is "
            "scheduled again"
        )

    def _alternatives(self) -> str:
        """Names devices of the same GPU, or the GPUs: a node has hundreds of devices."""
        gpus = {name: gpu_name(parse_name(name)) for name in self.present}
        gpu = gpu_name(parse_name(self.device))
        others = [name for name in self.present if gpus[name] == gpu]
        if not others:
            return f"GPUs: {', '.join(sorted(set(gpus.values()))) or 'none'}"
        left = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        return f"devices of {gpu}: {', '.join(others[:_SHOWN])}{left}"


@dataclass(frozen=True, slots=True)
class DeviceUnhealthy:
    """The device has a problem that prevents its use."""

    reason: ClassVar[str] = "DeviceUnhealthy"
    claim: NodeClaim
    device: str
    gpu_uuid: str
    problem: GpuProblem

    @property
    def retriable(self) -> bool:
        return self.problem.severity is Severity.TRANSIENT

    def __str__(self) -> str:
        return (
            f"device {self.device} ({self.gpu_uuid}) of ResourceClaim {self.claim.key} "
            f"{self.problem}; {self.problem.remedy}, or delete the pod to have it scheduled again"
        )


@dataclass(frozen=True, slots=True)
class EnforcementMissing:
    """The claim demands levels of enforcement that the device does not have."""

    reason: ClassVar[str] = "EnforcementMissing"
    retriable: ClassVar[bool] = False
    claim: NodeClaim
    device: str
    lacking: tuple[LackingLevel, ...]
    """At least one."""

    def __str__(self) -> str:
        levels = " and ".join(f"{lack.level} for {lack.amount}" for lack in self.lacking)
        attributes = " and ".join(f"{lack.attribute}: true" for lack in self.lacking)
        return (
            f"ResourceClaim {self.claim.key} or its DeviceClass demands enforcement by {levels} in "
            f"a ShareConfig, which device {self.device} does not have; select devices by "
            f"{attributes}, or do not demand it"
        )


@dataclass(frozen=True, slots=True)
class MpsOfSeveralGpus:
    """Shares of the claim that demand MPS are of several GPUs."""

    reason: ClassVar[str] = "MpsOfSeveralGpus"
    retriable: ClassVar[bool] = False
    claim: NodeClaim
    gpus: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} has shares of {' and '.join(self.gpus)} that a "
            "ShareConfig demands enforcement by mps for, and a container computes in the MPS "
            "server of one GPU; request the shares in a claim for each GPU, for a container of its "
            "own, or have them on one GPU by the constraint matchAttribute: resource.kubernetes.io/"
            "pciBusID, or do not demand mps"
        )


@dataclass(frozen=True, slots=True)
class MpsConfigsDiffer:
    """Requests of the claim are shared by MPS with different configurations."""

    reason: ClassVar[str] = "MpsConfigsDiffer"
    retriable: ClassVar[bool] = False
    claim: NodeClaim
    requests: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} has requests {' and '.join(self.requests)} that are "
            "shared by MPS with different configurations, and a claim has one MPS daemon; write "
            "one configuration for these requests, or make a claim for each, for a container of "
            "its own"
        )


@dataclass(frozen=True, slots=True)
class MpsMissing:
    """The GPU or its driver has no MPS that limits its clients."""

    reason: ClassVar[str] = "MpsMissing"
    retriable: ClassVar[bool] = False
    claim: NodeClaim
    device: str
    product: str
    driver: str
    """The version."""

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} or its DeviceClass has the sharing strategy MPS for "
            f"device {self.device}, {self.product} with driver {self.driver}; MPS needs CUDA "
            "compute capability 7.0 and driver 550, or later ones: select another GPU, or remove "
            "the strategy"
        )


@dataclass(frozen=True, slots=True)
class TimeSlicingMissing:
    """The GPU does not have time slices whose length can be chosen."""

    reason: ClassVar[str] = "TimeSlicingMissing"
    retriable: ClassVar[bool] = False
    claim: NodeClaim
    device: str
    demanded: str
    product: str

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} or its DeviceClass demands time slices with interval "
            f"{self.demanded}, but device {self.device} ({self.product}) has a CUDA compute "
            "capability below 7.0, whose time slices have one length; select devices by the "
            "attribute cudaComputeCapability, or demand interval Default"
        )


@dataclass(frozen=True, slots=True)
class PodUnclear:
    """The claim demands a limit by the kernel, which one pod can have, and has not one pod."""

    reason: ClassVar[str] = "PodUnclear"
    retriable: ClassVar[bool] = False
    claim: NodeClaim
    device: str
    pods: int
    """For how many pods it is reserved; 0 if something else may use it, too."""

    def __str__(self) -> str:
        users = f"{self.pods} pods" if self.pods else "something else than one pod"
        return (
            f"ResourceClaim {self.claim.key} or its DeviceClass demands enforcement by kernel for "
            f"memory in a ShareConfig for device {self.device}, but is reserved for {users}, of "
            "which each would have its memory; use a ResourceClaimTemplate, which makes a claim "
            "for each pod"
        )


@dataclass(frozen=True, slots=True)
class ShareHeld:
    """Shares that are held on this node leave less of a GPU than the claim was allocated."""

    reason: ClassVar[str] = "ShareHeld"
    retriable: ClassVar[bool] = True
    claim: NodeClaim
    device: str
    capacity: str
    """Such as `memory`."""
    needed: str
    """What the device's shares need together, with that of the claim."""
    present: str

    def __str__(self) -> str:
        return (
            f"shares of device {self.device} that are held on this node and those of ResourceClaim "
            f"{self.claim.key} need {self.needed} of {self.capacity}, but the device has "
            f"{self.present}; delete the pod if the claim alone has more than the device, "
            "otherwise this much becomes free when the pods that were deleted have ended"
        )


@dataclass(frozen=True, slots=True)
class DriverUnknown:
    """The NVIDIA driver does not report its version, which is needed to find its files."""

    reason: ClassVar[str] = "DriverUnknown"
    retriable: ClassVar[bool] = True
    claim: NodeClaim

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key}: the NVIDIA driver does not report its version, "
            "which is needed to find its libraries; check that nvidia-smi works on the node"
        )


@dataclass(frozen=True, slots=True)
class GpusNotRead:
    """The GPUs could not be read for long, so that their present state is not known."""

    reason: ClassVar[str] = "GpusNotRead"
    retriable: ClassVar[bool] = True
    claim: ClaimReference
    seconds: float
    """How long ago they were read."""

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} is not prepared, because this node's GPUs were last "
            f"read {self.seconds:.0f} s ago: a call to the NVIDIA driver does not return. Check "
            "the kernel log, and reset the GPU or reboot the node, or delete the pod to have it "
            "scheduled again"
        )


@dataclass(frozen=True, slots=True)
class NodeReleased:
    """The node's GPUs are released, such as for another driver."""

    reason: ClassVar[str] = "NodeReleased"
    retriable: ClassVar[bool] = True
    claim: ClaimReference

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key} is not prepared, because this node's GPUs are "
            "released, as a condition of the Node says. Restore them with carina node restore, or "
            "delete the pod to have it scheduled again"
        )


@dataclass(frozen=True, slots=True)
class NodeResourceFailed:
    """A node resource that the claim needs cannot be created, read or removed."""

    claim: ClaimReference | None
    """None if the resource belongs to no claim, or the claim is not known."""
    cause: ResourceFailure

    @property
    def reason(self) -> str:
        """The reason of the cause."""
        return self.cause.reason

    @property
    def retriable(self) -> bool:
        """Whether the cause may pass."""
        return self.cause.retriable

    def __str__(self) -> str:
        if self.claim is None:
            return str(self.cause)
        return f"ResourceClaim {self.claim.key} (UID {self.claim.uid}): {self.cause}"


@dataclass(frozen=True, slots=True)
class _RecordFailure:
    retriable: ClassVar[bool] = True
    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class CheckpointUnusable(_RecordFailure):
    """The record of prepared claims cannot be read or written."""

    reason: ClassVar[str] = "CheckpointUnusable"


@dataclass(frozen=True, slots=True)
class LockUnavailable(_RecordFailure):
    """A lock was not free in time, because a call or process does not let it go, or is unusable."""

    reason: ClassVar[str] = "LockUnavailable"


@dataclass(frozen=True, slots=True)
class LockBusy(_RecordFailure):
    """A lock was not free in time, because calls that began earlier are served first."""

    reason: ClassVar[str] = "LockBusy"


@dataclass(frozen=True, slots=True)
class CallerGone:
    """The kubelet has cancelled the call; it repeats it in a new call if necessary."""

    reason: ClassVar[str] = "CallerGone"
    retriable: ClassVar[bool] = False
    claim: ClaimReference

    def __str__(self) -> str:
        return f"ResourceClaim {self.claim.key}: the kubelet no longer waits for this call"


@dataclass(frozen=True, slots=True)
class UnexpectedError:
    """The plugin has a bug. The other claims of the call are not affected."""

    reason: ClassVar[str] = "UnexpectedError"
    retriable: ClassVar[bool] = False
    claim: ClaimReference
    error: str

    def __str__(self) -> str:
        return (
            f"ResourceClaim {self.claim.key}: the kubelet plugin failed unexpectedly "
            f"({self.error}); report it with the plugin's log"
        )


def _holder(holder: NodeClaim, claim: NodeClaim) -> str:
    """Names the claim that holds a device, for an Event in the namespace of another claim.

    That namespace need not know names of others.
    """
    same_namespace = holder.namespace == claim.namespace
    name = (
        f"ResourceClaim {holder.key}" if same_namespace else "a ResourceClaim of another namespace"
    )
    return f"{name} (UID {holder.uid})"


ClaimFailure: TypeAlias = (
    ClaimGone
    | AllocationRefused
    | ApiUnavailable
    | DeviceHeld
    | PreparedByNvidia
    | HeldByNvidia
    | DeviceMissing
    | DeviceUnhealthy
    | EnforcementMissing
    | MpsOfSeveralGpus
    | MpsConfigsDiffer
    | MpsMissing
    | PodUnclear
    | ShareHeld
    | TimeSlicingMissing
    | DriverUnknown
    | GpusNotRead
    | NodeReleased
    | NodeResourceFailed
    | CheckpointUnusable
    | LockUnavailable
    | LockBusy
    | CallerGone
    | UnexpectedError
)


class ClaimError(Exception):
    """A claim could not be prepared or unprepared."""

    def __init__(self, failure: ClaimFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure

"""Node resources: what claims need on the node, as values.

A resource has an identity that can be read back from the node. So any process can compare what
exists with what is wanted, at any time. `NodeResource` is a closed union with a member for each
kind; a port for each kind creates and removes its resources. Device nodes are not node resources,
because all containers share them and they are never removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from carina_dra.config.mps import MpsLimits
from carina_dra.config.time_slice import TimeSliceInterval
from carina_dra.sharing.message import Reference, WantedDaemon
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.resource_failure import ResourceFailure
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.name import WholeGpuName, gpu_name, parse_name
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.inventory.gpu import Gpu


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """The identity of a node resource, unique on the node."""

    kind: str
    name: str
    """Unique within the kind, and readable from the node."""
    gpu: str = ""
    """`gpu-<minor>` of the GPU whose lock protects it; empty if it belongs to no single GPU."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The CDI spec of a claim, which injects its devices into containers; named by the UID."""

    kind: ClassVar[str] = "CDI spec"
    claim: NodeClaim
    devices: Mapping[str, GpuDevice]
    """All devices that the claim has allocated, by name."""

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the claim."""
        return spec_identity(self.claim.uid)


def spec_identity(uid: str) -> Identity:
    """Returns the identity of the CDI spec of the claim with this UID."""
    return Identity(ClaimSpec.kind, uid)


@dataclass(frozen=True, slots=True)
class DeviceMetadata:
    """The files that tell containers which devices a claim has; named by the UID."""

    kind: ClassVar[str] = "device metadata"
    claim: NodeClaim
    devices: Mapping[str, GpuDevice]
    """All devices that the claim has allocated, by name."""

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the claim."""
        return metadata_identity(self.claim.uid)


def metadata_identity(uid: str) -> Identity:
    """Returns the identity of the device metadata of the claim with this UID."""
    return Identity(DeviceMetadata.kind, uid)


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A file with device metadata."""

    host_path: str
    container_path: str
    """Where the containers that refer to the request get it."""


@dataclass(frozen=True, slots=True)
class MadeMetadata:
    """Device metadata that exists."""

    files: Mapping[str, MetadataFile]
    """By request."""


@dataclass(frozen=True, slots=True)
class MigModeOn:
    """A GPU in MIG mode, for its partitions; named by the GPU."""

    kind: ClassVar[str] = "MIG mode"
    gpu: Gpu

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the GPU's name."""
        return mode_identity(str(WholeGpuName(self.gpu.minor)))


@dataclass(frozen=True, slots=True)
class MigModeOff:
    """A GPU out of MIG mode, for a claim for the whole GPU or for a share of it.

    It is needed only to prepare the claim: unpreparing the claim does not change the mode.
    """

    kind: ClassVar[str] = MigModeOn.kind
    gpu: Gpu

    @property
    def identity(self) -> Identity:
        """The identity, that of `MigModeOn`: a GPU cannot have both."""
        return mode_identity(str(WholeGpuName(self.gpu.minor)))


def mode_identity(gpu: str) -> Identity:
    """Returns the identity of the MIG mode of the GPU `gpu-<minor>`."""
    return Identity(MigModeOn.kind, gpu, gpu)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance with a compute instance for all of it; named by the device."""

    kind: ClassVar[str] = "MIG instance"
    device: Partition | FoundPartition

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the device's name."""
        return instance_identity(self.device.name)


def instance_identity(device: str) -> Identity:
    """Returns the identity of the MIG instance of a device."""
    return Identity(MigInstance.kind, device, gpu_name(parse_name(device)))


@dataclass(frozen=True, slots=True)
class MadeInstance:
    """A MIG instance that exists, as containers get it."""

    gpu_instance: int
    compute_instance: int
    uuid: str
    """Of the MIG device, as in CUDA_VISIBLE_DEVICES."""


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """A length of the time slices of a GPU other than the driver's default; named by the GPU."""

    kind: ClassVar[str] = "time slice"
    gpu: Gpu
    interval: TimeSliceInterval

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the GPU's name."""
        return time_slice_identity(str(WholeGpuName(self.gpu.minor)))


def time_slice_identity(gpu: str) -> Identity:
    """Returns the identity of the time slices of the GPU `gpu-<minor>`."""
    return Identity(TimeSlice.kind, gpu, gpu)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit of the memory that a claim's pod can have of a shared GPU; named by claim and GPU."""

    kind: ClassVar[str] = "memory limit"
    claim: str
    """The UID."""
    gpu: Gpu
    mib: int
    """What all shares of the GPU that the claim has add up to."""
    pods: tuple[str, ...] | None
    """UIDs of the pods for which the claim is reserved; None if they are not known."""
    demanded: bool = False
    """Whether the claim is not to be prepared without the limit."""

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the claim and the GPU's name."""
        return limit_identity(self.claim, str(WholeGpuName(self.gpu.minor)))


def limit_identity(claim: str, gpu: str) -> Identity:
    """Returns the identity of the memory limit of a claim, by UID, on the GPU `gpu-<minor>`."""
    return Identity(MemoryLimit.kind, f"{claim}.{gpu}", gpu)


@dataclass(frozen=True, slots=True)
class MadeLimit:
    """A memory limit that is in force for the one pod that uses its claim."""


@dataclass(frozen=True, slots=True)
class MpsControlDaemon:
    """The MPS control daemon of a claim, which carina-sharing runs; named by the claim's UID.

    All processes that compute on the claim's devices through MPS are clients of its server, in
    whatever containers of the claim's pods.
    """

    kind: ClassVar[str] = "MPS daemon"
    wanted: WantedDaemon
    starts: bool = False
    """Whether a container may be about to start, since the kubelet asks: it must find the daemon
    ready."""

    @property
    def identity(self) -> Identity:
        """The identity, which depends only on the claim."""
        return daemon_identity(self.wanted.claim.uid)


@dataclass(frozen=True, slots=True)
class MpsOfDevices:
    """The MPS control daemon of a claim for whole GPUs or for partitions.

    Those it is for, by UUID, are known when the partitions are made.
    """

    kind: ClassVar[str] = MpsControlDaemon.kind
    claim: Reference
    devices: tuple[GpuDevice, ...]
    limits: MpsLimits
    starts: bool = False
    """As that of `MpsControlDaemon`."""

    @property
    def identity(self) -> Identity:
        """The identity, that of `MpsControlDaemon`: a claim has one daemon."""
        return daemon_identity(self.claim.uid)


def daemon_identity(uid: str) -> Identity:
    """Returns the identity of the MPS daemon of the claim with this UID."""
    return Identity(MpsControlDaemon.kind, uid)


@dataclass(frozen=True, slots=True)
class MadeMps:
    """An MPS daemon whose limits are set, with its folders on the host."""

    pipe: str
    """With the sockets of the daemon."""
    shm: str
    """What daemon and clients have as /dev/shm."""


NodeResource: TypeAlias = (
    MigModeOn
    | MigModeOff
    | MigInstance
    | TimeSlice
    | MemoryLimit
    | MpsControlDaemon
    | MpsOfDevices
    | DeviceMetadata
    | ClaimSpec
)
Made: TypeAlias = MadeInstance | MadeMetadata | MadeLimit | MadeMps | None
"""What is known of a resource only after it was made."""

KINDS = (
    MigModeOn.kind,
    MigInstance.kind,
    TimeSlice.kind,
    MemoryLimit.kind,
    MpsControlDaemon.kind,
    DeviceMetadata.kind,
    ClaimSpec.kind,
)
"""In the order of creation: a resource may need resources of the kinds before its own."""


class ResourceError(Exception):
    """A node resource cannot be read, created or removed."""

    def __init__(self, failure: ResourceFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class LeftBehindError(ResourceError):
    """A resource cannot be removed now, and no claim has to wait for that.

    It is still recorded, so it is removed as a leftover once that is possible.
    """

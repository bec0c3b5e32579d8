"""Why what a claim needs on the node cannot be created, read or removed, as a closed union.

Each cause has its evidence; its text names an object and the remedy. `retriable` says whether the
same step may succeed later without intervention. `reason` is the label in metrics.
"""

import errno
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from carina_dra.nvidia.nvml_failure import NvmlFailure

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


# --- files ---


@dataclass(frozen=True, slots=True)
class _FileFailure:
    retriable: ClassVar[bool] = True
    subject: str
    """The files with their path, such as `CDI specs in /var/run/cdi`."""
    action: str
    """What cannot be done, as a participle: `listed`, `read`, `written`, `removed` or `used`."""
    problem: str
    """What the system reports."""
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject} cannot be {self.action}: {self.problem}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class DiskFull(_FileFailure):
    """The file system of files of the plugin has no room, or a quota is used up."""

    reason: ClassVar[str] = "DiskFull"


@dataclass(frozen=True, slots=True)
class FileUnusable(_FileFailure):
    """Files of the plugin cannot be read, written or removed for another reason."""

    reason: ClassVar[str] = "FileUnusable"


def file_failure(subject: str, action: str, error: OSError, remedy: str) -> DiskFull | FileUnusable:
    """Returns the cause for an error of the file system."""
    kind = DiskFull if error.errno in _FULL else FileUnusable
    return kind(subject, action, str(error), remedy)


@dataclass(frozen=True, slots=True)
class NameInvalid:
    """A name or an amount in the claim is not valid in a CDI spec or in a path, or its mpsConfig
    names a device that it has not.
    """

    reason: ClassVar[str] = "NameInvalid"
    retriable: ClassVar[bool] = False
    problem: str
    """Names the value and the rule."""

    def __str__(self) -> str:
        return self.problem


# --- the installed driver ---


@dataclass(frozen=True, slots=True)
class DriverLibraryMissing:
    """Libraries of the driver that every container needs are not installed."""

    reason: ClassVar[str] = "DriverLibraryMissing"
    retriable: ClassVar[bool] = True
    names: tuple[str, ...]
    root: str
    folders: tuple[str, ...]
    """The folders that were searched, below the root."""
    version: str

    def __str__(self) -> str:
        return (
            f"{' and '.join(self.names)} not found below the driver root {self.root}, in "
            f"{', '.join(self.folders)}; install the libraries of driver {self.version} there, "
            "or set driver_root and host_driver_root to the root of the installed driver"
        )


@dataclass(frozen=True, slots=True)
class DriverFileUnreadable:
    """A file or folder of the driver cannot be read."""

    reason: ClassVar[str] = "DriverFileUnreadable"
    retriable: ClassVar[bool] = True
    path: str
    root: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.path} below the driver root {self.root} cannot be read: {self.problem}; "
            "the plugin must be able to read the driver's files"
        )


@dataclass(frozen=True, slots=True)
class DriverModuleMissing:
    """A module of the driver is not loaded, so that the numbers of a device node are not known."""

    reason: ClassVar[str] = "DriverModuleMissing"
    retriable: ClassVar[bool] = True
    path: str
    """The device node."""
    listing: str
    """The file in which the kernel lists the modules' numbers."""
    module: str
    load: str
    """How to load the module."""

    def __str__(self) -> str:
        return (
            f"the numbers of device node {self.path} are not known: {self.listing} does not list "
            f"{self.module}; {self.load}"
        )


@dataclass(frozen=True, slots=True)
class DeviceNodeUnusable:
    """A device node is missing or wrong, and cannot be created."""

    reason: ClassVar[str] = "DeviceNodeUnusable"
    retriable: ClassVar[bool] = True
    subject: str
    """The node, or what it depends on, with its path."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject} {self.problem}; {self.remedy}"


# --- calls of NVML; `task` names the GPU and says what cannot be done ---


@dataclass(frozen=True, slots=True)
class NvmlHangs:
    """NVML cannot be opened, because another call does not return."""

    reason: ClassVar[str] = "NvmlHangs"
    retriable: ClassVar[bool] = True
    task: str
    problem: str

    def __str__(self) -> str:
        return f"{self.task}: {self.problem}"


@dataclass(frozen=True, slots=True)
class GpusReleased:
    """NVML is not used while the node's GPUs are released."""

    reason: ClassVar[str] = "GpusReleased"
    retriable: ClassVar[bool] = True
    task: str

    def __str__(self) -> str:
        return f"{self.task} while this node's GPUs are released; restore them"


@dataclass(frozen=True, slots=True)
class _NvmlCall:
    retriable: ClassVar[bool] = True
    remedy: ClassVar[str] = "check nvidia-smi and the kernel log"
    task: str
    failure: NvmlFailure

    def __str__(self) -> str:
        return f"{self.task}: {self.failure}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class GpuBusy(_NvmlCall):
    """A process uses the GPU or the GPU instance."""

    reason: ClassVar[str] = "GpuBusy"
    remedy: ClassVar[str] = (
        "a process on the node uses the GPU, which may be a monitoring agent; `nvidia-smi` and "
        "`fuser -v /dev/nvidia*` list such processes"
    )


@dataclass(frozen=True, slots=True)
class MigRoomTaken(_NvmlCall):
    """Other GPU instances take the room of a GPU instance."""

    reason: ClassVar[str] = "MigRoomTaken"
    remedy: ClassVar[str] = (
        "other GPU instances take the room; `nvidia-smi mig -lgi` lists them. If no claim has "
        "them, destroy them; otherwise, it becomes free when their pods have ended"
    )


@dataclass(frozen=True, slots=True)
class MigProfileRefused(_NvmlCall):
    """The driver does not make a GPU instance of a profile that it lists."""

    reason: ClassVar[str] = "MigProfileRefused"
    retriable: ClassVar[bool] = False
    remedy: ClassVar[str] = (
        "the driver lists the profile, but does not make it on this GPU; select another profile"
    )


@dataclass(frozen=True, slots=True)
class MigPlacementRefused(_NvmlCall):
    """The driver does not make a GPU instance at a placement that it lists."""

    reason: ClassVar[str] = "MigPlacementRefused"
    retriable: ClassVar[bool] = False
    remedy: ClassVar[str] = (
        "the driver lists the placement, but does not accept it on this GPU; select another profile"
    )


@dataclass(frozen=True, slots=True)
class GpuResetRequired(_NvmlCall):
    """The GPU changes its MIG mode only with a reset."""

    reason: ClassVar[str] = "GpuResetRequired"
    retriable: ClassVar[bool] = False
    remedy: ClassVar[str] = (
        "the GPU changes MIG mode only with a reset; switch the mode with `nvidia-smi -mig` and "
        "reset the GPU when nothing uses it"
    )


@dataclass(frozen=True, slots=True)
class PermissionMissing(_NvmlCall):
    """The plugin may not change the GPU."""

    reason: ClassVar[str] = "PermissionMissing"
    retriable: ClassVar[bool] = False
    remedy: ClassVar[str] = "run the plugin's container as root and privileged"


@dataclass(frozen=True, slots=True)
class GpuGone(_NvmlCall):
    """The GPU or its driver is not there."""

    reason: ClassVar[str] = "GpuGone"


@dataclass(frozen=True, slots=True)
class GpuFellOff(_NvmlCall):
    """The GPU fell off the bus."""

    reason: ClassVar[str] = "GpuFellOff"


@dataclass(frozen=True, slots=True)
class NvmlCallFailed(_NvmlCall):
    """NVML returned another error."""

    reason: ClassVar[str] = "NvmlCallFailed"


# --- MIG ---


@dataclass(frozen=True, slots=True)
class MigModeInUse:
    """MIG mode cannot be switched off, because the GPU has instances that Carina made."""

    reason: ClassVar[str] = "MigModeInUse"
    retriable: ClassVar[bool] = True
    gpu_uuid: str
    instances: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"MIG mode of {self.gpu_uuid} cannot be switched off: it has "
            f"{', '.join(self.instances)}; wait until no claim has them"
        )


@dataclass(frozen=True, slots=True)
class MigInstanceVanished:
    """A GPU instance was made and is not there."""

    reason: ClassVar[str] = "MigInstanceVanished"
    retriable: ClassVar[bool] = True
    task: str

    def __str__(self) -> str:
        return f"{self.task}: it vanished after it was made"


@dataclass(frozen=True, slots=True)
class MigInstanceDivided:
    """An administrator has divided the GPU instance into compute instances."""

    reason: ClassVar[str] = "MigInstanceDivided"
    retriable: ClassVar[bool] = True
    task: str
    gpu_instance: int
    compute_instances: int

    def __str__(self) -> str:
        return (
            f"{self.task}: GPU instance {self.gpu_instance} is there already, with "
            f"{self.compute_instances} compute instances, none of which has all of it, since an "
            "administrator divided it; destroy it with `nvidia-smi mig -dci` and `-dgi`, or give "
            "it one compute instance for all of it"
        )


# --- time slices ---


@dataclass(frozen=True, slots=True)
class NvidiaSmiMissing:
    """`nvidia-smi`, which sets time slices, is not installed."""

    reason: ClassVar[str] = "NvidiaSmiMissing"
    retriable: ClassVar[bool] = True
    task: str
    root: str

    def __str__(self) -> str:
        return (
            f"{self.task}: nvidia-smi not found below the driver root {self.root}; install it, or "
            "set driver_root to the root of the installed driver"
        )


@dataclass(frozen=True, slots=True)
class _NvidiaSmiRun:
    task: str
    problem: str
    """How the program ended, and what it wrote."""
    command: str

    def __str__(self) -> str:
        return f"{self.task}: {self.problem}; run `{self.command}`"


@dataclass(frozen=True, slots=True)
class NvidiaSmiFailed(_NvidiaSmiRun):
    """`nvidia-smi` failed, was killed, or did not end in time."""

    reason: ClassVar[str] = "NvidiaSmiFailed"
    retriable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TimeSlicesUnsupported(_NvidiaSmiRun):
    """`nvidia-smi` reports that the GPU does not support time slices of another length."""

    reason: ClassVar[str] = "TimeSlicesUnsupported"
    retriable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class NvidiaSmiHangs:
    """`nvidia-smi` was killed and does not end, because its GPU does not respond."""

    reason: ClassVar[str] = "NvidiaSmiHangs"
    retriable: ClassVar[bool] = True
    task: str
    pid: int

    def __str__(self) -> str:
        return (
            f"{self.task}: nvidia-smi was killed, but its process {self.pid} does not end; reset "
            "the GPU or reboot the node"
        )


# --- memory limits ---


@dataclass(frozen=True, slots=True)
class PodCgroupMissing:
    """The cgroup of the pod, whose memory is to be limited, is not found."""

    reason: ClassVar[str] = "PodCgroupMissing"
    retriable: ClassVar[bool] = True
    pod: str
    """The UID."""
    root: str

    def __str__(self) -> str:
        return (
            f"the memory of pod {self.pod} cannot be limited: its cgroup is not found in kubepods "
            f"below {self.root}; set cgroup_root to the host's cgroup file system, as the kubelet "
            "plugin sees it"
        )


@dataclass(frozen=True, slots=True)
class PodUnknown:
    """The claim demands a limit, and it is not known which pod uses it."""

    reason: ClassVar[str] = "PodUnknown"
    retriable: ClassVar[bool] = True
    gpu: str
    """The UUID."""

    def __str__(self) -> str:
        return (
            f"the memory of its pod on {self.gpu} cannot be limited, as the claim demands: which "
            "pod uses the claim is not recorded since the node's boot, and only the API server "
            "tells; the next call of the kubelet reads it there"
        )


@dataclass(frozen=True, slots=True)
class SeveralPods:
    """The claim demands a limit, which one pod can have, and another pod has come to use it."""

    reason: ClassVar[str] = "SeveralPods"
    retriable: ClassVar[bool] = True
    gpu: str
    """The UUID."""
    pods: tuple[str, ...]
    """UIDs."""

    def __str__(self) -> str:
        return (
            f"the memory of its pods on {self.gpu} is not limited as the claim demands: "
            f"{len(self.pods)} pods use the claim, and each of them is limited to the claim's "
            "memory by itself; use a ResourceClaimTemplate, which makes a claim for each pod"
        )


@dataclass(frozen=True, slots=True)
class MemoryLimitIgnored:
    """The driver accepts a memory limit, but says another one afterwards."""

    reason: ClassVar[str] = "MemoryLimitIgnored"
    retriable: ClassVar[bool] = True
    task: str
    cgroup: str
    wanted: int | None
    """Bytes; None for no limit."""
    found: int | None

    def __str__(self) -> str:
        return (
            f"{self.task}: after {_limit(self.wanted)} was set on {self.cgroup}, the driver "
            f"says {_limit(self.found)}; check the kernel log, and report it with the "
            "version of the driver"
        )


# --- MPS ---


@dataclass(frozen=True, slots=True)
class SharingMissing:
    """carina-sharing, which runs MPS daemons, is not there."""

    reason: ClassVar[str] = "SharingMissing"
    retriable: ClassVar[bool] = True

    def __str__(self) -> str:
        return (
            "an MPS daemon cannot be started: carina-sharing does not run on this node, or does "
            "not answer; look at the pods of its DaemonSet, which the chart makes if "
            "sharing.enabled is true"
        )


@dataclass(frozen=True, slots=True)
class MpsDaemonNotReady:
    """The MPS daemon of the claim does not run with its limits."""

    reason: ClassVar[str] = "MpsDaemonNotReady"
    retriable: ClassVar[bool] = True
    claim: str
    """The UID."""
    problem: str
    """What carina-sharing says."""

    def __str__(self) -> str:
        return (
            f"the MPS daemon of the claim with UID {self.claim} is not ready: {self.problem}; look "
            "at the log of carina-sharing on the node"
        )


@dataclass(frozen=True, slots=True)
class MpsDaemonNotEnded:
    """An MPS daemon that no claim needs is still there."""

    reason: ClassVar[str] = "MpsDaemonNotEnded"
    retriable: ClassVar[bool] = True
    claim: str
    """The UID."""
    folder: str
    problem: str

    def __str__(self) -> str:
        return (
            f"the MPS daemon of the claim with UID {self.claim} has not ended: {self.problem}; "
            "carina-sharing ends it. Without carina-sharing, end the processes of its cgroup, "
            f"unmount {self.folder}/shm and remove {self.folder}"
        )


def _limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"a limit of {limit} bytes"


ResourceFailure: TypeAlias = (
    DiskFull
    | FileUnusable
    | NameInvalid
    | DriverLibraryMissing
    | DriverFileUnreadable
    | DriverModuleMissing
    | DeviceNodeUnusable
    | NvmlHangs
    | GpusReleased
    | GpuBusy
    | MigRoomTaken
    | MigProfileRefused
    | MigPlacementRefused
    | GpuResetRequired
    | PermissionMissing
    | GpuGone
    | GpuFellOff
    | NvmlCallFailed
    | MigModeInUse
    | MigInstanceVanished
    | MigInstanceDivided
    | NvidiaSmiMissing
    | NvidiaSmiFailed
    | TimeSlicesUnsupported
    | NvidiaSmiHangs
    | PodCgroupMissing
    | PodUnknown
    | SeveralPods
    | MemoryLimitIgnored
    | SharingMissing
    | MpsDaemonNotReady
    | MpsDaemonNotEnded
)

"""Causes of a NodeResourceFailed, one of each kind."""

import errno

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.claims.resource_failure import (
    DeviceNodeUnusable,
    DiskFull,
    DriverFileUnreadable,
    DriverLibraryMissing,
    DriverModuleMissing,
    FileUnusable,
    GpuBusy,
    GpuFellOff,
    GpuGone,
    GpuResetRequired,
    GpusReleased,
    MemoryLimitIgnored,
    MigInstanceDivided,
    MigInstanceVanished,
    MigModeInUse,
    MigPlacementRefused,
    MigProfileRefused,
    MigRoomTaken,
    MpsDaemonNotEnded,
    MpsDaemonNotReady,
    NameInvalid,
    NvidiaSmiFailed,
    NvidiaSmiHangs,
    NvidiaSmiMissing,
    NvmlCallFailed,
    NvmlHangs,
    PermissionMissing,
    PodCgroupMissing,
    PodUnknown,
    ResourceFailure,
    SeveralPods,
    SharingMissing,
    TimeSlicesUnsupported,
    file_failure,
)

_MODE = "MIG mode of GPU-1 cannot be switched on"
_INSTANCE = "MIG instance gpu-0-mig-1g10gb-19-6 cannot be made on GPU-1"
_SLICES = "time slices of GPU-1 cannot be set to Short"
_COMMAND = "nvidia-smi compute-policy -i GPU-1 --set-timeslice 1"


def _refused(code: str) -> NvmlFailure:
    return NvmlFailure("nvmlDeviceSetMigMode", f"NVML_ERROR_{code}")


BUSY = GpuBusy(_MODE, _refused("IN_USE"))
INVALID = NameInvalid("name 'Not_A_Label' must consist of lowercase letters")
FULL = file_failure(
    "its CDI spec in /var/run/cdi",
    "written",
    OSError(errno.ENOSPC, "No space left on device"),
    "check the folder and its file system",
)
NO_NODE = DeviceNodeUnusable("device node /dev/nvidia0", "is missing", "create it")
RETRIABLE: tuple[ResourceFailure, ...] = (
    BUSY,
    FULL,
    GpusReleased(_MODE),
    NO_NODE,
    FileUnusable("CDI specs in /var/run/cdi", "listed", "Input/output error", "check the folder"),
    DriverLibraryMissing(("libcuda.so.550",), "/driver", ("/usr/lib64",), "550"),
    DriverFileUnreadable("/usr/lib64", "/driver", "Permission denied"),
    DriverModuleMissing("/dev/nvidia-uvm", "/proc/devices", "nvidia-uvm", "load it"),
    NvmlHangs(_MODE, "another call does not return"),
    MigRoomTaken(_INSTANCE, _refused("INSUFFICIENT_RESOURCES")),
    GpuGone(_MODE, _refused("GPU_NOT_FOUND")),
    GpuFellOff(_MODE, _refused("GPU_IS_LOST")),
    NvmlCallFailed(_MODE, _refused("UNKNOWN")),
    MigModeInUse("GPU-1", ("gpu-0-mig-1g10gb-19-6",)),
    MigInstanceVanished(_INSTANCE),
    MigInstanceDivided(_INSTANCE, 3, 2),
    NvidiaSmiMissing(_SLICES, "/driver"),
    NvidiaSmiFailed(_SLICES, "nvidia-smi ended with 9: no output", _COMMAND),
    NvidiaSmiHangs(_SLICES, 7),
    PodCgroupMissing("5f0c", "/sys/fs/cgroup"),
    PodUnknown("GPU-1"),
    SeveralPods("GPU-1", ("5f0c", "77")),
    SharingMissing(),
    MpsDaemonNotReady("5f0c", "it has not started"),
    MpsDaemonNotEnded("5f0c", "/plugin/mps/5f0c", "carina-sharing is ending it"),
    MemoryLimitIgnored("the memory of pod 5f0c cannot be limited", "/cgroup", 2**30, None),
)
FINAL: tuple[ResourceFailure, ...] = (
    INVALID,
    MigProfileRefused(_INSTANCE, _refused("NOT_SUPPORTED")),
    MigPlacementRefused(_INSTANCE, _refused("INVALID_ARGUMENT")),
    GpuResetRequired(_MODE, _refused("RESET_REQUIRED")),
    PermissionMissing(_MODE, _refused("NO_PERMISSION")),
    TimeSlicesUnsupported(_SLICES, "nvidia-smi ended with 3: Not Supported", _COMMAND),
)
assert isinstance(FULL, DiskFull)

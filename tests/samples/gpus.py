"""GPUs to write tests with: one is like another but for what names it."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import Gpu, GpuState, MigMode, NvLink, ObservedGpu
from kubelet_plugin.inventory.health import (
    HEALTHY,
    GpuLost,
    GpuProblem,
    GpuUnreadable,
)
from kubelet_plugin.inventory.mig import (
    GpuInstance,
    MigLayout,
    MigPlacement,
    MigProfile,
    MigResources,
    MigSupported,
    MigUnsupported,
)

NOTICED = datetime(2026, 11, 20, 12, tzinfo=UTC)
LOST = GpuLost(NvmlFailure("nvmlDeviceGetMemoryInfo", "NVML_ERROR_GPU_IS_LOST"), NOTICED)
UNREADABLE = GpuUnreadable(NvmlFailure("nvmlDeviceGetMemoryInfo", "NVML_ERROR_UNKNOWN"), NOTICED)

LAYOUT = MigLayout(
    (
        MigProfile(
            name="7g.80gb",
            id=0,
            index=4,
            slices=7,
            max_instances=1,
            resources=MigResources(
                multiprocessors=132,
                copy_engines=8,
                decoders=7,
                encoders=0,
                jpeg_engines=7,
                ofa_engines=1,
                memory_mib=81_037,
            ),
            placements=(MigPlacement(0, 8),),
        ),
    )
)
MIG = MigSupported(LAYOUT, toggles_without_reset=True)

_PLAIN = Gpu(
    minor=0,
    uuid="",
    pci_bus_id="",
    product_name="NVIDIA L40S",
    brand="Nvidia",
    architecture="Ada Lovelace",
    cuda_compute_capability=(8, 9),
    memory_bytes=45 * 2**30,
    driver_version="550.163.01",
    cuda_driver_version=(12, 4),
    addressing_mode="HMM",
    numa_node=0,
    pcie_root="pci0000:00",
    mig=MigUnsupported(),
)


def gpu(minor: int, **facts: Any) -> Gpu:
    """The facts of a GPU."""
    named = replace(
        _PLAIN,
        minor=minor,
        uuid=f"GPU-00000000-0000-0000-0000-{minor:012d}",
        pci_bus_id=f"0000:{minor:02x}:00.0",
    )
    return replace(named, **facts)


def observed(
    minor: int,
    *problems: GpuProblem,
    nvlink: NvLink | None = None,
    mig_mode: MigMode = MigMode.OFF,
    instances: tuple[GpuInstance, ...] = (),
    **facts: Any,
) -> ObservedGpu:
    """A GPU with its state; it answers unless it has problems."""
    state = GpuState(mig_mode, instances, nvlink, frozenset(problems) or HEALTHY)
    return ObservedGpu(gpu(minor, **facts), state)


def whole(
    minor: int, *problems: GpuProblem, nvlink: NvLink | None = None, **facts: Any
) -> WholeGpu:
    """A GPU as a device."""
    seen = observed(minor, *problems, nvlink=nvlink, **facts)
    return WholeGpu(seen.gpu, seen.state)


def share(minor: int, *problems: GpuProblem, **facts: Any) -> Share:
    """A GPU as a device of which claims get shares."""
    seen = observed(minor, *problems, **facts)
    return Share(seen.gpu, seen.state)


def monitor(minor: int, *problems: GpuProblem, **facts: Any) -> Monitor:
    """The sight of a GPU as a device."""
    seen = observed(minor, *problems, **facts)
    return Monitor(seen.gpu, seen.state)

"""GPUs to write tests with: one is like another but for what names it."""

from dataclasses import replace
from typing import Any

from kubelet_plugin.inventory.gpu import (
    Gpu,
    LostGpu,
    MigDisabled,
    MigEnabled,
    MigLayout,
    MigPlacement,
    MigProfile,
    MigResources,
    MigUnsupported,
    NvmlFailure,
    UnreadableGpu,
)

LOST = NvmlFailure("nvmlDeviceGetMemoryInfo", "NVML_ERROR_GPU_IS_LOST")
UNREADABLE = NvmlFailure("nvmlDeviceGetMemoryInfo", "NVML_ERROR_UNKNOWN")

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
MIG_OFF = MigDisabled(LAYOUT, toggles_without_reset=True)
MIG_ON = MigEnabled(LAYOUT, toggles_without_reset=True)

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
    nvlink=None,
    mig=MigUnsupported(),
)


def gpu(minor: int, **changes: Any) -> Gpu:
    """A GPU that answers."""
    named = replace(
        _PLAIN,
        minor=minor,
        uuid=f"GPU-00000000-0000-0000-0000-{minor:012d}",
        pci_bus_id=f"0000:{minor:02x}:00.0",
    )
    return replace(named, **changes)


def lost(minor: int) -> LostGpu:
    """One that fell off the bus."""
    return LostGpu(gpu(minor), LOST)


def unreadable(minor: int) -> UnreadableGpu:
    """One that does not answer for now."""
    return UnreadableGpu(gpu(minor), UNREADABLE)

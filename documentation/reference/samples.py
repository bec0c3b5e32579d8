"""A GPU of which every fact is known, for the devices and Events of the reference."""

from datetime import UTC, datetime
from typing import Final

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.gpu import Gpu, GpuState, MigMode, NvLink
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    DriverVerdict,
    GpuLost,
    GpuProblem,
    GpuUnreadable,
)
from kubelet_plugin.inventory.mig import (
    MigLayout,
    MigPlacement,
    MigProfile,
    MigResources,
    MigSupported,
)

PROFILE: Final = MigProfile(
    name="1g.10gb",
    id=19,
    index=0,
    slices=1,
    max_instances=7,
    resources=MigResources(16, 1, 1, 1, 1, 1, 9728),
    placements=(MigPlacement(0, 1),),
)
GPU: Final = Gpu(
    minor=0,
    uuid="UUID",
    pci_bus_id="ADDRESS",
    product_name="NVIDIA H100 80GB HBM3",
    brand="Nvidia",
    architecture="Hopper",
    cuda_compute_capability=(9, 0),
    memory_bytes=80 * 2**30,
    driver_version="580.65.06",
    cuda_driver_version=(13, 0),
    addressing_mode="HMM",
    numa_node=0,
    pcie_root="pci0000:00",
    mig=MigSupported(MigLayout((PROFILE,)), toggles_without_reset=True),
)
STATE: Final = GpuState(mig_mode=MigMode.OFF, nvlink=NvLink((1,), "UUID"))
FAILURE: Final = NvmlFailure("FUNCTION", "CODE")
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
PROBLEM_SAMPLES: Final[tuple[GpuProblem, ...]] = (
    GpuLost(FAILURE, NEVER),
    GpuUnreadable(FAILURE, NEVER),
    *(kind(DriverVerdict("REASON", "FINDING"), NEVER) for kind in FOUND_BY_DRIVER),
)
"""A problem of each type."""

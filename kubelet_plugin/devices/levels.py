"""Which levels of enforcement a share of a GPU has, by what is detected of the GPU and its driver.

Only what holds is a level: one that is implemented, and that was found to work on this node.
"""

from typing import Final

from carina_dra.config.enforcement import CoreLevel, Levels, MemoryLevel
from kubelet_plugin.inventory.gpu import Gpu, GpuState

MPS_CAPABILITY: Final = (7, 0)
"""The least CUDA compute capability whose MPS limits clients: Volta, by NVIDIA's documentation."""
MPS_DRIVER: Final = 550
"""The first branch of the driver with which Carina runs MPS daemons."""
TIME_SLICED: Final = (7, 0)
"""The least CUDA compute capability with which the driver gives processes equal time slices."""


def has_time_slices(gpu: Gpu) -> bool:
    """Whether the driver gives the processes on the GPU equal time slices of a chosen length."""
    capability = gpu.cuda_compute_capability
    return capability is not None and capability >= TIME_SLICED


def has_mps(gpu: Gpu) -> bool:
    """Whether the GPU and its driver have MPS servers that limit their clients.

    A GPU in MIG mode has them for its partitions only; no share of it can be had then.
    """
    capability, branch = gpu.cuda_compute_capability, (gpu.driver_version or "").partition(".")[0]
    return (
        capability is not None
        and capability >= MPS_CAPABILITY
        and branch.isdecimal()
        and int(branch) >= MPS_DRIVER
    )


def detected_levels(gpu: Gpu, state: GpuState) -> Levels:
    """Returns the levels that shares of the GPU can have.

    A share has `mps` if its claim demands it; what else there is, every share has.
    """
    mps = has_mps(gpu) and state.guard.mps
    memory: dict[MemoryLevel, bool] = {
        "kernel": gpu.memory_limits,
        "mps": mps,
        "watchdog": state.guard.ends_violators,
    }
    cores: dict[CoreLevel, bool] = {"mps": mps, "time-slice": has_time_slices(gpu)}
    return Levels(
        memory=frozenset(level for level, there in memory.items() if there),
        cores=frozenset(level for level, there in cores.items() if there),
    )

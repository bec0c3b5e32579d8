"""Which levels of enforcement a share of a GPU has, by what is detected of the GPU and its driver.

Only what holds is a level: one that is implemented, and that was found to work on this node.
"""

from typing import Final

from carina_dra.config.enforcement import Levels
from kubelet_plugin.inventory.gpu import Gpu

TIME_SLICED: Final = (7, 0)
"""The least CUDA compute capability with which the driver gives processes equal time slices."""


def has_time_slices(gpu: Gpu) -> bool:
    """Whether the driver gives the processes on the GPU equal time slices of a chosen length."""
    capability = gpu.cuda_compute_capability
    return capability is not None and capability >= TIME_SLICED


def detected_levels(gpu: Gpu) -> Levels:
    """Returns the levels that shares of the GPU have."""
    return Levels(
        memory=frozenset({"kernel"}) if gpu.memory_limits else frozenset(),
        cores=frozenset({"time-slice"}) if has_time_slices(gpu) else frozenset(),
    )

"""The compute mode of a GPU: how many processes may compute on it (`nvidia-smi -c`).

An administrator sets it, or NVIDIA's MPS leaves it behind. It lasts until the driver is reloaded.
Carina does not change it, since it does not know for whom it was set.
"""

from enum import Enum
from typing import Final


class ComputeMode(Enum):
    """Which processes may compute on a GPU. The values are used in taints."""

    DEFAULT = "default"
    """Any number."""
    EXCLUSIVE_PROCESS = "exclusive-process"
    """One at a time: the first call of CUDA fails in every other."""
    PROHIBITED = "prohibited"
    """None."""


PREVENTS_SHARES: Final = frozenset({ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.PROHIBITED})
"""The modes in which a GPU cannot be shared."""
PREVENTS_ALL: Final = frozenset({ComputeMode.PROHIBITED})
"""The modes in which no container can compute on a GPU."""
COMPUTE_MODE: Final = "compute-mode"
"""The word of the taint."""

"""What NVML says now of a GPU's health. Plain values, no I/O.

A signal that the driver does not have is as of a GPU that is well, but for the recovery action: a
driver that has it decides with it, and XIDs only explain.
"""

from dataclasses import dataclass
from enum import StrEnum


class Fabric(StrEnum):
    """The GPU's place in its NVLink fabric. The value is the reason of a problem."""

    ABSENT = "none"
    HEALTHY = "healthy"
    LIMITED = "fabric-limited"
    """Works with less bandwidth, or while routes recover."""
    UNHEALTHY = "fabric-unhealthy"
    JOINING = "fabric-not-joined"
    """Fabric Manager has not added it. CUDA does not start."""
    REFUSED = "fabric-join-failed"


class Slowdown(StrEnum):
    """Why clocks are lower than the work needs. The value is the reason of a problem."""

    HARDWARE_THERMAL = "hw-thermal-slowdown"
    SOFTWARE_THERMAL = "sw-thermal-slowdown"
    POWER_BRAKE = "hw-power-brake"


@dataclass(frozen=True, slots=True)
class Signals:
    """What NVML says of one GPU."""

    recovery_action: int | None = None
    """NVML_GPU_RECOVERY_ACTION_*; None where the driver has none (below r565)."""
    rows_pending: bool = False
    """Rows of memory are remapped at the next reset."""
    rows_failed: bool = False
    """Rows of memory could not be remapped."""
    repair_pending: bool = False
    """A channel or TPC is repaired at the next reset."""
    memory_unrepairable: bool = False
    sram_threshold_exceeded: bool = False
    """Uncorrectable errors of SRAM are more than the vendor allows."""
    fabric: Fabric = Fabric.ABSENT
    slowdowns: frozenset[Slowdown] = frozenset()


SILENT = Signals()
"""Of a driver that says nothing."""

"""What has changed between two looks at the node's GPUs, in words for its operators.

The first look changes nothing; only what is wrong with it is told. A driver that comes or goes is
one change, not one for each of its GPUs.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from kubelet_plugin.inventory.gpu import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Gpu,
    Inventory,
    MigEnabled,
    NvmlFailure,
    UnknownGpu,
)
from kubelet_plugin.inventory.health import Health, Healthy, Lost, Unreadable, gpu_health

__all__ = [
    "DriverArrived",
    "DriverGone",
    "DriverRefuses",
    "GpuAppeared",
    "GpuIsLost",
    "GpuIsUnknown",
    "GpuIsUnreadable",
    "GpuRecovered",
    "GpuVanished",
    "InventoryChange",
    "MigModeChanged",
    "changes",
]


@dataclass(frozen=True, slots=True)
class DriverArrived:
    """The driver answers now."""

    gpus: int


@dataclass(frozen=True, slots=True)
class DriverGone:
    """There is no driver."""

    reason: str


@dataclass(frozen=True, slots=True)
class DriverRefuses:
    """There is a driver, and it does not answer."""

    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverWasReplaced:
    """Another driver is installed than the one whose library this process has loaded."""

    library: str


@dataclass(frozen=True, slots=True)
class GpuAppeared:
    """A GPU that was not there before."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuVanished:
    """A GPU is gone."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuIsLost:
    """A GPU fell off the bus."""

    gpu: Gpu
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class GpuIsUnreadable:
    """A GPU has stopped to answer."""

    gpu: Gpu
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class GpuRecovered:
    """A GPU that was lost or unreadable answers again."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuIsUnknown:
    """A GPU is listed that has never answered."""

    gpu: UnknownGpu


@dataclass(frozen=True, slots=True)
class MigModeChanged:
    """MIG mode was switched on or off."""

    gpu: Gpu
    """As it is now."""


InventoryChange: TypeAlias = (
    DriverArrived
    | DriverGone
    | DriverRefuses
    | DriverWasReplaced
    | GpuAppeared
    | GpuVanished
    | GpuIsLost
    | GpuIsUnreadable
    | GpuRecovered
    | GpuIsUnknown
    | MigModeChanged
)


def changes(before: Inventory | None, after: Inventory) -> tuple[InventoryChange, ...]:
    """Gives what has changed, in the order of the GPUs' minor numbers.

    `before` is None at the first look. A GPU is the same as before if its UUID is.
    """
    if before == after:
        return ()
    match after:
        case DriverMissing(reason):
            return (DriverGone(reason),)
        case DriverUnusable(failure):
            return (DriverRefuses(failure),)
        case DriverReplaced(library):
            return (DriverWasReplaced(library),)
        case DriverReady():
            return _changes_of_gpus(before, after)
    assert_never(after)


def _changes_of_gpus(before: Inventory | None, after: DriverReady) -> tuple[InventoryChange, ...]:
    now = {gpu.uuid: (gpu, health) for gpu, health in gpu_health(after)}
    match before:
        case None:
            return tuple(GpuIsUnknown(gpu) for gpu in after.unknown)
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            return DriverArrived(len(now)), *(GpuIsUnknown(gpu) for gpu in after.unknown)
        case DriverReady():
            then = {gpu.uuid: (gpu, health) for gpu, health in gpu_health(before)}
            told: list[InventoryChange] = [
                GpuVanished(gpu) for uuid, (gpu, _) in then.items() if uuid not in now
            ]
            for uuid, (gpu, health) in now.items():
                if uuid in then:
                    told += _changes_of_gpu(*then[uuid], gpu, health)
                else:
                    told.append(GpuAppeared(gpu))
            told += [GpuIsUnknown(gpu) for gpu in after.unknown if gpu not in before.unknown]
            return tuple(told)
    assert_never(before)


def _changes_of_gpu(
    gpu_before: Gpu, health_before: Health, gpu: Gpu, health: Health
) -> list[InventoryChange]:
    told: list[InventoryChange] = []
    if isinstance(gpu_before.mig, MigEnabled) != isinstance(gpu.mig, MigEnabled):
        told.append(MigModeChanged(gpu))
    if type(health) is not type(health_before):
        match health:
            case Healthy():
                told.append(GpuRecovered(gpu))
            case Lost(failure):
                told.append(GpuIsLost(gpu, failure))
            case Unreadable(failure):
                told.append(GpuIsUnreadable(gpu, failure))
    return told

"""What has changed between two looks at the node's GPUs, in words for its operators.

The first look changes nothing; only what is wrong with it is told. A driver that comes or goes is
one change, not one for each of its GPUs.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from kubelet_plugin.inventory.gpu import Gpu, MigMode, ObservedGpu
from kubelet_plugin.inventory.health import NvmlFailure, Problem, in_order
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    UnknownGpu,
)


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
    """A GPU was added."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuVanished:
    """A GPU is gone."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class ProblemAppeared:
    """A GPU has a problem that it did not have before."""

    gpu: Gpu
    problem: Problem


@dataclass(frozen=True, slots=True)
class GpuRecovered:
    """A GPU has no problem any more."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuIsUnknown:
    """A GPU is listed that has never answered."""

    gpu: UnknownGpu


@dataclass(frozen=True, slots=True)
class MigModeChanged:
    """MIG mode was switched on or off."""

    gpu: Gpu
    mode: MigMode
    """As it is now."""


InventoryChange: TypeAlias = (
    DriverArrived
    | DriverGone
    | DriverRefuses
    | DriverWasReplaced
    | GpuAppeared
    | GpuVanished
    | ProblemAppeared
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
    now = {observed.gpu.uuid: observed for observed in after.gpus}
    match before:
        case None:
            return tuple(GpuIsUnknown(gpu) for gpu in after.unknown)
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            return DriverArrived(len(now)), *(GpuIsUnknown(gpu) for gpu in after.unknown)
        case DriverReady():
            then = {observed.gpu.uuid: observed for observed in before.gpus}
            found: list[InventoryChange] = [
                GpuVanished(observed.gpu) for uuid, observed in then.items() if uuid not in now
            ]
            for uuid, observed in now.items():
                if uuid in then:
                    found += _changes_of_gpu(then[uuid], observed)
                else:
                    found.append(GpuAppeared(observed.gpu))
            found += [GpuIsUnknown(gpu) for gpu in after.unknown if gpu not in before.unknown]
            return tuple(found)
    assert_never(before)


def _changes_of_gpu(before: ObservedGpu, after: ObservedGpu) -> list[InventoryChange]:
    """What Carina itself changes, such as MIG instances, is in the state and no change here."""
    found: list[InventoryChange] = []
    if before.state.mig_mode is not after.state.mig_mode:
        found.append(MigModeChanged(after.gpu, after.state.mig_mode))
    known = {type(problem) for problem in before.state.problems}
    found += [
        ProblemAppeared(after.gpu, problem)
        for problem in in_order(after.state.problems)
        if type(problem) not in known
    ]
    if before.state.problems and not after.state.problems:
        found.append(GpuRecovered(after.gpu))
    return found

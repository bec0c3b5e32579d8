"""The changes between two inventories, as they are reported to operators.

For the first inventory, only problems are reported. A driver that becomes ready or unusable is one
change, not one for each of its GPUs.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.compute_mode import ComputeMode
from kubelet_plugin.inventory.gpu import Gpu, MigMode, ObservedGpu
from kubelet_plugin.inventory.health import (
    GpuProblem,
    identity,
    in_order,
)
from kubelet_plugin.inventory.held_mode import HeldMode
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
    """The driver has become ready."""

    gpus: int


@dataclass(frozen=True, slots=True)
class DriverGone:
    """No driver is installed or loaded."""

    reason: str


@dataclass(frozen=True, slots=True)
class DriverRefuses:
    """A driver is installed, but does not work."""

    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverWasReplaced:
    """The driver whose library this process has loaded was replaced by another one."""

    library: str


@dataclass(frozen=True, slots=True)
class GpuAppeared:
    """A GPU was added."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuVanished:
    """A GPU was removed."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class ProblemAppeared:
    """A GPU has a problem that it did not have before."""

    gpu: Gpu
    problem: GpuProblem
    flapping: float = 0.0
    """As `GpuState.flapping`."""


@dataclass(frozen=True, slots=True)
class ApplicationFailed:
    """The driver has reported an error of an application; the GPU is well."""

    gpu: Gpu
    xid: int
    text: str
    """What the XID is."""


@dataclass(frozen=True, slots=True)
class GpuRecovered:
    """A GPU no longer has any problem."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuIsUnknown:
    """The driver lists a GPU that could never be read."""

    gpu: UnknownGpu


@dataclass(frozen=True, slots=True)
class MigModeChanged:
    """An administrator switched MIG mode on or off."""

    gpu: Gpu
    mode: MigMode
    """The new mode."""


@dataclass(frozen=True, slots=True)
class MigModeHeld:
    """MIG mode cannot be switched for claims, because a process has the GPU open."""

    gpu: Gpu
    held: HeldMode


@dataclass(frozen=True, slots=True)
class MigModeReleased:
    """MIG mode can be switched again."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class ComputeModeChanged:
    """An administrator, or a program of the node, changed the compute mode."""

    gpu: Gpu
    mode: ComputeMode
    """The new mode."""


InventoryChange: TypeAlias = (
    DriverArrived
    | DriverGone
    | DriverRefuses
    | DriverWasReplaced
    | GpuAppeared
    | GpuVanished
    | ProblemAppeared
    | ApplicationFailed
    | GpuRecovered
    | GpuIsUnknown
    | MigModeChanged
    | MigModeHeld
    | MigModeReleased
    | ComputeModeChanged
)


def changes(before: Inventory | None, after: Inventory) -> tuple[InventoryChange, ...]:
    """Returns the changes from `before` to `after`, in the order of the GPUs' minor numbers.

    `before` is None for the first inventory. GPUs are identified by UUID.
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
            return (
                *_problems(after),
                *(GpuIsUnknown(gpu) for gpu in after.unknown),
                *(
                    ComputeModeChanged(observed.gpu, observed.state.compute_mode)
                    for observed in after.gpus
                    if observed.state.compute_mode is not ComputeMode.DEFAULT
                ),
            )
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            unknown = (GpuIsUnknown(gpu) for gpu in after.unknown)
            return DriverArrived(len(now)), *_problems(after), *unknown
        case DriverReady():
            then = {observed.gpu.uuid: observed for observed in before.gpus}
            changed: list[InventoryChange] = [
                GpuVanished(observed.gpu) for uuid, observed in then.items() if uuid not in now
            ]
            for uuid, observed in now.items():
                if uuid in then:
                    changed += _changes_of_gpu(then[uuid], observed)
                else:
                    changed.append(GpuAppeared(observed.gpu))
                    changed += _problems(DriverReady((observed,)))
            changed += [GpuIsUnknown(gpu) for gpu in after.unknown if gpu not in before.unknown]
            return tuple(changed)
    assert_never(before)


def _problems(inventory: DriverReady) -> tuple[ProblemAppeared, ...]:
    return tuple(
        ProblemAppeared(observed.gpu, problem, observed.state.flapping)
        for observed in inventory.gpus
        for problem in in_order(observed.state.problems)
    )


def _changes_of_gpu(before: ObservedGpu, after: ObservedGpu) -> list[InventoryChange]:
    """Returns the changes of one GPU, without those that Carina makes, such as MIG instances."""
    changed: list[InventoryChange] = []
    was_on, is_on = (observed.state.mig_mode is MigMode.ON for observed in (before, after))
    if was_on != is_on:
        changed.append(MigModeChanged(after.gpu, MigMode.ON if is_on else MigMode.OFF))
    held = after.state.held_mode
    if held != before.state.held_mode:
        released = MigModeReleased(after.gpu)
        changed.append(released if held is None else MigModeHeld(after.gpu, held))
    if after.state.compute_mode is not before.state.compute_mode:
        changed.append(ComputeModeChanged(after.gpu, after.state.compute_mode))
    known = {identity(problem) for problem in before.state.problems}
    changed += [
        ProblemAppeared(after.gpu, problem, after.state.flapping)
        for problem in in_order(after.state.problems)
        if identity(problem) not in known
    ]
    if before.state.problems and not after.state.problems:
        changed.append(GpuRecovered(after.gpu))
    return changed

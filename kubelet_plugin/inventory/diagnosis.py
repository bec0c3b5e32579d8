"""The problems of the node's GPUs, as they follow from what NVML says and from what is remembered.

Pure: the same signals, faults and rules give the same problems. What the driver says by its
recovery action (r565 and later) decides; without one, XIDs do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from kubelet_plugin.inventory import faults as remembered_faults
from kubelet_plugin.inventory.faults import Faults
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import (
    HEALTHY,
    Degraded,
    Draining,
    DriverVerdict,
    FabricFailed,
    GpuProblem,
    GpuProblems,
    MemoryFailed,
    NeedsReboot,
    NeedsReset,
    ProblemIdentity,
    identity,
    is_unanswered,
    since,
    unanswered,
)
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.signals import Fabric, Signals
from kubelet_plugin.inventory.xid import XidRules

ActionProblem: TypeAlias = type[NeedsReboot | NeedsReset | Draining | Degraded]
_ACTIONS: Final[Mapping[int, tuple[ActionProblem, str]]] = {
    1: (NeedsReset, "needs a reset"),
    2: (NeedsReboot, "needs a reboot of the node"),
    3: (Draining, "has to be rid of peer-to-peer traffic"),
    4: (Draining, "has to be drained and reset"),
    5: (Degraded, "waits for its IMEX domain to recover"),
    6: (NeedsReset, "needs a reset of its PCIe bus"),
    7: (NeedsReboot, "needs a reboot of the whole system"),
}
"""By NVML_GPU_RECOVERY_ACTION_*, as the manual of nvidia-smi describes them."""
_RESET_REQUIRED: Final = "NVML_ERROR_RESET_REQUIRED"
_MOST_GONE: Final = 64
"""GPUs that are gone and of which faults are remembered, those that went last."""
_OF_THE_NODE: Final = frozenset({2, 7})


@dataclass(frozen=True, slots=True)
class HealthMemory:
    """What is remembered of the node's GPUs, by UUID."""

    faults: Mapping[str, Faults] = field(default_factory=dict)
    problems: Mapping[str, GpuProblems] = field(default_factory=dict)
    """As of the last diagnosis."""


def diagnosed(
    inventory: DriverReady,
    memory: HealthMemory,
    rules: XidRules,
    cleared: Mapping[str, datetime],
    now: datetime,
) -> tuple[DriverReady, HealthMemory]:
    """Returns the inventory with the problems of its GPUs, and what to remember.

    The problems that `inventory` has are those of GPUs that do not answer. Such a GPU keeps what
    else was known of it. `cleared` are the times before which faults do not count, by UUID.
    """
    faults = {
        observed.gpu.uuid: _counting(observed, memory, rules, cleared, now)
        for observed in inventory.gpus
    }
    reboot = _reboot_of_node(inventory, now)
    problems = {
        observed.gpu.uuid: _problems(observed, memory, faults[observed.gpu.uuid], rules, now)
        for observed in inventory.gpus
    }
    if reboot is not None:
        problems = {uuid: _with(found, reboot) for uuid, found in problems.items()}
    problems = {
        uuid: frozenset(since(problem, memory.problems.get(uuid, HEALTHY)) for problem in found)
        for uuid, found in problems.items()
    }
    gpus = tuple(
        replace(observed, state=replace(observed.state, problems=problems[observed.gpu.uuid]))
        for observed in inventory.gpus
    )
    # A GPU that is gone may come back, as after a reset of its bus.
    gone = [(uuid, of_gpu) for uuid, of_gpu in memory.faults.items() if uuid not in faults]
    known = dict(gone[-_MOST_GONE:]) | faults
    kept = {uuid: of_gpu for uuid, of_gpu in known.items() if of_gpu}
    return replace(inventory, gpus=gpus), HealthMemory(kept, problems)


def _counting(
    observed: ObservedGpu,
    memory: HealthMemory,
    rules: XidRules,
    cleared: Mapping[str, datetime],
    now: datetime,
) -> Faults:
    reported = memory.faults.get(observed.gpu.uuid, remembered_faults.NONE)
    known = remembered_faults.not_later(reported, now)
    if unanswered(observed.state.problems):
        return known
    before = cleared.get(observed.gpu.uuid)
    return remembered_faults.still_counting(known, observed, rules, before, now)


def _problems(
    observed: ObservedGpu, memory: HealthMemory, faults: Faults, rules: XidRules, now: datetime
) -> GpuProblems:
    found: dict[ProblemIdentity, GpuProblem] = {}
    silent = unanswered(observed.state.problems)
    if silent:
        before = memory.problems.get(observed.gpu.uuid, HEALTHY)
        found = {identity(known): known for known in before if not is_unanswered(known)}
        found |= {identity(problem): problem for problem in silent}
        if any(problem.reason == _RESET_REQUIRED for problem in silent):
            reset = DriverVerdict(_RESET_REQUIRED, "answers that it has to be reset")
            found.setdefault((NeedsReset.state, None), NeedsReset(reset, now))
    else:
        for problem in _of_signals(observed.state.signals, faults, now):
            found.setdefault(identity(problem), problem)
    for key, problem in remembered_faults.problems_of(faults, observed, rules).items():
        found.setdefault(key, problem)
    return frozenset(found.values())


def _of_signals(signals: Signals, faults: Faults, now: datetime) -> Iterator[GpuProblem]:
    """Yields the problems that NVML tells now; of those with one identity, the first counts."""
    action = signals.recovery_action
    if action:
        kind, text = _ACTIONS.get(action, (NeedsReset, "needs a reset, or more"))
        after = remembered_faults.explained(faults.values())
        reason = f"recovery-action-{action}"
        yield kind(DriverVerdict(reason, f"{text} (recovery action {action}){after}"), now)
    if signals.memory_unrepairable:
        yield MemoryFailed(DriverVerdict("memory-unrepairable", "has memory beyond repair"), now)
    if signals.rows_failed:
        text = "has rows of memory that could not be remapped"
        yield MemoryFailed(DriverVerdict("row-remap-failure", text), now)
    if signals.sram_threshold_exceeded:
        text = "has more uncorrectable errors of SRAM than allowed"
        yield MemoryFailed(DriverVerdict("sram-threshold", text), now)
    yield from _of_fabric(signals.fabric, now)
    if signals.rows_pending:
        text = "has rows of memory to be remapped at its next reset"
        yield Degraded(DriverVerdict("row-remap-pending", text), now)
    if signals.repair_pending:
        yield Degraded(DriverVerdict("repair-pending", "is to be repaired at its next reset"), now)
    for slowdown in sorted(signals.slowdowns):
        yield Degraded(DriverVerdict(slowdown.value, f"is slowed down ({slowdown.value})"), now)


def _of_fabric(fabric: Fabric, now: datetime) -> Iterator[GpuProblem]:
    match fabric:
        case Fabric.ABSENT | Fabric.HEALTHY:
            return
        case Fabric.LIMITED:
            yield Degraded(DriverVerdict(fabric.value, "has less of its NVLink fabric"), now)
        case Fabric.UNHEALTHY | Fabric.JOINING | Fabric.REFUSED:
            yield FabricFailed(DriverVerdict(fabric.value, "is not well in its NVLink fabric"), now)


def _reboot_of_node(inventory: DriverReady, now: datetime) -> NeedsReboot | None:
    """Returns the problem of all GPUs if the driver wants the node to reboot because of any.

    What it said of a GPU that does not answer is over if others answer after another boot.
    """
    boots = {
        observed.state.boot
        for observed in inventory.gpus
        if not unanswered(observed.state.problems)
    }
    for observed in inventory.gpus:
        if boots and observed.state.boot not in boots:
            continue
        action = observed.state.signals.recovery_action
        if action in _OF_THE_NODE:
            text = f"needs a reboot of the node (recovery action {action} of {observed.gpu.uuid})"
            return NeedsReboot(DriverVerdict(f"recovery-action-{action}", text), now)
    return None


def _with(problems: GpuProblems, reboot: NeedsReboot) -> GpuProblems:
    known = {identity(problem) for problem in problems}
    return problems if identity(reboot) in known else problems | {reboot}

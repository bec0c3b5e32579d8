"""The health of a GPU: a set of problems, each with its severity and the time it was first seen.

This module alone defines the consequences of a problem: `state` is used in the taint and the
metric, `reason` in the taint's value, `event_reason` in the Event, `severity` decides whether a
claim fails, is retried or is prepared, and `eviction` names the setting that has its pods evicted.
Other code uses these attributes, and does not depend on the types of problems.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum
from typing import ClassVar, Final, TypeAlias

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.mig import MigSite


@dataclass(frozen=True, slots=True)
class NvmlHang:
    """A call of NVML that has not returned. It cannot be cancelled, and may never return."""

    seconds: float
    """How long it had not returned when this was noticed."""

    reason: ClassVar[str] = "hang"

    def __str__(self) -> str:
        return f"a call to the NVIDIA driver has not returned for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class DriverVerdict:
    """What the driver says of a GPU, now or in an XID."""

    reason: str
    """A word, such as "xid-95" or "recovery-action-1": the value of a taint."""
    text: str
    """What continues "GPU 0 ..."."""

    def __str__(self) -> str:
        return self.text


class Severity(Enum):
    """What a problem means for claims on the GPU."""

    FATAL = 2
    """The problem stays until an operator acts; claims fail."""
    TRANSIENT = 1
    """The problem may disappear; claims are retried."""
    HARMLESS = 0
    """Work goes on; claims are prepared."""


class EvictionCause(StrEnum):
    """The words of the setting `evict`, which say whose pods are evicted."""

    LOST = "lost"
    RESET = "reset"
    BUS_RESET = "bus-reset"
    REBOOT = "reboot"


BUS_RESET_REASON: Final = "recovery-action-6"


@dataclass(frozen=True, slots=True)
class _OfDriver:
    """A problem because of what the driver says."""

    eviction: ClassVar[EvictionCause | None] = None
    finding: DriverVerdict
    since: datetime
    site: MigSite | None = None
    """The GPU instance that alone has the problem; None if the whole GPU has it."""

    @property
    def reason(self) -> str:
        """The value of the taint."""
        return self.finding.reason

    def __str__(self) -> str:
        return str(self.finding)


@dataclass(frozen=True, slots=True)
class GpuLost:
    """The GPU fell off the bus."""

    state: ClassVar[str] = "lost"
    event_reason: ClassVar[str] = "GPULost"
    severity: ClassVar[Severity] = Severity.FATAL
    remedy: ClassVar[str] = "reset the GPU or reboot the node"
    eviction: ClassVar[EvictionCause | None] = EvictionCause.LOST
    site: ClassVar[MigSite | None] = None
    failure: NvmlFailure
    since: datetime

    @property
    def reason(self) -> str:
        """The value of the taint."""
        return self.failure.reason

    def __str__(self) -> str:
        return f"fell off the bus ({self.failure})"


@dataclass(frozen=True, slots=True)
class GpuUnreadable:
    """The GPU is present, but did not respond to the last read, or that does not return."""

    state: ClassVar[str] = "unreadable"
    event_reason: ClassVar[str] = "GPUUnreadable"
    severity: ClassVar[Severity] = Severity.TRANSIENT
    remedy: ClassVar[str] = "if this continues, reset the GPU"
    eviction: ClassVar[EvictionCause | None] = None
    site: ClassVar[MigSite | None] = None
    failure: NvmlFailure | NvmlHang
    since: datetime

    @property
    def reason(self) -> str:
        """The value of the taint."""
        return self.failure.reason

    def __str__(self) -> str:
        return f"does not respond reliably ({self.failure})"


@dataclass(frozen=True, slots=True)
class NeedsReboot(_OfDriver):
    """Nothing works on the GPU before the node has rebooted."""

    state: ClassVar[str] = "needs-reboot"
    event_reason: ClassVar[str] = "GPUNeedsReboot"
    severity: ClassVar[Severity] = Severity.FATAL
    remedy: ClassVar[str] = "drain and reboot the node"
    eviction: ClassVar[EvictionCause | None] = EvictionCause.REBOOT


@dataclass(frozen=True, slots=True)
class NeedsReset(_OfDriver):
    """Nothing works on the GPU before it is reset."""

    state: ClassVar[str] = "needs-reset"
    event_reason: ClassVar[str] = "GPUNeedsReset"
    severity: ClassVar[Severity] = Severity.FATAL
    remedy: ClassVar[str] = "end what uses the GPU, and reset it with nvidia-smi --gpu-reset"

    @property
    def eviction(self) -> EvictionCause:  # type: ignore[override]  # a constant of most problems
        """Resets of the PCIe bus have a word of their own."""
        return EvictionCause.BUS_RESET if self.reason == BUS_RESET_REASON else EvictionCause.RESET


@dataclass(frozen=True, slots=True)
class MemoryFailed(_OfDriver):
    """The GPU has to be replaced, most often because of its memory."""

    state: ClassVar[str] = "memory-failed"
    event_reason: ClassVar[str] = "GPUMemoryFailed"
    severity: ClassVar[Severity] = Severity.FATAL
    remedy: ClassVar[str] = "run NVIDIA's field diagnostics, and replace the GPU"


@dataclass(frozen=True, slots=True)
class Draining(_OfDriver):
    """Work may finish; the GPU, or a GPU instance, then needs a reset."""

    state: ClassVar[str] = "drain"
    event_reason: ClassVar[str] = "GPUDrains"
    severity: ClassVar[Severity] = Severity.TRANSIENT
    remedy: ClassVar[str] = "when its pods have ended, reset it with nvidia-smi --gpu-reset"


@dataclass(frozen=True, slots=True)
class FabricFailed(_OfDriver):
    """The GPU is not, or not reliably, in its NVLink fabric, without which CUDA does not start."""

    state: ClassVar[str] = "fabric"
    event_reason: ClassVar[str] = "GPUFabricFailed"
    severity: ClassVar[Severity] = Severity.TRANSIENT
    remedy: ClassVar[str] = "check that NVIDIA Fabric Manager runs and has the driver's version"


@dataclass(frozen=True, slots=True)
class Degraded(_OfDriver):
    """The GPU works, and somebody should look at it."""

    state: ClassVar[str] = "degraded"
    event_reason: ClassVar[str] = "GPUDegraded"
    severity: ClassVar[Severity] = Severity.HARMLESS
    remedy: ClassVar[str] = "look at the GPU when convenient"


FoundByDriver: TypeAlias = (
    NeedsReboot | NeedsReset | MemoryFailed | Draining | FabricFailed | Degraded
)
GpuProblem: TypeAlias = GpuLost | GpuUnreadable | FoundByDriver
GpuProblems: TypeAlias = frozenset[GpuProblem]
ProblemIdentity: TypeAlias = tuple[str, MigSite | None]

HEALTHY: GpuProblems = frozenset()
READY = "ready"
FOUND_BY_DRIVER: Final[tuple[type[FoundByDriver], ...]] = (
    NeedsReboot,
    NeedsReset,
    MemoryFailed,
    Draining,
    FabricFailed,
    Degraded,
)
PROBLEMS: Final[tuple[type[GpuProblem], ...]] = (
    GpuLost,
    NeedsReboot,
    NeedsReset,
    MemoryFailed,
    GpuUnreadable,
    Draining,
    FabricFailed,
    Degraded,
)
"""All types of problems, the worst first."""
STATES = (READY, *(kind.state for kind in PROBLEMS))
"""All values of `state`."""
_RANK: Final = {kind.state: rank for rank, kind in enumerate(PROBLEMS)}


def identity(problem: GpuProblem) -> ProblemIdentity:
    """Returns what makes a problem the same as before: a GPU has one of each identity at most."""
    return problem.state, problem.site


def in_order(problems: Iterable[GpuProblem]) -> tuple[GpuProblem, ...]:
    """Returns the problems, the worst first, in a deterministic order."""
    return tuple(sorted(problems, key=lambda problem: (_RANK[problem.state], str(problem.site))))


def state(problems: GpuProblems) -> str:
    """Returns the state of a GPU with these problems: that of the worst one, or "ready"."""
    return in_order(problems)[0].state if problems else READY


def preventing(problems: Iterable[GpuProblem]) -> GpuProblems:
    """Returns the problems because of which a claim on the GPU is not prepared."""
    return frozenset(problem for problem in problems if problem.severity is not Severity.HARMLESS)


def of_flapping(seconds: float) -> str:
    """Returns a sentence about a GPU that has to be well for this time; "" if it does not flap."""
    if not seconds:
        return ""
    return f"It is flapping, so it has to be well for {seconds:g} s. "


def is_unanswered(problem: GpuProblem) -> bool:
    """Returns whether the GPU does not answer, so that nothing else is known of it."""
    return isinstance(problem, GpuLost | GpuUnreadable)


def unanswered(problems: Iterable[GpuProblem]) -> GpuProblems:
    """Returns the problems because of which nothing is known of a GPU."""
    return frozenset(filter(is_unanswered, problems))


def is_hang(problem: GpuProblem) -> bool:
    """Returns whether a problem is a call of the driver that did not return."""
    return isinstance(problem, GpuUnreadable) and isinstance(problem.failure, NvmlHang)


def since(problem: GpuProblem, before: GpuProblems) -> GpuProblem:
    """Returns the problem as it was first seen, if `before` contains it.

    It keeps its reason, the value of a taint, while it lasts: one that changes with each read would
    have the slices written each time. Only a reset that evicts follows one of the PCIe bus.
    """
    known = next((other for other in before if identity(other) == identity(problem)), None)
    if known is None:
        return problem
    follows = problem.eviction is EvictionCause.RESET is not known.eviction
    if follows or known.reason == problem.reason:
        return replace(problem, since=known.since)
    return known

"""The health of a GPU: a set of problems, each with its severity and the time it was first seen.

This module alone defines the consequences of a problem: `state` is used in the taint and the
metric, `event_reason` in the Event, and `severity` decides whether a claim fails or is retried.
Other code uses these attributes, and does not depend on the types of problems.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """An NVML call that did not succeed."""

    function: str
    """The C symbol, e.g. "nvmlDeviceGetMemoryInfo"."""
    code: str
    """The constant's name, e.g. "NVML_ERROR_UNKNOWN"."""

    def __str__(self) -> str:
        return f"{self.function} returned {self.code}"


@dataclass(frozen=True, slots=True)
class NvmlHang:
    """A call of NVML that has not returned. It cannot be cancelled, and may never return."""

    seconds: float
    """How long it had not returned when this was noticed."""

    def __str__(self) -> str:
        return f"a call to the NVIDIA driver has not returned for {self.seconds:g} s"


class Severity(Enum):
    """What a problem means for claims on the GPU."""

    FATAL = 2
    """The problem stays until an operator acts; claims fail."""
    TRANSIENT = 1
    """The problem may disappear; claims are retried."""


@dataclass(frozen=True, slots=True)
class GpuLost:
    """The GPU fell off the bus."""

    state: ClassVar[str] = "lost"
    event_reason: ClassVar[str] = "GPULost"
    severity: ClassVar[Severity] = Severity.FATAL
    remedy: ClassVar[str] = "reset the GPU or reboot the node"
    failure: NvmlFailure
    since: datetime

    def __str__(self) -> str:
        return f"fell off the bus ({self.failure})"


@dataclass(frozen=True, slots=True)
class GpuUnreadable:
    """The GPU is present, but did not respond to the last read, or that does not return."""

    state: ClassVar[str] = "unreadable"
    event_reason: ClassVar[str] = "GPUUnreadable"
    severity: ClassVar[Severity] = Severity.TRANSIENT
    remedy: ClassVar[str] = "if this continues, reset the GPU"
    failure: NvmlFailure | NvmlHang
    since: datetime

    def __str__(self) -> str:
        return f"does not respond reliably ({self.failure})"


GpuProblem: TypeAlias = GpuLost | GpuUnreadable
GpuProblems: TypeAlias = frozenset[GpuProblem]

HEALTHY: GpuProblems = frozenset()
READY = "ready"
STATES = (READY, GpuLost.state, GpuUnreadable.state)
"""All values of `state`."""


def in_order(problems: Iterable[GpuProblem]) -> tuple[GpuProblem, ...]:
    """Returns the problems by descending severity, in a deterministic order."""
    return tuple(sorted(problems, key=lambda problem: (-problem.severity.value, problem.state)))


def state(problems: GpuProblems) -> str:
    """Returns the state of a GPU with these problems: that of the worst one, or "ready"."""
    return in_order(problems)[0].state if problems else READY


def is_hang(problem: GpuProblem) -> bool:
    """Returns whether a problem is a call of the driver that did not return."""
    return isinstance(problem.failure, NvmlHang)


def since(problem: GpuProblem, before: GpuProblems) -> GpuProblem:
    """Returns the problem with the time at which it was first seen, if `before` contains it."""
    known = next((other for other in before if type(other) is type(problem)), None)
    return problem if known is None else replace(problem, since=known.since)

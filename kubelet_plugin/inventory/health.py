"""The health of a GPU: a set of problems, each with its severity and when it was first seen.

What follows from a problem is said here, once: the taint and the metric's state by `state`, the
Event by `event_reason`, whether a claim is refused for good or for now by `severity`, and the words
for all of them. Whoever acts on problems asks them, and does not branch on their types.
"""

from collections.abc import Iterable
from dataclasses import dataclass
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
        return f"{self.function} answered {self.code}"


class Severity(Enum):
    """What a problem means for claims on the GPU."""

    FATAL = 2
    """It stays until somebody acts: claims are refused."""
    TRANSIENT = 1
    """It may pass: claims wait for that."""


@dataclass(frozen=True, slots=True)
class GpuLost:
    """The GPU fell off the bus."""

    state: ClassVar[str] = "lost"
    event_reason: ClassVar[str] = "GPULost"
    severity: ClassVar[Severity] = Severity.FATAL
    remedy: ClassVar[str] = (
        "reset the GPU or reboot the node, or delete the pod to have it scheduled again"
    )
    failure: NvmlFailure
    since: datetime

    def __str__(self) -> str:
        return f"fell off the bus ({self.failure})"


@dataclass(frozen=True, slots=True)
class GpuUnreadable:
    """The GPU is there and did not answer when it was last read."""

    state: ClassVar[str] = "unreadable"
    event_reason: ClassVar[str] = "GPUUnreadable"
    severity: ClassVar[Severity] = Severity.TRANSIENT
    remedy: ClassVar[str] = "if this lasts, reset the GPU"
    failure: NvmlFailure
    since: datetime

    def __str__(self) -> str:
        return f"does not answer ({self.failure})"


Problem: TypeAlias = GpuLost | GpuUnreadable
Problems: TypeAlias = frozenset[Problem]

HEALTHY: Problems = frozenset()
READY = "ready"
STATES = (READY, GpuLost.state, GpuUnreadable.state)
"""Every word that `state` gives."""


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Gives problems with the worst first, in the same order every time."""
    return tuple(sorted(problems, key=lambda problem: (-problem.severity.value, problem.state)))


def state(problems: Problems) -> str:
    """Gives the word for a GPU with these problems: that of the worst, or "ready"."""
    return in_order(problems)[0].state if problems else READY


def since(problem: Problem, before: Problems) -> Problem:
    """Gives the problem with the time of its first sighting, if `before` had it already."""
    known = next((other for other in before if type(other) is type(problem)), None)
    return problem if known is None else type(problem)(problem.failure, known.since)

"""What is to be done next about an MPS daemon, by what is wanted and how it went so far.

    UnknownDaemon -> RunningDaemon (adopted), or LeftDaemon
    LeftDaemon    -> AbsentDaemon (ended)
    AbsentDaemon  -> RunningDaemon (started), or removed
    RunningDaemon -> LeftDaemon (dead, hung or not wanted)

Times are in seconds of a monotonic clock.
"""

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from carina_dra.sharing.message import WantedDaemon

PROBE_INTERVAL: Final = 10.0
_MISSES: Final = 3
"""Probes in a row that fail until the daemon is taken for hung."""
_RETRY_PROBE: Final = 1.0
_FIRST_PAUSE: Final = 1.0
"""Between a failure and the next start: twice as long after each failure."""
_LONGEST_PAUSE: Final = 60.0
_STABLE: Final = 60.0
"""Seconds after which a ready daemon's earlier failures no longer count."""


@dataclass(frozen=True, slots=True)
class UnknownDaemon:
    """An earlier process may have left a daemon."""

    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """It answers, and its limits were read back."""

    wanted: WantedDaemon
    """What it was started for."""
    since: float
    probe_at: float
    misses: int = 0
    """Probes that have failed in a row."""


@dataclass(frozen=True, slots=True)
class LeftDaemon:
    """Its processes, if there are any, are to be ended."""

    not_before: float


@dataclass(frozen=True, slots=True)
class AbsentDaemon:
    """It has no processes."""

    not_before: float
    """When it may be started."""


DaemonState: TypeAlias = UnknownDaemon | RunningDaemon | LeftDaemon | AbsentDaemon


@dataclass(frozen=True, slots=True)
class DaemonCourse:
    """How it went so far."""

    state: DaemonState = UnknownDaemon()
    reason: str = ""
    """Why it is not ready, if something has failed: the first of the failures in a row. Containers
    can have their daemons fail, with other words each time, and an Event says them."""
    failures: int = 0
    """In a row."""
    started: bool = False
    """Whether it was started or adopted before."""
    restarts: int = 0

    def began(self, wanted: WantedDaemon, now: float) -> "DaemonCourse":
        """Returns the course after a start or adoption."""
        return replace(
            self,
            state=RunningDaemon(wanted, since=now, probe_at=now + PROBE_INTERVAL),
            reason=self.reason if self.failures else "",
            started=True,
        )

    def not_known(self, reason: str, now: float) -> "DaemonCourse":
        """Returns the course when it cannot be told what is there."""
        return replace(self, state=UnknownDaemon(now + _FIRST_PAUSE), reason=reason)

    def failed(self, reason: str, now: float) -> "DaemonCourse":
        """Returns the course after a start that failed, or the end of the daemon."""
        said = self.reason if self.failures else reason
        return replace(self, state=LeftDaemon(now), reason=said, failures=self.failures + 1)

    def replaced(self, now: float) -> "DaemonCourse":
        """Returns the course of a daemon that is not the wanted one."""
        return replace(self, state=LeftDaemon(now), reason="", failures=0)

    def ended(self, now: float) -> "DaemonCourse":
        """Returns the course once no process is left."""
        pause = 0.0
        if self.failures:
            pause = min(_FIRST_PAUSE * 2 ** min(self.failures - 1, 16), _LONGEST_PAUSE)
        return replace(self, state=AbsentDaemon(now + pause))

    def not_ended(self, reason: str, now: float) -> "DaemonCourse":
        """Returns the course when processes do not end."""
        return replace(self, state=LeftDaemon(now + _FIRST_PAUSE), reason=reason)

    def starting(self) -> "DaemonCourse":
        """Returns the course at a start."""
        again = self.started or self.failures > 0
        return replace(self, started=True, restarts=self.restarts + again)

    def answered(self, now: float) -> "DaemonCourse":
        """Returns the course after a probe that was answered."""
        match self.state:
            case RunningDaemon() as running:
                stable = now - running.since >= _STABLE
                return replace(
                    self,
                    state=replace(running, probe_at=now + PROBE_INTERVAL, misses=0),
                    failures=0 if stable else self.failures,
                    reason="" if stable else self.reason,
                )
            case _:
                return self

    def missed(self, reason: str, now: float) -> "DaemonCourse":
        """Returns the course after a probe that was not answered."""
        match self.state:
            case RunningDaemon() as running if running.misses + 1 < _MISSES:
                missed = replace(running, probe_at=now + _RETRY_PROBE, misses=running.misses + 1)
                return replace(self, state=missed)
            case _:
                return self.failed(f"{_MISSES} probes failed: {reason}", now)


@dataclass(frozen=True, slots=True)
class AdoptDaemon:
    """See whether what is there is what is wanted."""

    wanted: WantedDaemon


@dataclass(frozen=True, slots=True)
class StartDaemon:
    """Start it, with its limits."""

    wanted: WantedDaemon


@dataclass(frozen=True, slots=True)
class ProbeDaemon:
    """Ask whether it answers."""


@dataclass(frozen=True, slots=True)
class EndDaemon:
    """End its processes."""


@dataclass(frozen=True, slots=True)
class RemoveDaemon:
    """Remove its folder: nothing is left to do then."""


@dataclass(frozen=True, slots=True)
class WaitForDaemon:
    """Wait for a time, a change of what is wanted, or the end of the daemon."""

    until: float


DaemonStep: TypeAlias = (
    AdoptDaemon | StartDaemon | ProbeDaemon | EndDaemon | RemoveDaemon | WaitForDaemon
)


def next_step(wanted: WantedDaemon | None, state: DaemonState, now: float) -> DaemonStep:
    """Returns what is to be done next."""
    match state:
        case UnknownDaemon(not_before):
            if wanted is None:
                return EndDaemon()
            return AdoptDaemon(wanted) if now >= not_before else WaitForDaemon(not_before)
        case RunningDaemon() as running if running.wanted != wanted:
            return EndDaemon()
        case RunningDaemon() as running:
            return ProbeDaemon() if now >= running.probe_at else WaitForDaemon(running.probe_at)
        case LeftDaemon(not_before):
            return EndDaemon() if now >= not_before else WaitForDaemon(not_before)
        case AbsentDaemon(not_before):
            if wanted is None:
                return RemoveDaemon()
            return StartDaemon(wanted) if now >= not_before else WaitForDaemon(not_before)

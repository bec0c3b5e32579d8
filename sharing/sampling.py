"""The thread that samples who uses shared GPUs, while there are any.

Without a share it waits, and NVML is closed, so that the driver can be replaced. A call of the
driver that does not return keeps this thread alone: `Sampling.report` says so meanwhile.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from carina_dra.nvidia.nvml_library import NvmlBusyError, NvmlCallError, NvmlLibrary
from carina_dra.sharing.message import (
    Offers,
    SharingReport,
    Unwatched,
    WantedShares,
)
from sharing.change_log import ChangeLog
from sharing.observation import (
    NO_PAST,
    GpuSample,
    Unseen,
    UseObservation,
    observe,
    with_ended,
)
from sharing.processes import GpuProcesses
from sharing.use import GpuProcess
from sharing.violators import ViolationKind, Violator

_INTERVAL: Final = 0.3
"""Seconds from the begin of a sample to that of the next."""
_LEAST_PAUSE: Final = 0.1
"""Seconds between two samples, however long they take."""
_RETRY: Final = 2.0
"""Seconds until the next sample if no GPU could be read: nvmlInit may take long."""
_TELL_INTERVAL: Final = 1.0
"""Seconds between two reports, unless more has changed than amounts."""
_HANG: Final = 5.0
"""Seconds after which a sample that has not ended is called a hang."""
_DRIVER_REPLACED: Final = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SamplingCounts:
    """What was done since the start."""

    samples: int
    """Of all shared GPUs."""
    ended: Mapping[ViolationKind, int]
    """Processes, by why."""
    hangs: bool
    """Whether a call of the driver does not return."""


class Sampling:
    """The samples of a process. Any thread may call it."""

    def __init__(
        self,
        library: NvmlLibrary,
        processes: GpuProcesses,
        *,
        start_again: Callable[[], None],
        end: Callable[[GpuProcess], str | None] | None = None,
        offers: Offers | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start_again` has the process start again.

        `end` ends a process, or returns why it did not; without it, none is ended. `offers` says
        what this process does. `now` is in seconds since 1970, `clock` in seconds from any start.
        """
        self._library = library
        self._processes = processes
        self._start_again = start_again
        self._end = end
        self._offers = offers or Offers(ends_violators=end is not None)
        self._now = now
        self._clock = clock
        self._state = threading.Condition()
        self._wanted = WantedShares(generation=0, shares=())
        self._changed = False
        self._report = SharingReport(generation=0, time=now(), offers=self._offers)
        self._began: float | None = None
        self._samples = 0
        self._ended: Counter[ViolationKind] = Counter({"memory": 0, "mps": 0})

        # Used by the thread only:
        self._changes = ChangeLog()
        self._past = NO_PAST
        self._told: SharingReport | None = None
        self._is_open = False

    def want(self, wanted: WantedShares) -> None:
        """Sets what is watched from now on."""
        with self._state:
            self._wanted = wanted
            self._changed = True
            self._state.notify()

    def report(self) -> SharingReport:
        """Returns what was seen last, or that a call of the driver does not return."""
        with self._state:
            hangs, wanted, last = self._hangs, self._wanted, self._report
        if not hangs:
            return last
        gpus = sorted({share.gpu for share in wanted.shares})
        reason = "a call of the NVIDIA driver does not return"
        return SharingReport(
            generation=wanted.generation,
            time=self._now(),
            unwatched=tuple(Unwatched(gpu=gpu, reason=reason) for gpu in gpus),
            offers=last.offers,
        )

    @property
    def counts(self) -> SamplingCounts:
        """What was done since the start."""
        with self._state:
            return SamplingCounts(self._samples, dict(self._ended), self._hangs)

    @property
    def _hangs(self) -> bool:
        return self._began is not None and self._clock() - self._began >= _HANG

    def run(self, tell: Callable[[], None]) -> None:
        """Samples for ever, and calls `tell` whenever there is a report to be sent."""
        pause: float | None = None
        while True:
            wanted = self._next(pause)
            began = self._clock()
            report = self._sample(wanted)
            if self._is_news(report):
                self._told = report
                tell()
            took = self._clock() - began
            pause = max((_INTERVAL if report.uses else _RETRY) - took, _LEAST_PAUSE)
            pause = pause if wanted.shares else None

    def _next(self, pause: float | None) -> WantedShares:
        """Waits for what is to be watched next: a change, or after the pause the same again."""
        with self._state:
            self._state.wait_for(lambda: self._changed, pause)
            self._changed = False
            self._began = self._clock()
            return self._wanted

    def _sample(self, wanted: WantedShares) -> SharingReport:
        gpus = {share.gpu for share in wanted.shares}
        samples: dict[str, GpuSample] = {}
        if gpus:
            samples = self._read(gpus)
        elif self._is_open:
            self._close()
        seen = observe(wanted, samples, self._past, self._now())
        if self._end is not None:
            for process in seen.held:
                self._end(process)
            if seen.violators:
                seen = self._end_violators(self._end, seen)
        report = seen.report.model_copy(update={"offers": self._offers})
        self._changes.note(self._report, report, samples, self._clock())
        self._past = seen.past
        with self._state:
            self._report = report
            self._began = None
            self._samples += bool(gpus)
        return report

    def _end_violators(
        self, end: Callable[[GpuProcess], str | None], seen: UseObservation
    ) -> UseObservation:
        """Ends the processes that a sample shows are to be ended; returns what it shows then."""
        ended: list[Violator] = []
        for violator in seen.violators:
            reason = end(violator.process)
            if reason is None:
                ended.append(violator)
            else:
                self._changes.spared(violator, reason, self._clock())
        with self._state:
            self._ended.update(violator.why for violator in ended)
        return with_ended(seen, ended)

    def _read(self, gpus: set[str]) -> dict[str, GpuSample]:
        self._is_open = True
        try:
            with self._library.lease() as session:
                samples = {gpu: self._processes.read(gpu, session) for gpu in sorted(gpus)}
                if all(isinstance(sample, Unseen) for sample in samples.values()):
                    self._library.discard(session)  # the driver may have been loaded again
        except NvmlBusyError as error:
            return dict.fromkeys(gpus, Unseen(str(error)))
        except NvmlCallError as error:
            if error.failure.code == _DRIVER_REPLACED and self._library.replacement is not None:
                _log.warning("another NVIDIA driver was installed; the process starts again")
                self._start_again()
            return dict.fromkeys(gpus, Unseen(str(error.failure)))
        except Exception:  # noqa: BLE001 - a bug is logged, and must not end the watch
            _log.exception("processes cannot be told; retrying")
            return dict.fromkeys(gpus, Unseen("an error of carina-sharing, which its log has"))
        return samples

    def _close(self) -> None:
        self._library.close()
        self._processes.forget()
        self._is_open = False
        _log.info("no GPU is shared any more; NVML is closed")

    def _is_news(self, report: SharingReport) -> bool:
        told = self._told
        if told is None or _without_amounts(told) != _without_amounts(report):
            return True
        if abs(report.time - told.time) < _TELL_INTERVAL:
            return False
        return report.model_copy(update={"time": told.time}) != told


def _without_amounts(report: SharingReport) -> object:
    """What is told at once: all but how much memory and time is used."""
    return (
        report.generation,
        [
            (
                *(use.gpu, use.claims, use.given_mib, use.given_cores),
                *(use.exceeded_since, use.exceeded, use.ended),
            )
            for use in report.uses
        ],
        report.offers,
        [stranger.gpu for stranger in report.strangers],
        report.unwatched,
    )

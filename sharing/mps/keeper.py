"""The thread that keeps an MPS daemon as it is wanted.

Each daemon has a thread, so that one that hangs delays no other.
"""

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from carina_dra.sharing.message import MpsDaemon, WantedDaemon
from sharing.mps.control_daemon import ControlDaemon, DaemonError
from sharing.mps.course import (
    AdoptDaemon,
    DaemonCourse,
    DaemonStep,
    EndDaemon,
    ProbeDaemon,
    RemoveDaemon,
    RunningDaemon,
    StartDaemon,
    WaitForDaemon,
    next_step,
)

_RETRY_REMOVAL: Final = 5.0
_log = logging.getLogger(__name__)


class Keeper:
    """The keeper of a daemon. Any thread may call it."""

    def __init__(
        self,
        uid: str,
        daemon: ControlDaemon,
        *,
        wanted: WantedDaemon | None,
        tell: Callable[[], None],
        removed: Callable[["Keeper"], None],
    ) -> None:
        """`tell` is called when a report differs, and `removed` at the end of the thread."""
        self.uid = uid
        self._daemon = daemon
        self._tell = tell
        self._removed = removed
        self._state = threading.Lock()
        self._wanted = wanted
        self._course = DaemonCourse()
        self._last = wanted
        """What the daemon was wanted for last, for reports when it no longer is."""
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"mps-{uid}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def want(self, wanted: WantedDaemon | None) -> bool:
        """Sets what is wanted; None for no daemon. False if the thread has ended."""
        with self._state:
            if self._is_stopped:
                return False
            if wanted != self._wanted:
                self._wanted = wanted
                self._last = wanted or self._last
                os.eventfd_write(self._news, 1)
        return True

    def report(self) -> MpsDaemon | None:
        """Returns how it is; None if it is not wanted and it is not known for what it was."""
        with self._state:
            wanted, course = self._wanted or self._last, self._course
        if wanted is None:
            return None
        restarts = course.restarts
        match course.state:
            case RunningDaemon(started_for) if started_for == wanted:
                return MpsDaemon(wanted=wanted, state="ready", restarts=restarts)
            case _ if course.reason:
                return MpsDaemon(
                    wanted=wanted, state="failed", reason=course.reason, restarts=restarts
                )
            case _:
                return MpsDaemon(wanted=wanted, state="starting", restarts=restarts)

    def _run(self) -> None:
        while True:
            try:
                if not self._do(self._next()):
                    return
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the supervision
                _log.exception("an MPS daemon is left alone; retrying", extra={"claim": self.uid})
                self._move(self._course.failed("an error of carina-sharing", time.monotonic()))
                self._wait(time.monotonic() + 1.0)

    def _next(self) -> DaemonStep:
        with self._state:
            return next_step(self._wanted, self._course.state, time.monotonic())

    def _do(self, step: DaemonStep) -> bool:
        """Does a step, and returns whether there is more to do."""
        match step:
            case AdoptDaemon(wanted):
                self._adopt(wanted)
            case StartDaemon(wanted):
                self._start(wanted)
            case ProbeDaemon():
                self._probe()
            case EndDaemon():
                self._end()
            case RemoveDaemon():
                return not self._remove()
            case WaitForDaemon(until):
                self._wait(until)
        return True

    def _adopt(self, wanted: WantedDaemon) -> None:
        try:
            found = self._daemon.adopt(wanted)
        except DaemonError as error:
            self._move(self._course.not_known(str(error), time.monotonic()))
            return
        now = time.monotonic()
        if found:
            _log.info("an MPS daemon runs on", extra={"claim": self.uid})
        self._move(self._course.began(wanted, now) if found else self._course.replaced(now))

    def _start(self, wanted: WantedDaemon) -> None:
        self._move(self._course.starting())
        try:
            self._daemon.start(wanted)
        except DaemonError as error:
            self._fail(str(error))
        else:
            _log.info("an MPS daemon has started", extra={"claim": self.uid})
            self._move(self._course.began(wanted, time.monotonic()))

    def _probe(self) -> None:
        try:
            self._daemon.probe()
        except DaemonError as error:
            self._move(self._course.missed(str(error), time.monotonic()))
        else:
            self._move(self._course.answered(time.monotonic()))

    def _end(self) -> None:
        if isinstance(self._course.state, RunningDaemon):
            self._move(self._course.replaced(time.monotonic()))
        if self._last is None:
            with self._state:
                self._last = self._daemon.recorded()
        try:
            self._daemon.end()
        except DaemonError as error:
            self._move(self._course.not_ended(str(error), time.monotonic()))
        else:
            self._move(self._course.ended(time.monotonic()))

    def _remove(self) -> bool:
        try:
            self._daemon.remove()
        except DaemonError as error:
            _log.warning("the folder of an MPS daemon is left", extra={"error": str(error)})
            self._wait(time.monotonic() + _RETRY_REMOVAL)
            return False
        with self._state:
            if self._wanted is not None:  # it is wanted again
                return False
            self._is_stopped = True
            os.close(self._news)
        self._removed(self)
        self._tell()
        return True

    def _wait(self, until: float) -> None:
        """Waits for a time, a change of what is wanted, or the end of the daemon."""
        poll = select.poll()
        poll.register(self._news, select.POLLIN)
        leader = self._daemon.leader
        watched = leader is not None and isinstance(self._course.state, RunningDaemon)
        if watched and leader is not None:
            poll.register(leader, select.POLLIN)
        ready = poll.poll(max(until - time.monotonic(), 0) * 1000 + 1)
        with suppress(BlockingIOError):
            os.eventfd_read(self._news)
        if watched and any(descriptor == leader for descriptor, _ in ready):
            self._fail("its process ended")

    def _fail(self, reason: str) -> None:
        course = self._course.failed(reason, time.monotonic())
        _log.warning(
            "an MPS daemon has failed",
            extra={"claim": self.uid, "reason": reason, "times": course.failures},
        )
        self._move(course)

    def _move(self, course: DaemonCourse) -> None:
        """Goes on to a course, and tells it if a report differs."""
        before = self.report()
        with self._state:
            self._course = course
        if self.report() != before:
            self._tell()

"""When a process ends: on SIGTERM and SIGINT, or because one of its threads has failed.

The handler of a signal runs in the main thread, between any two of its instructions. It may
therefore not take a lock, because the code that it interrupts may hold it, as the handler of the
signal before does. So the handler does nothing. The interpreter writes the number of each signal
into a pipe, and a thread that reads the pipe sets the event.
"""

import os
import signal
import threading
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from carina_dra.process import logs

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""The signals that end a process."""


@dataclass(frozen=True, slots=True)
class Termination:
    """Events that any thread may wait for. `stop` is set in either case, `failed` in the second."""

    stop: threading.Event = field(default_factory=threading.Event)
    failed: threading.Event = field(default_factory=threading.Event)

    def exit_if_failed(self) -> None:
        """Exits with 1 if a thread has failed, so that the process is restarted."""
        if self.failed.is_set():
            raise SystemExit(1)


def watch() -> Termination:
    """The termination of this process; for its main thread, once."""
    termination = Termination()

    def fail() -> None:
        termination.failed.set()
        termination.stop.set()

    logs.report_failed_threads(fail)
    read, write = os.pipe()  # closed in children that execute another program
    os.set_blocking(write, False)
    # After the first signal nobody reads, so the pipe may be full.
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(
        target=_set_on_signal, args=(read, termination.stop), name="signals", daemon=True
    ).start()
    for number in SIGNALS:
        signal.signal(number, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # its parent may have blocked them
    return termination


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Replaces the default action of the signal, and does nothing."""


def _set_on_signal(read: int, stop: threading.Event) -> None:
    """Sets `stop` as soon as the pipe has the number of a signal that ends the process."""
    while os.read(read, 1)[0] not in SIGNALS:
        pass
    stop.set()

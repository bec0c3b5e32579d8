"""When a process ends: on SIGTERM and SIGINT, or because one of its threads has failed."""

import signal
import threading
from dataclasses import dataclass, field

from carina_dra.process import logs


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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: termination.stop.set())
    return termination

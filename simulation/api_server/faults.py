"""Failures on demand: what a test wants the API server to do wrong."""

import threading
from dataclasses import dataclass

from simulation.api_server.failure import Failure


@dataclass(frozen=True, slots=True)
class Fault:
    """Requests of a verb (as RBAC has them: get, list, watch, ...) fail, empty for any verb."""

    failure: Failure
    verb: str
    plural: str


class Faults:
    """The failures that were asked for and are still to happen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []
        self._streams_ended = 0

    def fail(self, failure: Failure, *, verb: str = "", plural: str = "", times: int = 1) -> None:
        """The next requests of a verb, on a resource, fail (empty: whichever)."""
        with self._lock:
            self._pending += [Fault(failure, verb, plural)] * times

    def end_streams(self) -> None:
        """Counts streams that are open as to be ended; `generation` says which."""
        with self._lock:
            self._streams_ended += 1

    @property
    def generation(self) -> int:
        """Changes when streams are to end: one that was opened at another is over."""
        return self._streams_ended

    def strike(self, verb: str, plural: str) -> None:
        """What a request goes through first. Raises Failure where one was asked for."""
        with self._lock:
            for fault in self._pending:
                if fault.verb in ("", verb) and fault.plural in ("", plural):
                    self._pending.remove(fault)
                    raise fault.failure

"""Failures that tests inject."""

import threading
from dataclasses import dataclass

from simulation.api_server.failure import Failure


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of the next request with a verb (as in RBAC) on a resource; empty for any."""

    failure: Failure
    verb: str
    plural: str


class Faults:
    """Injected failures that have not happened yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []
        self._streams_ended = 0

    def fail(self, failure: Failure, *, verb: str = "", plural: str = "", times: int = 1) -> None:
        """Makes the next `times` requests with a verb on a resource fail; empty for any."""
        with self._lock:
            self._pending += [Fault(failure, verb, plural)] * times

    def end_streams(self) -> None:
        """Starts a new generation: streams opened in an earlier one end."""
        with self._lock:
            self._streams_ended += 1

    @property
    def generation(self) -> int:
        """The current generation of streams."""
        return self._streams_ended

    def check(self, verb: str, plural: str) -> None:
        """Raises the Failure that was injected for such a request, if there is one."""
        with self._lock:
            for fault in self._pending:
                if fault.verb in ("", verb) and fault.plural in ("", plural):
                    self._pending.remove(fault)
                    raise fault.failure

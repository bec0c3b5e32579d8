"""Whether the process works: what the kubelet asks at /healthz, and at /readyz."""

import time
from collections.abc import Callable, Sequence
from typing import Final

STALLED_SECONDS: Final = 60.0
"""A leader that makes no progress for so long does not work; without work it looks up earlier."""


class Health:
    """What the process says of itself. Used by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unsynced: Callable[[], Sequence[str]] | None = None
        self._progressed_at = clock()

    def lead(self, unsynced: Callable[[], Sequence[str]]) -> None:
        """The process leads; `unsynced` gives the resources that have not been read yet."""
        self._progressed_at = self._clock()
        self._unsynced = unsynced

    def follow(self) -> None:
        """The process waits until it may lead."""
        self._unsynced = None

    def progress(self) -> None:
        """A step of a cycle, or a wait for work, has ended."""
        self._progressed_at = self._clock()

    def healthy(self) -> str | None:
        """None as long as the process needs no restart, else the problem."""
        since = self._clock() - self._progressed_at
        if self._unsynced is None or since <= STALLED_SECONDS:
            return None
        return f"nothing has been done for {since:.0f} s"

    def ready(self) -> str | None:
        """None if the process decides, or waits until it may; else what it waits for."""
        waits_for = () if self._unsynced is None else self._unsynced()
        if waits_for:
            return f"not read yet: {', '.join(waits_for)}"
        return self.healthy()

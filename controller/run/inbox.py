"""Work for the loop, from any thread."""

import queue
import time
from collections.abc import Callable
from typing import TypeAlias

Task: TypeAlias = Callable[[], None]


class Inbox:
    """Work that waits for the loop. Any thread may `put`, and the loop does it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._seconds = 0.0

    def put(self, work: Task) -> None:
        """Adds work."""
        self._queue.put(work)

    def do(self, timeout: float) -> bool:
        """Does all the work that there is, after waiting for some; whether there was any."""
        try:
            work = self._queue.get(timeout=max(timeout, 0))
        except queue.Empty:
            return False
        began = time.monotonic()
        work()
        for _ in range(self._queue.qsize()):  # what comes meanwhile must not delay a decision
            self._queue.get_nowait()()
        self._seconds += time.monotonic() - began
        return True

    def take_seconds(self) -> float:
        """How many seconds of work were done since the last call, without the waiting."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

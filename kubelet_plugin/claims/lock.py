"""The node's lock: one change of prepared claims at a time, among threads and among processes.

An flock(2) on a file beside the checkpoint, which the kernel frees when its holder dies. Waiting
for it means trying again and again, so threads of one process wait for each other first.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL = 0.01
"""Seconds between two tries: flock(2) knows no deadline of its own."""


class LockError(Exception):
    """The lock cannot be had: says what stands in the way, and the remedy."""


class NodeLock:
    """The lock on one node's prepared claims."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        """Locks by the file at `path`; `clock` and `pause` are in seconds."""
        self._path = path
        self._clock = clock
        self._pause = pause
        self._threads = threading.Lock()

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        """Holds the lock inside the `with` block.

        Raises:
            LockError: it was not free by `deadline`, a reading of the clock, or its file cannot be
                used.
        """
        if not self._threads.acquire(timeout=max(0.0, deadline - self._clock())):
            raise self._timeout()
        try:
            descriptor = self._opened()
            try:
                while not _try_lock(descriptor):
                    if self._clock() >= deadline:
                        raise self._timeout()
                    self._pause(POLL)
                yield
            finally:
                os.close(descriptor)
        finally:
            self._threads.release()

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LockError(
                f"the lock file cannot be opened: {error}; repair its folder"
            ) from error

    def _timeout(self) -> LockError:
        return LockError(
            f"{self._path} is held by another call or another plugin process; "
            "if this lasts, look for a plugin that hangs in a driver call"
        )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

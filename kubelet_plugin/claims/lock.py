"""Locks between the plugin's threads and processes: one file for the node, one for each GPU.

A lock is an flock(2) on a file beside the checkpoint; the kernel releases it when its holder dies.
Waiting for flock means polling, so the threads of one process first wait for a mutex.

The order is fixed: the GPUs' locks by name, then the node's lock. No thread waits for a GPU's lock
while it holds the node's lock, so a slow GPU does not delay claims on other GPUs.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

POLL = 0.01
"""Seconds between two attempts: flock(2) has no timeout."""
_LONG: Final = 10.0
"""Seconds after which a call that holds a lock counts as one that hangs: none takes as long."""


class LockError(Exception):
    """A lock cannot be acquired; the message gives the reason and the remedy."""


class LockBusyError(LockError):
    """The lock was not free in time, because calls that began earlier are not through."""


class FileLock:
    """A lock between all threads of all processes that use the same file."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        """Creates a lock on the file at `path`; `clock` and `pause` use seconds."""
        self._path = path
        self._clock = clock
        self._pause = pause
        self._threads = threading.Lock()
        self._held_since = 0.0

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        """Holds the lock inside the `with` block.

        Raises:
            LockBusyError: the lock was not free by `deadline`, a time on the clock, since threads
                of this process take it in turn.
            LockError: a holder does not let it go, or the file cannot be locked.
        """
        if not self._threads.acquire(timeout=max(0.0, deadline - self._clock())):
            if self._clock() - self._held_since < _LONG:
                raise LockBusyError(f"{self._path} is held by another call, and calls take turns")
            raise self._timeout()
        self._held_since = self._clock()
        try:
            descriptor = self._opened()
            try:
                while not self._try_lock(descriptor):
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
                f"the lock file cannot be opened: {error}; check that its folder exists and is "
                "writable"
            ) from error

    def _try_lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LockError(
                f"{self._path} cannot be locked: {error}; the file system must support flock"
            ) from error
        return True

    def _timeout(self) -> LockError:
        return LockError(
            f"{self._path} is held by another call or another plugin process; "
            "if this continues, check for a plugin process that hangs in a call to the NVIDIA "
            "driver"
        )


class GpuLocks:
    """A lock for each GPU of the node."""

    def __init__(
        self, folder: Path, *, clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        """Creates locks on files in `folder`; `clock` and `pause` use seconds."""
        self._folder = folder
        self._clock = clock
        self._pause = pause
        self._locks: dict[str, FileLock] = {}
        self._guard = threading.Lock()

    @contextmanager
    def held(self, gpus: Collection[str], deadline: float) -> Iterator[None]:
        """Holds the locks of these GPUs inside the `with` block.

        Raises:
            LockError: a lock was not free by `deadline`, a time on the clock, or is unusable.
        """
        with ExitStack() as stack:
            for gpu in sorted(gpus):
                stack.enter_context(self._lock(gpu).held(deadline))
            yield

    def _lock(self, gpu: str) -> FileLock:
        with self._guard:
            if gpu not in self._locks:
                path = self._folder / f"{gpu}.lock"
                self._locks[gpu] = FileLock(path, clock=self._clock, pause=self._pause)
            return self._locks[gpu]

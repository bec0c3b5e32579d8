"""The NVML library: the one place that loads it, initialises it, calls it and shuts it down.

pynvml keeps one library for as long as the process lives, and NVML keeps one state for all threads:
nvmlShutdown invalidates the handles that another thread is using. All users in a process (what
reads GPUs, what changes them, what waits for events) therefore share one `NvmlLibrary` and hold a
lease on it while they call.
"""

import ctypes
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health import NvmlFailure
from kubelet_plugin.rooted_path import RootedPath

_log = logging.getLogger(__name__)

_CODES: Final[Mapping[int, str]] = {
    getattr(pynvml, name): name for name in dir(pynvml) if name.startswith("NVML_ERROR_")
}
# An old driver may know a function and not the version of the structure that it is to fill.
_LACKING: Final = frozenset(
    {
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_NOT_SUPPORTED",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    }
)
NO_SUCH: Final = _LACKING | {"NVML_ERROR_INVALID_ARGUMENT"}
"""Errors that drivers answer for a link or profile that a GPU does not have."""


class NvmlCallError(Exception):
    """An NVML call failed."""

    def __init__(self, failure: NvmlFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class NvmlBusyError(Exception):
    """NVML cannot be opened, because a call of another user of this process does not return."""


def call(function: Callable[..., Any], *arguments: object) -> Any:
    """Calls a function of pynvml and gives its result.

    Raises:
        NvmlCallError: the driver answers an error, or has no such function.
    """
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        code = _CODES.get(error.value, f"NVML error {error.value}")
        raise NvmlCallError(NvmlFailure(function.__name__, code)) from None


def optional_call(function: Callable[..., Any], *arguments: object) -> Any:
    """Calls a function of pynvml and gives its result; None if the driver does not support it.

    Raises:
        NvmlCallError: the call failed for another reason.
    """
    try:
        return call(function, *arguments)
    except NvmlCallError as error:
        if error.failure.code not in _LACKING:
            raise
        _report_missing(error.failure)
        return None


@functools.cache
def _report_missing(failure: NvmlFailure) -> None:
    """Logs once for each function, since the GPUs are read every few seconds."""
    _log.info("the driver does not provide a function", extra={"missing": str(failure)})


@dataclass(frozen=True, slots=True, eq=False)
class NvmlSession:
    """The time from one nvmlInit to the next nvmlShutdown.

    Handles and event sets are valid within one session. A session equals itself alone.
    """

    gpu_addresses: frozenset[str] | None
    """The kernel's list of GPUs before nvmlInit. NVML sees these GPUs and no others."""


class NvmlLibrary:
    """Owner of the library below a driver root, or of the one that the loader finds.

    Any number of threads hold a lease at a time. The library is initialised for the first one and
    stays so between leases, since nvmlInit wakes every GPU that has no persistence daemon. Once the
    session is stale, because the kernel lists other GPUs or a user has discarded it, it is opened
    again as soon as nobody holds a lease; new users wait for that.

    A call that hangs cannot be ended, so nobody waits for another user longer than `patience`:

    - If the others keep their leases on a stale session, the next user gets a lease on it, too. It
      still answers for the GPUs that it knows.
    - If another user's nvmlInit or nvmlShutdown does not return, there is nothing to lease, and the
      next user gets an NvmlBusyError.
    - After one wait has timed out, the next users do not wait until one of those that were waited
      for has returned.
    """

    def __init__(
        self, host: HostPaths, candidates: Sequence[RootedPath] = (), *, patience: float = 10.0
    ) -> None:
        """The first of `candidates` that exists is loaded; the loader's choice if there is none.

        `patience` is in seconds.
        """
        self._host = host
        self._candidates = tuple(candidates)
        self._patience = patience
        self._loaded: Path | None = None
        self._state = threading.Condition()
        self._session: NvmlSession | None = None
        self._discarded = False
        self._inside: set[object] = set()
        """Who holds a lease, or is opening or shutting down."""
        self._changing = False
        self._stuck: frozenset[object] = frozenset()
        """Who was inside when a wait for them timed out."""

    @property
    def places(self) -> str:
        """Where the library is looked for, in words."""
        return " or ".join(["by the loader", *(f"at {path}" for path in self._candidates)])

    @property
    def replacement(self) -> Path | None:
        """The library that would be loaded now, if it differs from the loaded one."""
        installed = self._installed()
        return installed if installed != self._loaded else None

    @contextmanager
    def lease(self) -> Iterator[NvmlSession]:
        """Holds the library open for the length of a block.

        Leases should be short, and one thread holds one at a time: what waits for events takes a
        lease for each wait.

        Raises:
            NvmlCallError: NVML cannot be loaded or initialised.
            NvmlBusyError: another user's nvmlInit or nvmlShutdown does not return.
        """
        user = object()
        session = self._enter(user)
        try:
            yield session
        finally:
            self._leave(user)

    def discard(self, session: NvmlSession) -> None:
        """Marks the session to be shut down when its last lease ends, as after a driver reload."""
        with self._state:
            self._discarded = self._discarded or session is self._session

    def close(self) -> None:
        """Shuts down once nobody holds a lease, but not if that takes longer than `patience`."""
        user = object()
        with self._state:
            self._wait_until(lambda: not self._inside)
            if self._inside or self._session is None:
                return
            self._begin_change(user)
        self._finish_closing(user)

    def _enter(self, user: object) -> NvmlSession:
        addresses = self._host.gpu_addresses()
        with self._state:
            self._wait_until(lambda: not self._inside or self._is_usable(addresses))
            if self._changing:
                raise NvmlBusyError(
                    f"nvmlInit or nvmlShutdown has not returned for {self._patience:g} s or more; "
                    "if it does not return at all, reset the GPU or reboot the node"
                )
            # Where the kernel's list cannot be read, only a new session shows changes.
            lasting = addresses is not None and self._is_usable(addresses)
            if self._session is not None and (lasting or self._inside):
                self._inside.add(user)
                return self._session
            self._begin_change(user)
        session = None
        try:
            self._shut_down()
            self._load()
            call(pynvml.nvmlInit)
            session = NvmlSession(addresses)
        finally:
            self._end_change(user, session)
        return session

    def _leave(self, user: object) -> None:
        with self._state:
            self._inside.remove(user)
            self._state.notify_all()
            if self._inside or not self._discarded:
                return
            self._begin_change(user)
        self._finish_closing(user)

    def _finish_closing(self, user: object) -> None:
        try:
            self._shut_down()
        finally:
            self._end_change(user, None)

    def _is_usable(self, addresses: frozenset[str] | None) -> bool:
        """Whether a lease on the session can be given without opening it again."""
        if self._session is None or self._discarded or self._changing:
            return False
        return addresses is None or addresses == self._session.gpu_addresses

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        """Waits at most `patience`, and not at all for users that a wait has timed out for."""
        if self._stuck and self._stuck <= self._inside:
            return
        self._stuck = frozenset()
        if not self._state.wait_for(ready, self._patience):
            self._stuck = frozenset(self._inside)
            _log.warning("an NVML call does not return; NVML cannot be opened again meanwhile")

    def _begin_change(self, user: object) -> None:
        self._changing = True
        self._inside.add(user)

    def _end_change(self, user: object, session: NvmlSession | None) -> None:
        """Goes on with a session that the user has a lease on, or with none."""
        with self._state:
            if session is None:
                self._inside.remove(user)
            self._session = session
            self._discarded = False
            self._changing = False
            self._state.notify_all()

    def _shut_down(self) -> None:
        if self._session is None:
            return
        try:
            call(pynvml.nvmlShutdown)
        except NvmlCallError as error:
            _log.warning("NVML did not shut down", extra={"failure": str(error.failure)})

    def _load(self) -> None:
        """Loads the library, unless it is. Where no candidate can be, pynvml asks the loader."""
        self._loaded = self._loaded or self._installed()
        if pynvml.nvmlLib is not None:
            return
        for path in self._existing():
            try:
                pynvml.nvmlLib = ctypes.CDLL(str(path))
            except OSError as error:
                _report_unusable(path, error)
            else:
                return

    def _installed(self) -> Path | None:
        """The first candidate that exists, under the name that its links lead to."""
        return next(self._existing(), None)

    def _existing(self) -> Iterator[Path]:
        """Where the candidates are for this process, without links."""
        for candidate in self._candidates:
            try:
                path = candidate.locate()
                path.lstat()
            except FileNotFoundError:
                continue
            except OSError as error:
                _report_unusable(candidate, error)
            else:
                yield path


def _report_unusable(path: Path | RootedPath, error: OSError) -> None:
    _log.warning("NVML library cannot be loaded", extra={"path": str(path), "error": str(error)})

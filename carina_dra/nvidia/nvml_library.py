"""The NVML library: the only module that loads, initialises, calls and shuts it down.

pynvml keeps one library for the lifetime of the process, and NVML keeps one state for all threads:
nvmlShutdown invalidates the handles that another thread is using. All users in a process (those
that read GPUs, change them or wait for events) therefore share one `NvmlLibrary` and hold a lease
on it during their calls.
"""

import ctypes
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.rooted_path import RootedPath

_log = logging.getLogger(__name__)

_CODES: Final[Mapping[int, str]] = {
    getattr(pynvml, name): name for name in dir(pynvml) if name.startswith("NVML_ERROR_")
}
# An old driver may have a function, but not support the version of its structure.
_UNSUPPORTED: Final = frozenset(
    {
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_NOT_SUPPORTED",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    }
)
NO_SUCH: Final = _UNSUPPORTED | {"NVML_ERROR_INVALID_ARGUMENT"}
"""Errors that drivers return for a link or profile that a GPU does not have."""


class NvmlCallError(Exception):
    """An NVML call failed."""

    def __init__(self, failure: NvmlFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class NvmlBusyError(Exception):
    """NVML cannot be opened, because a call of another user in this process does not return."""


class NvmlReleasedError(Exception):
    """NVML is not opened, because the node's GPUs are released."""


def call(function: Callable[..., Any], *arguments: object) -> Any:
    """Calls a function of pynvml and returns its result.

    Raises:
        NvmlCallError: the driver returns an error, or does not have the function.
    """
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlCallError(NvmlFailure(function.__name__, code_name(error.value))) from None


def code_name(value: int) -> str:
    """Returns the constant's name of a value that NVML returned."""
    return _CODES.get(value, f"NVML error {value}")


def optional_call(function: Callable[..., Any], *arguments: object) -> Any:
    """Calls a function of pynvml and returns its result; None if the driver does not support it.

    Raises:
        NvmlCallError: the call failed for another reason.
    """
    try:
        return call(function, *arguments)
    except NvmlCallError as error:
        if error.failure.code not in _UNSUPPORTED:
            raise
        _report_missing(error.failure)
        return None


@functools.cache
def _report_missing(failure: NvmlFailure) -> None:
    """Logs once for each function, because the GPUs are read every few seconds."""
    _log.info("the driver does not provide a function", extra={"missing": str(failure)})


@dataclass(frozen=True, slots=True, eq=False)
class NvmlSession:
    """The period from an nvmlInit to the next nvmlShutdown.

    Handles and event sets are valid within one session. Sessions are compared by identity.
    """

    gpu_addresses: frozenset[str] | None
    """The kernel's list of GPUs before nvmlInit. NVML sees exactly these GPUs."""


class NvmlLibrary:
    """The owner of the library below a driver root, or of the library that the loader finds.

    Several threads can hold a lease at a time. The library is initialised for the first lease and
    stays initialised between leases, because nvmlInit wakes every GPU without a persistence daemon.
    A session becomes stale if the kernel lists different GPUs, or if a user discards it. A stale
    session is reopened when no user holds a lease; new users wait for that.

    A call that hangs cannot be cancelled, so no user waits longer than `patience` for another one:

    - If others keep their leases on a stale session, the next user also gets a lease on it. The
      session still works for the GPUs that it knows.
    - If another user's nvmlInit or nvmlShutdown does not return, no lease is possible, and the next
      user gets an NvmlBusyError.
    - After a wait has timed out, later users do not wait until one of the users that did not return
      has returned.
    """

    def __init__(
        self,
        gpu_addresses: Callable[[], frozenset[str] | None],
        candidates: Callable[[], Iterable[RootedPath]] = tuple,
        *,
        below: str = "",
        patience: float = 10.0,
        released: bool = False,
    ) -> None:
        """Loads the first of the candidates that exists; without one, the loader chooses.

        `gpu_addresses` gives the kernel's list of GPUs, and None if it cannot be read.
        `candidates` is called whenever they are looked for; `below` names the roots that they are
        below, for messages. `patience` is in seconds. If it is `released`, it is never loaded.
        """
        self._gpu_addresses = gpu_addresses
        self._candidates = candidates
        self._below = below
        self._patience = patience
        self._released = released
        self._loaded: Path | None = None
        self._state = threading.Condition()
        self._session: NvmlSession | None = None
        self._discarded = False
        self._users: set[object] = set()
        """The users that hold a lease, or are opening or shutting down."""
        self._changing = False
        self._not_returned: frozenset[object] = frozenset()
        """The users for which a wait has timed out."""

    @property
    def places(self) -> str:
        """Describes where the library was searched in vain, for messages."""
        unusable = self._installed()
        if unusable is not None:
            return f"by the loader, and {unusable} cannot be loaded"
        return f"by the loader or below {self._below}" if self._below else "by the loader"

    @property
    def replacement(self) -> Path | None:
        """The library that would be loaded now, if it differs from the loaded one."""
        installed = self._installed()
        return installed if installed != self._loaded else None

    @contextmanager
    def lease(self) -> Iterator[NvmlSession]:
        """Keeps the library open inside the `with` block.

        Leases should be short, and a thread holds at most one at a time. To wait for events, take a
        lease for each wait.

        Raises:
            NvmlCallError: NVML cannot be loaded or initialised.
            NvmlBusyError: another user's nvmlInit or nvmlShutdown does not return.
            NvmlReleasedError: the node's GPUs are released.
        """
        if self._released:
            raise NvmlReleasedError
        user = object()
        session = self._enter(user)
        try:
            yield session
        finally:
            self._leave(user)

    def discard(self, session: NvmlSession) -> None:
        """Has the session shut down when its last lease ends, for example after a driver reload."""
        with self._state:
            self._discarded = self._discarded or session is self._session

    def close(self) -> None:
        """Shuts down when no user holds a lease, unless that takes longer than `patience`."""
        user = object()
        with self._state:
            self._wait_until(lambda: not self._users)
            if self._users or self._session is None:
                return
            self._begin_change(user)
        self._finish_closing(user)

    def _enter(self, user: object) -> NvmlSession:
        addresses = self._gpu_addresses()
        with self._state:
            self._wait_until(lambda: not self._users or self._is_usable(addresses))
            if self._changing:
                raise NvmlBusyError(
                    f"nvmlInit or nvmlShutdown has not returned for {self._patience:g} s or more; "
                    "if it does not return at all, reset the GPU or reboot the node"
                )
            # If the kernel's list cannot be read, only a new session detects changes.
            lasting = addresses is not None and self._is_usable(addresses)
            if self._session is not None and (lasting or self._users):
                self._users.add(user)
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
            self._users.remove(user)
            self._state.notify_all()
            if self._users or not self._discarded:
                return
            self._begin_change(user)
        self._finish_closing(user)

    def _finish_closing(self, user: object) -> None:
        try:
            self._shut_down()
        finally:
            self._end_change(user, None)

    def _is_usable(self, addresses: frozenset[str] | None) -> bool:
        """Returns whether the session can be leased without reopening it."""
        if self._session is None or self._discarded or self._changing:
            return False
        return addresses is None or addresses == self._session.gpu_addresses

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        """Waits at most `patience`, and not at all for users for which a wait has timed out."""
        if self._not_returned and self._not_returned <= self._users:
            return
        self._not_returned = frozenset()
        if not self._state.wait_for(ready, self._patience):
            self._not_returned = frozenset(self._users)
            _log.warning("an NVML call does not return; NVML cannot be reopened until it returns")

    def _begin_change(self, user: object) -> None:
        self._changing = True
        self._users.add(user)

    def _end_change(self, user: object, session: NvmlSession | None) -> None:
        """Sets the session, on which the user then has a lease, or none."""
        with self._state:
            if session is None:
                self._users.remove(user)
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
            _log.warning("NVML could not be shut down", extra={"failure": str(error.failure)})

    def _load(self) -> None:
        """Loads the library, if it is not loaded. Without a usable candidate, nvmlInit loads it."""
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
        """Returns the first candidate that exists, with its links resolved."""
        return next(self._existing(), None)

    def _existing(self) -> Iterator[Path]:
        """Returns the paths of the existing candidates in this process, with links resolved."""
        for candidate in self._candidates():
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

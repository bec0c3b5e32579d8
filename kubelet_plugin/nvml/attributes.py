"""What does not change while a driver is loaded, or seldom, and is not worth a GPU.

Each of these is asked for once in a session, or now and then. If the driver does not say it, the
last value that is known is kept: no call but those that identify a GPU, or say that it is lost,
takes it out of service.
"""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import NvmlCallError, NvmlSession

_OF_THE_GPU: Final = frozenset(
    {
        "NVML_ERROR_GPU_IS_LOST",
        "NVML_ERROR_GPU_NOT_FOUND",
        "NVML_ERROR_UNINITIALIZED",
        "NVML_ERROR_DRIVER_NOT_LOADED",
    }
)
"""Errors that are not about what was asked, but about the GPU or the driver."""
_RECENT: Final = 60.0
"""Seconds after which what an administrator changes is asked for again."""
_LONGEST: Final = 300.0
"""Seconds after which what changes seldom is asked for again, at the latest."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    value: Any
    session: NvmlSession
    until: float


class Attributes:
    """The last answers of a driver. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._session = NvmlSession(None)
        self._since = 0.0

    def begin(self, session: NvmlSession) -> None:
        """A look begins. In a new session, everything is asked for again."""
        if session is not self._session:
            self._session, self._since = session, self._clock()

    def forget(self, gpu: str) -> None:
        """Has everything asked for again about a GPU, such as after a reset."""
        for key in [key for key in self._known if key[0] == gpu]:
            known = self._known[key]
            self._known[key] = _Known(known.value, known.session, until=self._since)

    def constant(self, gpu: str, name: str, read: Callable[[], Any]) -> Any:
        """Returns what is the same as long as the session lasts."""
        return self._get(gpu, name, read, until=float("inf"))

    def seldom(self, gpu: str, name: str, read: Callable[[], Any]) -> Any:
        """Returns what was read a while ago at most: as long as the session has lasted then.

        So it is soon known after a driver was loaded, when a fabric manager trains links, and
        costs little later.
        """
        now = self._clock()
        return self._get(gpu, name, read, until=now + min(_LONGEST, now - self._since))

    def recent(self, gpu: str, name: str, read: Callable[[], Any]) -> Any:
        """Returns what was read a minute ago at most."""
        return self._get(gpu, name, read, until=self._clock() + _RECENT)

    def current(self, gpu: str, name: str, read: Callable[[], Any]) -> Any:
        """Returns what is read now; the last value if that fails."""
        return self._get(gpu, name, read, until=self._since)

    def last(self, gpu: str, name: str) -> Any:
        """Returns the last value, without a call; None if there is none."""
        known = self._known.get((gpu, name))
        return None if known is None else known.value

    def _get(self, gpu: str, name: str, read: Callable[[], Any], *, until: float) -> Any:
        known = self._known.get((gpu, name))
        if known and known.session is self._session and self._clock() < known.until:
            return known.value
        try:
            value = read()
        except NvmlCallError as error:
            if error.failure.code in _OF_THE_GPU:
                raise
            _report(gpu, error.failure)
            return None if known is None else known.value
        self._known[gpu, name] = _Known(value, self._session, until)
        return value


@functools.cache
def _report(gpu: str, failure: NvmlFailure) -> None:
    """Logs once for each GPU and failure, because the GPUs are read every few seconds."""
    extra = {"gpu": gpu, "failure": str(failure)}
    _log.warning("the driver does not say an attribute; its last value is used", extra=extra)

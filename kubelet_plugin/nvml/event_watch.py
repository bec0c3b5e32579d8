"""Waits for the driver's events, which say sooner what a read of the GPUs finds anyway.

Events are lost while nobody waits, and when there are too many; so none decides anything but an
XID, which is remembered. Each has the GPUs read: at once, after 1 s and after 5 s, because NVML
does not define whether the state of a GPU or the event changes first. However many there are, reads
for events start 1 s apart at least.
"""

import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pynvml

from carina_dra.nvidia.nvml_library import (
    NvmlBusyError,
    NvmlCallError,
    NvmlLibrary,
    NvmlSession,
    call,
    optional_call,
)
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.xid_catalogue import CONTAINED

_TYPES: Final = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeDramRetirementEvent
    | pynvml.nvmlEventTypeDramRetirementFailure
    | pynvml.nvmlEventTypeFatalPoisonError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
_ANY: Final = 0xFFFFFFFF
"""NVML's number for no GPU instance."""
_UNKNOWN_XID: Final = 999
_READS_AFTER: Final = (1.0, 5.0)
_APART: Final = 1.0
"""Least number of seconds between two reads for events."""
_RENEWAL: Final = 60.0
"""Seconds after which GPUs are registered that could not be."""
_PAUSE: Final = 5.0
"""Seconds after a failure."""

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Takes what the driver reports."""

    def xid(self, uuid: str, number: int, site: MigSite | None) -> bool:
        """Takes an XID; returns whether the GPUs should be read because of it."""


@dataclass(frozen=True, slots=True)
class _Registered:
    """An event set of a session, and the GPUs that it is for."""

    session: NvmlSession
    events: Any
    gpus: dict[int, tuple[str, Any]]
    """UUID and handle, by the handle's address."""
    until: float
    """When to register again those that are missing."""


class EventWatch:
    """A thread that waits for events, holding the library for a second at a time."""

    def __init__(
        self,
        library: NvmlLibrary,
        listener: Listener,
        *,
        wake: Callable[[], None],
        clock: Callable[[], float],
        wait: float = 1.0,
    ) -> None:
        """`wake` has the GPUs read, and returns at once. `wait` and the clock are in seconds."""
        self._library = library
        self._listener = listener
        self._wake = wake
        self._clock = clock
        self._wait = wait
        self._registered: _Registered | None = None
        self._due: list[float] = []
        self._woken = float("-inf")
        self._stopped = threading.Event()

    @property
    def registered(self) -> int:
        """The number of GPUs whose events are waited for."""
        known = self._registered
        return 0 if known is None else len(known.gpus)

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="nvml-events", daemon=True).start()

    def stop(self) -> None:
        """Stops waiting. Does not wait for a call of the driver, which may hang."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            pause = 0.0
            try:
                pause = self._listen()
            except (NvmlCallError, NvmlBusyError) as error:
                self._registered = None
                _log.debug("no events", extra={"error": str(error)})
                pause = _PAUSE
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
                self._registered = None
                _log.exception("events of the driver cannot be read; retrying")
                pause = _PAUSE
            self._wake_if_due()
            if pause:
                self._stopped.wait(pause)

    def _listen(self) -> float:
        """Takes the events of a wait; returns the seconds to pause after it.

        Raises:
            NvmlCallError: the driver does not work.
            NvmlBusyError: a call of another user does not return.
        """
        with self._library.lease() as session:
            known = self._registered
            if known is None or known.session is not session or self._clock() >= known.until:
                known = self._registered = self._register(session, known)
            if not known.gpus:
                return _PAUSE
            deadline = self._clock() + self._wait
            patience = self._wait
            while True:
                try:
                    event = call(pynvml.nvmlEventSetWait_v2, known.events, int(patience * 1000))
                except NvmlCallError as error:
                    match error.failure.code:
                        case "NVML_ERROR_TIMEOUT":
                            return 0.0
                        case "NVML_ERROR_GPU_IS_LOST":  # which of them, a read finds
                            self._registered = self._register(session, known)
                            self._notice()
                            return self._wait
                        case _:
                            self._registered = None
                            _free(known.events)
                            raise
                self._take(known, event)
                if self._clock() >= deadline or self._stopped.is_set():
                    return 0.0
                patience = 0.0  # take what has come, and give the library back

    def _register(self, session: NvmlSession, before: _Registered | None) -> _Registered:
        """Returns a new event set for the GPUs that answer."""
        if before is not None and before.session is session:
            call(pynvml.nvmlEventSetFree, before.events)
        self._registered = None
        events = call(pynvml.nvmlEventSetCreate)
        gpus: dict[int, tuple[str, Any]] = {}
        try:
            count = call(pynvml.nvmlDeviceGetCount)
        except NvmlCallError:
            _free(events)
            raise
        for index in range(count):
            try:
                handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = call(pynvml.nvmlDeviceGetUUID, handle)
                supported = optional_call(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
                if supported & _TYPES:
                    call(pynvml.nvmlDeviceRegisterEvents, handle, supported & _TYPES, events)
                    gpus[_address(handle)] = (uuid, handle)
            except NvmlCallError as error:
                _log.debug("a GPU without events", extra={"error": str(error)})
        return _Registered(session, events, gpus, self._clock() + _RENEWAL)

    def _take(self, known: _Registered, event: Any) -> None:
        gpu = known.gpus.get(_address(event.device))
        if gpu is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            self._notice()
            return
        uuid, handle = gpu
        number = int(event.eventData)
        site = None
        if number in CONTAINED and event.gpuInstanceId != _ANY:
            site = _site(handle, event.gpuInstanceId)
        if number == _UNKNOWN_XID or self._listener.xid(uuid, number, site):
            self._notice()

    def _notice(self) -> None:
        """Has the GPUs read at once, if that was not just done, and again later."""
        now = self._clock()
        self._due = [now + seconds for seconds in _READS_AFTER]
        self._wake_once(now)

    def _wake_if_due(self) -> None:
        now = self._clock()
        if any(due <= now for due in self._due):
            self._due = [due for due in self._due if due > now]
            self._wake_once(now)

    def _wake_once(self, now: float) -> None:
        if now - self._woken >= _APART:
            self._woken = now
            self._wake()


def _free(events: Any) -> None:
    """Frees an event set of a driver that has just failed, which may refuse that, too."""
    with contextlib.suppress(NvmlCallError):
        call(pynvml.nvmlEventSetFree, events)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _site(handle: Any, instance_id: int) -> MigSite | None:
    """Returns where a GPU instance is; None if it is gone, so that nothing uses its memory."""
    try:
        instance = call(pynvml.nvmlDeviceGetGpuInstanceById, handle, instance_id)
        info = call(pynvml.nvmlGpuInstanceGetInfo, instance)
    except NvmlCallError:
        return None
    at = info.placement
    return MigSite(int(info.profileId), MigPlacement(int(at.start), int(at.size)))

"""The use of GPUs for scrapes of the metrics: read when somebody scrapes, and not too often.

A call of the driver may hang, so another thread reads, and a scrape waits for it for a moment only.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from kubelet_plugin.nvml.usage import GpuUsage

FRESH: Final = 30.0
"""Seconds for which what was read is shown again."""
_OLDEST: Final = 120.0
"""Seconds after which it is not shown any more."""
_PATIENCE: Final = 1.0
"""Seconds for which a scrape waits."""


class UsageCache:
    """What was read last."""

    def __init__(
        self, read: Callable[[], Mapping[str, GpuUsage]], *, clock: Callable[[], float]
    ) -> None:
        """`read` may hang; `clock` is monotonic, in seconds."""
        self._read = read
        self._clock = clock
        self._state = threading.Condition()
        self._latest: Mapping[str, GpuUsage] = {}
        self._read_at: float | None = None
        self._reading = False

    def latest(self) -> Mapping[str, GpuUsage]:
        """Returns what was read a moment ago, by UUID; nothing while the driver hangs."""
        with self._state:
            if not self._is_younger(FRESH):
                if not self._reading:
                    self._reading = True
                    threading.Thread(target=self._work, name="usage-reader", daemon=True).start()
                self._state.wait_for(lambda: not self._reading, _PATIENCE)
            return self._latest if self._is_younger(_OLDEST) else {}

    def _is_younger(self, seconds: float) -> bool:
        return self._read_at is not None and self._clock() - self._read_at < seconds

    def _work(self) -> None:
        found: Mapping[str, GpuUsage] = {}
        try:
            found = self._read()
        finally:
            with self._state:
                self._latest, self._read_at = found, self._clock()
                self._reading = False
                self._state.notify_all()

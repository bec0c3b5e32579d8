"""Logs what keeps queues from giving back, seldom: tenants can change it as often as they like."""

import logging
from collections.abc import Mapping
from typing import Final

from controller.report.queue_giving import Holdup, gives_back

_log = logging.getLogger(__name__)
_PAUSE: Final = 60.0
"""Seconds between two lines about one queue."""


class GivingLog:
    """What has been logged of each queue that something keeps from giving back."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, Holdup]] = {}
        """By queue: when, in seconds of any steady clock, and what."""

    def note(self, holdups: Mapping[str, Holdup], now: float) -> None:
        """Logs what is new."""
        for queue, holdup in holdups.items():
            at, known = self._logged.get(queue, (None, None))
            if holdup != known and (at is None or at + _PAUSE <= now):
                self._logged[queue] = now, holdup
                condition = gives_back(holdup, 0)
                facts = {"queue": queue, "reason": condition.reason, "why": condition.message}
                _log.warning("a queue does not give back what others reclaim", extra=facts)
        for queue, (at, _) in list(self._logged.items()):
            if queue not in holdups and at + _PAUSE <= now:
                del self._logged[queue]

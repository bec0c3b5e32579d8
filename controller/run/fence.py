"""Keeps late writes of the previous leader from taking effect.

A write carries the version of the object that it was decided for. So an object that gets another
version refuses it (`act.takeover` says which objects those are).
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from controller.act.takeover import Unsettled, unsettled
from controller.observe.mirror import Mirror
from controller.run.inbox import Inbox
from controller.run.ports import Writes

LONGEST: Final = 10.0
"""Seconds until the leader decides, though not all is fenced: tenants choose how much waits."""
_LOOK: Final = 0.1

_log = logging.getLogger(__name__)


class Fence:
    """Fences what the previous leader may have been writing."""

    def __init__(self, mirror: Mirror, *, is_needed: bool, longest: float = LONGEST) -> None:
        """`is_needed` is false if the previous leader had nothing under way."""
        self._mirror = mirror
        self._longest = longest
        self._left: dict[Unsettled, None] = {}
        self.is_settled = not is_needed
        """Whether everything is fenced, as far as that was possible in time."""

    def close(
        self,
        writer: Writes,
        inbox: Inbox,
        stopping: threading.Event,
        *,
        now: float,
        progress: Callable[[], None],
    ) -> None:
        """Fences until all is done, the time is over, or the loop is to stop."""
        until = time.monotonic() + self._longest
        self._mirror.refresh(now)
        self._left = dict.fromkeys(unsettled(self._mirror))
        number = len(self._left)
        for unfenced in self._left:
            writer.fence(unfenced, until=until)
        while self._left and not stopping.is_set() and time.monotonic() < until:
            inbox.do(_LOOK)
            progress()
        facts = {"objects": number, "not_fenced": len(self._left)}
        _log.info("late writes of the last leader are fenced off", extra=facts)
        self.is_settled = not stopping.is_set()

    def note(self, fenced: Unsettled) -> None:
        """Applies that an object has another version."""
        self._left.pop(fenced, None)

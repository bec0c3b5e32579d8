"""What becomes known of groups and objects that are set aside: the log has the error, once.

What fails again is logged again at a bounded rate, with the number of times. So is what fails for
the first time of one tenant: no tenant fills the log.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple

from controller.engine.model.plan import Plan
from controller.report.metrics import ControllerMetrics, SetAsideReason
from controller.report.rate import TokenBucket

_AGAIN: Final = 600.0
"""Seconds between two lines about the same failure of the same object."""
_RATE: Final = 1 / 60
"""Lines about the objects of one tenant, a second."""
_BURST: Final = 20
_REMEMBERED: Final = 10_000
"""How many failures, and how many tenants, are remembered."""
_FRAMES: Final = 12
"""How many calls of a failure are shown, the innermost ones."""

_log = logging.getLogger(__name__)


class LeftOut(NamedTuple):
    """What a line stands for beside itself."""

    like_it: int
    """How often the same has failed since the last line about it."""
    others: int
    """How many failures of the same tenant had no line since its last line."""
    is_first: bool


@dataclass(slots=True)
class _Repeated:
    next_at: float
    left_out: int = 0


@dataclass(slots=True)
class _Tenant:
    bucket: TokenBucket
    left_out: int = 0


class FailureLog:
    """Logs failures at a bounded rate. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives the seconds of any steady clock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], _Repeated] = {}
        self._tenants: dict[str, _Tenant] = {}

    def object(self, resource: str, key: str, doing: str, error: Exception) -> bool:
        """Logs that an object is set aside; whether there is room for that in the log."""
        left_out = self._take(key, (resource, key, doing, type(error).__name__))
        if left_out is None:
            return False
        facts: dict[str, object] = {"resource": resource, "object": key, "not": doing}
        facts |= _numbers(left_out)
        if left_out.is_first:
            shown = type(error), error, _innermost(error.__traceback__)
            _log.error("an object is set aside", exc_info=shown, extra=facts)
        else:
            _log.error("an object is set aside again", extra=facts | {"error": repr(error)})
        return True

    def plan(self, plan: Plan, metrics: ControllerMetrics) -> None:
        """Logs and counts what has failed in one cycle; Events say that the groups wait for it."""
        for failure in plan.failures:
            metrics.set_aside(SetAsideReason.FAILED)
            error = failure.traceback.rstrip().rpartition("\n")[2]
            left_out = self._take(failure.group, ("group", failure.group, error.partition(":")[0]))
            if left_out is not None:
                text = failure.traceback if left_out.is_first else error
                facts = {"group": failure.group, "times": failure.times, "error": text}
                _log.error(
                    "deciding on a group failed; it is set aside for a while",
                    extra=facts | _numbers(left_out),
                )
        for group in plan.undecided:
            metrics.set_aside(SetAsideReason.UNDECIDED)
            left_out = self._take(group, ("undecided", group))
            if left_out is not None:
                facts = {"group": group, "reason": str(plan.memory.set_aside[group].reasons[-1])}
                _log.info(
                    "a group is undecided; it is set aside for a while",
                    extra=facts | _numbers(left_out),
                )

    def _take(self, key: str, what: tuple[str, ...]) -> LeftOut | None:
        """What a line about a failure stands for; None if it is left out.

        key: `namespace/name` of the object, whose namespace is its tenant.
        """
        with self._lock:
            now = self._clock()
            known = self._known.get(what)
            if known is not None and now < known.next_at:
                known.left_out += 1
                return None
            tenant = self._tenant(key.partition("/")[0])
            if not tenant.bucket.take(now):
                tenant.left_out += 1
                if known is not None:
                    known.left_out += 1
                return None
            left_out = LeftOut(
                0 if known is None else known.left_out, tenant.left_out, is_first=known is None
            )
            tenant.left_out = 0
            if known is None and len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[what] = _Repeated(now + _AGAIN)
            return left_out

    def _tenant(self, namespace: str) -> _Tenant:
        known = self._tenants.get(namespace)
        if known is None:
            if len(self._tenants) >= _REMEMBERED:
                del self._tenants[next(iter(self._tenants))]
            known = self._tenants[namespace] = _Tenant(TokenBucket(rate=_RATE, burst=_BURST))
        return known


def _numbers(left_out: LeftOut) -> dict[str, object]:
    """The facts of a line that stands for others, too."""
    numbers = {"repeated": left_out.like_it, "others_left_out": left_out.others}
    return {name: number for name, number in numbers.items() if number}


def _innermost(traceback: TracebackType | None) -> TracebackType | None:
    """The last calls of a traceback."""
    calls: list[TracebackType] = []
    while traceback is not None:
        calls.append(traceback)
        traceback = traceback.tb_next
    return calls[-_FRAMES] if len(calls) > _FRAMES else next(iter(calls), None)

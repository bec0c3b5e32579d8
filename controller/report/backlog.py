"""Which object is written next, at a bounded rate. Pure: the time, in seconds, is an argument.

A write is *urgent* if it turns a condition, and *routine* if it only refreshes numbers and texts.
Urgent writes come first, so that a new decision is not delayed when the numbers of thousands of
objects change. Among equals, who waits longest comes first.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from controller.report.rate import TokenBucket

K = TypeVar("K", bound=Hashable)

URGENT_INTERVAL: Final = 0.5
"""Seconds between two writes of one object, the second of which is urgent."""
ROUTINE_INTERVAL: Final = 10.0
"""Seconds between two writes of one object, the second of which is routine."""
_ROUTINE_PART: Final = 5
"""A fifth of the rate is for routine writes: nobody reads the numbers of thousands of objects."""


@dataclass(frozen=True, slots=True)
class _Queued:
    """That an object is to be written."""

    urgent: bool
    at: float
    """Not before this time."""


class Backlog(Generic[K]):
    """The objects that are to be written. Each is in it once."""

    def __init__(self, *, rate: float, burst: int) -> None:
        """`rate`: writes a second, after `burst` at once; a part of them may be routine."""
        self._buckets = {
            True: TokenBucket(rate=rate, burst=burst),
            False: TokenBucket(rate=rate / _ROUTINE_PART, burst=max(1, burst // _ROUTINE_PART)),
        }
        """By urgency."""
        self._queued: dict[K, _Queued] = {}
        self._delayed: list[tuple[float, int, K]] = []
        """A heap by time; an entry counts only while it is what `_queued` says."""
        self._ready: dict[bool, OrderedDict[K, None]] = {True: OrderedDict(), False: OrderedDict()}
        """By urgency."""
        self._written: dict[K, float] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._queued)

    def add(self, key: K, now: float, *, urgent: bool, delay: float = 0) -> None:
        """Has an object written, after `delay` seconds at the earliest.

        An object that is in the backlog keeps its place, or gets a better one.
        """
        interval = URGENT_INTERVAL if urgent else ROUTINE_INTERVAL
        at = now + delay
        if key in self._written:
            at = max(at, self._written[key] + interval)
        known = self._queued.get(key)
        if known is not None:
            if known.urgent >= urgent and known.at <= at:
                return
            urgent, at = urgent or known.urgent, min(at, known.at)
            self._ready[known.urgent].pop(key, None)
        self._queued[key] = _Queued(urgent, at)
        self._sequence += 1
        heappush(self._delayed, (at, self._sequence, key))

    def discard(self, key: K) -> None:
        """Forgets an object."""
        known = self._queued.pop(key, None)
        if known is not None:
            self._ready[known.urgent].pop(key, None)
        self._written.pop(key, None)

    def take(self, now: float) -> K | None:
        """The object to write now, which leaves the backlog; None if there is none yet."""
        self._promote(now)
        for urgent, ready in self._ready.items():
            if ready and self._buckets[urgent].take(now):
                key, _ = ready.popitem(last=False)
                del self._queued[key]
                self._written[key] = now
                return key
        return None

    def take_any(self) -> K | None:
        """Any object, whatever the rates; None if there is none."""
        key = next(iter(self._queued), None)
        if key is not None:
            self.discard(key)
        return key

    def wait(self, now: float) -> float | None:
        """In how many seconds `take` may give an object; None if the backlog is empty."""
        self._promote(now)
        waits = [self._buckets[urgent].wait(now) for urgent, ready in self._ready.items() if ready]
        if self._delayed:
            waits.append(self._delayed[0][0] - now)
        return min(waits, default=None)

    def _promote(self, now: float) -> None:
        """Has what is due ready."""
        while self._delayed:
            at, _, key = self._delayed[0]
            known = self._queued.get(key)
            is_valid = known is not None and known.at == at
            if is_valid and at > now:
                return
            heappop(self._delayed)
            if known is not None and is_valid:
                self._ready[known.urgent][key] = None

"""Which object is written next, at a bounded rate. Pure: the time, in seconds, is an argument.

A write is *urgent* if it turns a condition, and *routine* if it only refreshes numbers and texts.
Urgent writes come first, so that a new decision is not delayed when the numbers of thousands of
objects change. Each owner has a rate of its own, and owners take turns: no tenant's objects delay
those of another. Among equals, who waits longest comes first.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

from controller.report.rate import TokenBucket

K = TypeVar("K", bound=Hashable)
_Ready: TypeAlias = OrderedDict[str, dict[K, None]]

URGENT_INTERVAL: Final = 0.5
"""Seconds between two writes of one object, the second of which is urgent."""
ROUTINE_INTERVAL: Final = 10.0
"""Seconds between two writes of one object, the second of which is routine."""
_OWNERS: Final = 10_000
"""Owners whose rate is remembered."""
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

    def __init__(
        self,
        *,
        rate: float,
        burst: int,
        owner_of: Callable[[K], str] = lambda _: "",
        owner_rate: float = math.inf,
        owner_burst: int = 1,
    ) -> None:
        """`rate`: writes a second, after `burst` at once; a part of them may be routine.

        owner_of: whose an object is, for whom `owner_rate` and `owner_burst` are the same.
        """
        self._owner_of = owner_of
        self._owner_rate, self._owner_burst = owner_rate, owner_burst
        self._of_owner: dict[str, TokenBucket] = {}
        self._buckets = {
            True: TokenBucket(rate=rate, burst=burst),
            False: TokenBucket(rate=rate / _ROUTINE_PART, burst=max(1, burst // _ROUTINE_PART)),
        }
        """By urgency."""
        self._queued: dict[K, _Queued] = {}
        self._delayed: list[tuple[float, int, K]] = []
        """A heap by time; an entry counts only while it is what `_queued` says."""
        self._ready: dict[bool, _Ready[K]] = {True: OrderedDict(), False: OrderedDict()}
        """By urgency and owner, the owner first whose turn it is."""
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
            self._drop(key, urgent=known.urgent)
        self._queued[key] = _Queued(urgent, at)
        self._sequence += 1
        heappush(self._delayed, (at, self._sequence, key))

    def discard(self, key: K) -> None:
        """Forgets an object."""
        known = self._queued.pop(key, None)
        if known is not None:
            self._drop(key, urgent=known.urgent)
        self._written.pop(key, None)

    def take(self, now: float) -> K | None:
        """The object to write now, which leaves the backlog; None if there is none yet."""
        self._promote(now)
        for urgent, ready in self._ready.items():
            owner = next((owner for owner in ready if self._wait_of(owner, now) <= 0), None)
            if owner is not None and self._buckets[urgent].take(now):
                if not math.isinf(self._owner_rate):
                    self._bucket_of(owner).take(now)
                key = next(iter(ready[owner]))
                self._drop(key, urgent=urgent)
                if owner in ready:
                    ready.move_to_end(owner)
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
        waits = [
            max(self._buckets[urgent].wait(now), min(self._wait_of(owner, now) for owner in ready))
            for urgent, ready in self._ready.items()
            if ready
        ]
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
                of_owner = self._ready[known.urgent].setdefault(self._owner_of(key), {})
                of_owner[key] = None

    def _drop(self, key: K, *, urgent: bool) -> None:
        """Takes an object out of those that are ready."""
        owner = self._owner_of(key)
        of_owner = self._ready[urgent].get(owner)
        if of_owner is not None:
            of_owner.pop(key, None)
            if not of_owner:
                del self._ready[urgent][owner]

    def _wait_of(self, owner: str, now: float) -> float:
        return 0.0 if math.isinf(self._owner_rate) else self._bucket_of(owner).wait(now)

    def _bucket_of(self, owner: str) -> TokenBucket:
        known = self._of_owner.get(owner)
        if known is None:
            if len(self._of_owner) >= _OWNERS:
                self._of_owner.clear()
            known = TokenBucket(rate=self._owner_rate, burst=self._owner_burst)
            self._of_owner[owner] = known
        return known

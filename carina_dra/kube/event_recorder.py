"""Records Events without delaying the caller.

Events are informative: nothing waits for them or fails without them. `record` only queues an event;
one thread writes. An event is dropped, counted and logged if the queue is full, or if it cannot be
written after a few attempts.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Self

from carina_dra.kube.api_resource import EVENTS
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import AlreadyExists, ApiError, NotFound
from carina_dra.kube.event import (
    SERIES_INTERVAL,
    EventSeries,
    EventType,
    ObjectReference,
    Occurrence,
    ReportingController,
    cut_note,
    event_body,
)

_QUEUE_LENGTH = 1000
_SERIES_KEPT = 1000
_RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0)
_WRITE_TIMEOUT = 5.0

_log = logging.getLogger(__name__)


class EventRecorder:
    """Records events for one controller. Thread-safe. `close` writes the rest."""

    def __init__(
        self,
        client: Client,
        controller: ReportingController,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._controller = controller
        self._now = now
        self._queue: deque[Occurrence] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._dropped = 0
        self._series: OrderedDict[Occurrence, EventSeries] = OrderedDict()
        self._thread = threading.Thread(target=self._work, name="event-recorder", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """How many events were dropped so far."""
        return self._dropped

    def record(
        self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: str,
        note: str,
        *,
        action: str,
    ) -> None:
        """Records an event about an object.

        reason: a CamelCase word that programs may match, such as `PrepareFailed`.
        action: what was being done, also a CamelCase word.
        note: text for people, cut at 1 KiB.
        """
        occurrence = Occurrence(regarding, event_type, reason, action, cut_note(note))
        with self._changed:
            if not self._closing.is_set() and len(self._queue) < _QUEUE_LENGTH:
                self._queue.append(occurrence)
                self._changed.notify()
                return
        self._drop(occurrence, "the queue is full or closed")

    def close(self, *, timeout: float = 5.0) -> None:
        """Accepts no more events, and writes those in the queue, for at most `timeout` seconds."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(timeout)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._queue or self._closing.is_set(),
                    timeout=SERIES_INTERVAL if self._series else None,
                )
                closing = self._closing.is_set()
                occurrences = list(self._queue)
                self._queue.clear()
            for occurrence in occurrences:
                self._attempt(occurrence, partial(self._observe, occurrence))
            for occurrence, series in list(self._series.items()):
                review = partial(self._review, occurrence, series, closing=closing)
                self._attempt(occurrence, review)
            if closing:
                return

    def _attempt(self, occurrence: Occurrence, work: Callable[[], None]) -> None:
        """Does work for one event, which is dropped if a defect is met: all others are written."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this event only
            self._series.pop(occurrence, None)
            self._drop(occurrence, repr(error))

    def _observe(self, occurrence: Occurrence) -> None:
        now = self._now()
        series = self._series.get(occurrence)
        if series is not None and series.continues(now):
            self._series[occurrence] = series.again(now)
        else:
            self._create(occurrence)

    def _review(self, occurrence: Occurrence, series: EventSeries, *, closing: bool) -> None:
        """Writes a series that is due, and forgets one that is over."""
        now = self._now()
        if series.due(now) or (closing and series.unwritten):
            self._update(occurrence, series)
        elif not series.continues(now):
            del self._series[occurrence]

    def _create(self, occurrence: Occurrence) -> None:
        now = self._now()
        event = event_body(occurrence, self._controller, now)
        error = self._write(lambda: self._client.create(EVENTS, event, timeout=_WRITE_TIMEOUT))
        match error:
            case None | AlreadyExists():  # an earlier attempt succeeded, but its answer was lost
                self._series[occurrence] = EventSeries(event["metadata"]["name"], now, now)
                self._series.move_to_end(occurrence)
                while len(self._series) > _SERIES_KEPT:
                    self._series.popitem(last=False)
            case _:
                self._drop(occurrence, str(error))

    def _update(self, occurrence: Occurrence, series: EventSeries) -> None:
        error = self._write(
            lambda: self._client.patch(
                EVENTS,
                series.name,
                MergePatch(series.patch()),
                namespace=occurrence.namespace,
                timeout=_WRITE_TIMEOUT,
            )
        )
        if isinstance(error, NotFound):  # Events expire on the API server
            del self._series[occurrence]
            self._create(occurrence)
            return
        self._series[occurrence] = series.written(self._now())
        if error is not None:
            self._drop(occurrence, str(error))

    def _write(self, call: Callable[[], object]) -> ApiError | None:
        """Tries until it succeeds or cannot succeed; only once while closing."""
        delays = iter(_RETRY_DELAYS)
        while True:
            try:
                call()
            except ApiError as error:
                delay = next(delays, None)
                if delay is None or not error.retriable or self._closing.wait(delay):
                    return error
            else:
                return None

    def _drop(self, occurrence: Occurrence, why: str) -> None:
        self._dropped += 1
        _log.warning(
            "event dropped",
            extra={
                "why": why,
                "dropped": self._dropped,
                "regarding": f"{occurrence.regarding.kind} {occurrence.regarding.name}",
                "reason": occurrence.reason,
                "note": occurrence.note,
            },
        )

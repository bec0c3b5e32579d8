"""Writes statuses to the API server, at a bounded rate and without delaying the caller.

What is desired of an object is kept until the object shows it: nothing is lost by an error, a
restart of the API server, or another writer. Only the leader writes, so the patches name no
resourceVersion; a write of a former leader is seen by the watch and corrected.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, ObjectKey, resource_version_of
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from controller.observe.set_aside import SetAsideObjects
from controller.report.backlog import Backlog
from controller.report.metrics import ControllerMetrics, Write
from controller.report.status_patch import is_turn, status_patch

RATE: Final = 100.0
"""Writes a second."""
BURST: Final = 200
NAMESPACE_RATE: Final = 10.0
"""Writes a second to the objects of one namespace."""
NAMESPACE_BURST: Final = 100
_REFUSED_DELAY: Final = 60.0
"""Seconds until a write is tried again that the API server does not accept."""
_SHORTEST_DELAY: Final = 1.0
"""Seconds until an object is looked at again that is set aside."""
_WRITE_TIMEOUT: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusTarget:
    """The object whose status is written."""

    resource: ApiResource
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """The status of an object at a version."""

    version: int
    status: Body


class StatusWriter:
    """Makes the statuses of objects the desired ones. Thread-safe; one thread writes."""

    def __init__(
        self,
        client: Client,
        metrics: ControllerMetrics,
        *,
        rate: float = RATE,
        burst: int = BURST,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        set_aside: SetAsideObjects | None = None,
    ) -> None:
        """set_aside: keeps objects whose status cannot be written."""
        self._set_aside = SetAsideObjects() if set_aside is None else set_aside
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._changed = threading.Condition()
        self._desired: dict[StatusTarget, Body] = {}
        self._seen: dict[StatusTarget, _Seen] = {}
        self._backlog: Backlog[StatusTarget] = Backlog(
            rate=rate,
            burst=burst,
            owner_of=_owner_of,
            owner_rate=NAMESPACE_RATE,
            owner_burst=NAMESPACE_BURST,
        )
        self._backoff = Backoff()
        self._resume_at = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="status-writer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def backlog(self) -> int:
        """How many objects are still to be written."""
        with self._changed:
            return len(self._backlog)

    def want(self, target: StatusTarget, status: Body) -> None:
        """Has an object get this status; its conditions are without `lastTransitionTime`.

        It is written once `observe` has shown the object, from which the times follow.
        """
        with self._changed:
            if self._desired.get(target) != status:
                self._desired[target] = status
                self._compare(target)

    def observe(self, target: StatusTarget, body: Body) -> None:
        """Takes an object as the watch shows it."""
        with self._changed:
            self._see(target, body)
            self._compare(target)

    def forget(self, target: StatusTarget) -> None:
        """Records that an object does not exist any more."""
        with self._changed:
            self._forget(target)

    def close(self, *, timeout: float = 2.0) -> None:
        """Writes what is left once, for at most `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _see(self, target: StatusTarget, body: Body) -> None:
        version = int(resource_version_of(body) or 0)
        known = self._seen.get(target)
        if known is None or known.version <= version:
            self._seen[target] = _Seen(version, body.get("status") or {})

    def _forget(self, target: StatusTarget) -> None:
        self._desired.pop(target, None)
        self._seen.pop(target, None)
        self._backlog.discard(target)

    def _compare(self, target: StatusTarget, *, delay: float = 0) -> None:
        """Has the object written if it differs from what is desired of it."""
        desired, seen = self._desired.get(target), self._seen.get(target)
        if desired is None or seen is None or not status_patch(seen.status, desired, 0):
            return
        urgent = is_turn(seen.status, desired)
        self._backlog.add(target, self._clock(), urgent=urgent, delay=delay)
        self._changed.notify()

    def _patch(self, target: StatusTarget) -> Body:
        """The changes to write; empty if the object has become as desired, or is gone."""
        with self._changed:
            desired, seen = self._desired.get(target), self._seen.get(target)
            if desired is None or seen is None:
                return {}
            return status_patch(seen.status, desired, self._now())

    def _work(self) -> None:
        while (target := self._next()) is not None:
            of_object = target.resource.qualified_name, str(target.key)
            if not self._set_aside.attempt_when_due(
                *of_object, "written", partial(self._make, target)
            ):
                self._postpone(target, self._set_aside.until(*of_object))

    def _make(self, target: StatusTarget) -> None:
        """Makes the status of an object the desired one."""
        patch = self._patch(target)
        if not patch:
            return
        try:
            written = self._write(target, patch)
        except ApiError as error:
            self._failed(target, error)
        else:
            self._backoff.reset()
            with self._changed:
                self._see(target, written)
                self._compare(target)

    def _postpone(self, target: StatusTarget, until: float) -> None:
        """Delays the next write of an object that is set aside until a Unix time."""
        delay = max(until - self._set_aside.clock(), _SHORTEST_DELAY)
        with self._changed:
            if target in self._desired and not self._closing:
                self._backlog.add(target, self._clock(), urgent=False, delay=delay)

    def _write(self, target: StatusTarget, patch: Body) -> Body:
        """Writes changes of a status, and gives the object as it is then."""
        is_of_queue = target.resource.kind == "Queue"
        with self._metrics.writing(Write.QUEUE_STATUS if is_of_queue else Write.GROUP_STATUS):
            return self._client.patch(
                target.resource,
                target.key.name,
                MergePatch({"status": patch}),
                namespace=target.key.namespace or None,
                subresource="status",
                timeout=_WRITE_TIMEOUT,
            )

    def _next(self) -> StatusTarget | None:
        """Waits for the object to write next; None at the end."""
        with self._changed:
            while not self._closing:
                now = self._clock()
                if now < self._resume_at:
                    self._changed.wait(self._resume_at - now)
                    continue
                target = self._backlog.take(now)
                if target is not None:
                    return target
                self._changed.wait(self._backlog.wait(now))
            return self._backlog.take_any()

    def _failed(self, target: StatusTarget, error: ApiError) -> None:
        with self._changed:
            if self._closing:
                return
            match error:
                case NotFound():
                    self._forget(target)
                    return
                case Conflict():
                    delay = 0.0
                case TooManyRequests(retry_after=seconds):
                    self._pause(max(seconds, self._backoff.next()))
                    delay = 0.0
                case _ if error.retriable:
                    self._pause(self._backoff.next())
                    delay = 0.0
                case _:
                    delay = _REFUSED_DELAY
            if not isinstance(error, Conflict):
                _log.warning(
                    "status not written", extra={"object": str(target), "error": str(error)}
                )
            self._compare(target, delay=delay)

    def _pause(self, seconds: float) -> None:
        """Writes nothing for a while: the server as a whole is not well."""
        self._resume_at = self._clock() + seconds


def _owner_of(target: StatusTarget) -> str:
    """The namespace; an object that is in none, such as a Queue, is the cluster's, by itself."""
    return target.key.namespace or f"/{target.key.name}"

"""The finalizer of Queues: a Queue that is deleted stays until no group has anything of it.

A Queue gets the finalizer once a group is charged to it, and loses it when it is deleted and
nothing is charged to it any more. Only the leader writes it.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, resource_version_of
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import ApiError, Conflict, NotFound
from controller.names import QUEUE_FINALIZER, QUEUES
from controller.observe.set_aside import SetAsideObjects
from controller.report.metrics import ControllerMetrics, Write

_TIMEOUT: Final = 5.0
"""Seconds for one write."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The metadata of a Queue, as far as it matters."""

    version: str
    finalizers: tuple[str, ...]
    is_deleted: bool


class QueueFinalizers:
    """Keeps the finalizers of Queues as they should be. Thread-safe; one thread writes."""

    def __init__(
        self,
        client: Client,
        metrics: ControllerMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        set_aside: SetAsideObjects | None = None,
    ) -> None:
        """set_aside: keeps Queues whose finalizers cannot be written."""
        self._set_aside = SetAsideObjects() if set_aside is None else set_aside
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._changed = threading.Condition()
        self._seen: dict[str, _Seen] = {}
        self._in_use: frozenset[str] | None = None
        """None until it is known: nothing is released before."""
        self._tried: dict[str, str] = {}
        """By Queue: the version at which a write had no effect; a newer one will be seen."""
        self._resume_at = 0.0
        self._backoff = Backoff()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="queue-finalizers", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def observe(self, name: str, body: Body) -> None:
        """Takes a Queue as the watch shows it."""
        metadata = body["metadata"]
        with self._changed:
            self._seen[name] = _Seen(
                resource_version_of(body),
                tuple(metadata.get("finalizers") or ()),
                metadata.get("deletionTimestamp") is not None,
            )
            self._changed.notify()

    def forget(self, name: str) -> None:
        """Records that a Queue does not exist any more."""
        with self._changed:
            self._seen.pop(name, None)
            self._tried.pop(name, None)

    def want(self, in_use: Collection[str]) -> None:
        """Applies all queues to which groups are charged."""
        with self._changed:
            if self._in_use != in_use:
                self._in_use = frozenset(in_use)
                self._changed.notify()

    def close(self, *, timeout: float = 2.0) -> None:
        """Writes nothing more, after a write that has begun."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            name, version, _ = task
            if not self._set_aside.attempt(
                QUEUES.qualified_name, name, "finalized", partial(self._write, *task)
            ):
                self._done(name, version)

    def _write(self, name: str, version: str, finalizers: Collection[str]) -> None:
        patch = MergePatch(
            {"metadata": {"resourceVersion": version, "finalizers": list(finalizers)}}
        )
        try:
            with self._metrics.writing(Write.QUEUE):
                self._client.patch(QUEUES, name, patch, timeout=_TIMEOUT)
        except (Conflict, NotFound):
            self._done(name, version)
        except ApiError as error:
            _log.warning(
                "the finalizer of a Queue is not as it should be",
                extra={"queue": name, "error": str(error)},
            )
            with self._changed:
                self._resume_at = self._clock() + self._backoff.next()
                if name in self._seen:  # the others come first then
                    self._seen[name] = self._seen.pop(name)
        else:
            self._done(name, version)
            self._backoff.reset()

    def _done(self, name: str, version: str) -> None:
        with self._changed:
            if name in self._seen:
                self._tried[name] = version

    def _next(self) -> tuple[str, str, tuple[str, ...]] | None:
        """Waits for a Queue to write, with its version and its finalizers; None at the end."""
        with self._changed:
            while not self._closing:
                left = self._resume_at - self._clock()
                if left > 0:
                    self._changed.wait(left)
                    continue
                for name, seen in self._seen.items():
                    wanted = self._wanted(name, seen)
                    if wanted != seen.finalizers and self._tried.get(name) != seen.version:
                        return name, seen.version, wanted
                self._changed.wait()
            return None

    def _wanted(self, name: str, seen: _Seen) -> tuple[str, ...]:
        if self._in_use is None:
            return seen.finalizers
        has, is_used = QUEUE_FINALIZER in seen.finalizers, name in self._in_use
        if is_used and not has and not seen.is_deleted:
            return (*seen.finalizers, QUEUE_FINALIZER)
        if has and seen.is_deleted and not is_used:
            return tuple(each for each in seen.finalizers if each != QUEUE_FINALIZER)
        return seen.finalizers

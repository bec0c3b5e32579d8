"""Watches what decisions depend on, and hands each change to the one thread that decides."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import ApiError, Forbidden, PathNotFound
from carina_dra.kube.reflector import Tracker
from carina_dra.kube.store import ObjectChange, Versions
from carina_dra.placement.cluster.gpu import DRIVERS
from controller.act.queue_finalizer import QueueFinalizers
from controller.names import GROUP
from controller.observe.mirror import Mirror
from controller.report.least_share_log import LeastShareLog
from controller.report.rate import TokenBucket
from controller.report.status_writer import StatusWriter
from controller.run.follower import Follower
from controller.run.inbox import Task
from controller.run.newcomers import Newcomers
from controller.run.subjects import Subject, optional_subjects, subjects

_SERVED_INTERVAL: Final = 60.0
"""Seconds between two looks for resources that were not served."""
_COMPLAINT_INTERVAL: Final = 60.0
"""Seconds between two errors in the log about a resource that is not served."""
_NO_OBJECT: Final = Selection(labels="scheduling.carina.dev/none=none")
"""Asks whether a resource is served at the least cost."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Watches:
    """Follows the API server. Each change is a piece of work for the thread of the mirror."""

    def __init__(
        self,
        client: Client,
        mirror: Mirror,
        deliver: Callable[[Task], None],
        statuses: StatusWriter | None = None,
        finalizers: QueueFinalizers | None = None,
        newcomers: Newcomers | None = None,
    ) -> None:
        """`deliver` takes the work, from any thread.

        `statuses` is shown Queues and PodGroups, `finalizers` Queues, and `newcomers` the
        namespaces of pods that wait.
        """
        self._client = client
        self._deliver = deliver
        self._set_aside = mirror.set_aside
        self._heard: dict[str, float] = {}
        shares = LeastShareLog(DRIVERS | {mirror.state.settings.driver})
        self._trackers = {
            subject.resource.qualified_name: self._tracker(
                subject, partial(_complain, subject.resource, _complaints())
            )
            for subject in subjects(mirror, statuses, finalizers, shares, newcomers)
        }
        self._unserved = optional_subjects(mirror)
        self._stopping = threading.Event()
        self._searching = threading.Thread(target=self._search, name="served", daemon=True)

    def start(self) -> None:
        """Starts to follow what every cluster serves, and what else this one serves."""
        for tracker in self._trackers.values():
            tracker.start()
        self._watch_served()
        self._searching.start()

    def stop(self) -> None:
        """Stops."""
        self._stopping.set()
        for tracker in list(self._trackers.values()):
            tracker.stop()

    def unsynced(self) -> list[str]:
        """The resources whose first list has not been read yet."""
        return [name for name, each in list(self._trackers.items()) if not each.synced]

    def ages(self) -> Mapping[str, float]:
        """By resource: how long ago it was last heard of, in seconds."""
        now = time.monotonic()
        return {name: now - at for name, at in list(self._heard.items())}

    def _search(self) -> None:
        while not self._stopping.wait(_SERVED_INTERVAL):
            self._watch_served()

    def _watch_served(self) -> None:
        """Begins to follow what is served now, in the first version that is."""
        for versions in list(self._unserved):
            for subject in versions:
                try:
                    self._client.list(subject.resource, _NO_OBJECT)
                except PathNotFound:
                    continue
                except ApiError as error:
                    level = logging.WARNING if isinstance(error, Forbidden) else logging.INFO
                    _log.log(level, "a resource cannot be watched", extra={"error": str(error)})
                    break
                tracker = self._tracker(subject, lambda _: None)
                self._trackers[subject.resource.qualified_name] = tracker
                tracker.start()
                self._unserved.remove(versions)
                break

    def _tracker(
        self, subject: Subject[T], on_error: Callable[[ApiError], None]
    ) -> Tracker[T | None]:
        name = subject.resource.qualified_name
        follower = Follower(subject, self._deliver, self._set_aside)

        def changed(change: ObjectChange[T | None]) -> None:
            self._heard[name] = time.monotonic()
            follower.changed(change)

        known: Versions[T] = Versions()
        return Tracker(
            self._client,
            subject.resource,
            follower.parse,
            known,
            on_change=changed,
            on_error=on_error,
        )


def _complaints() -> TokenBucket:
    return TokenBucket(rate=1 / _COMPLAINT_INTERVAL, burst=1)


def _complain(resource: ApiResource, rate: TokenBucket, error: ApiError) -> None:
    """Logs what to do about a resource that every decision needs, and that is not served."""
    if isinstance(error, PathNotFound) and rate.take(time.monotonic()):
        _log.error(
            "no pod starts: the API server does not serve a resource",
            extra={"resource": resource.qualified_name, "remedy": _remedy(resource)},
        )


def _remedy(resource: ApiResource) -> str:
    if resource.group == GROUP:
        name = resource.qualified_name
        return f"install the CustomResourceDefinition {name}: kubectl apply -k deploy/"
    return f"serve {resource.api_version}: Kubernetes 1.36 or later does by default"

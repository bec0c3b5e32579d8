"""Objects followed at the API server: one list, then watches, while the process lives.

It guarantees:
- A watch that ends, for whatever reason, is opened again after a delay that grows and has jitter.
- Bookmarks keep its version recent. If the version expires, the objects are listed again, and the
  differences are reported like any other change: none is missed, none is reported twice.
- An object that cannot be parsed is logged and skipped. Its last state that could be parsed stays,
  since removing it would look like a deletion.
- Of a list, only the bodies of one page are kept at a time.
- `stop` ends a blocked read at once.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, assert_never

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, ObjectKey, key_of, resource_version_of
from carina_dra.kube.client import EVERYTHING, WATCH_SECONDS, Client, Selection
from carina_dra.kube.collector_pause import collector_paused
from carina_dra.kube.errors import ApiError, VersionGone
from carina_dra.kube.store import KnownObjects, ObjectChange, Store, StoreEntry
from carina_dra.kube.watch import Added, Bookmark, Deleted, Modified, Watch, WatchEvent, version_of

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Tracker(Generic[T]):
    """Reports the changes of the API server's objects, each parsed by `parse`.

    known: what is known of the objects, and brought up to date.
    on_change: called for every change, in order, after `known` was updated, by the tracker's
    thread. It should return soon; its exceptions are logged.
    on_error: called by the same thread for every list or watch that failed; it is tried again.
    """

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        parse: Callable[[Body], T],
        known: KnownObjects[T],
        *,
        selection: Selection = EVERYTHING,
        on_change: Callable[[ObjectChange[T]], None] = lambda _: None,
        on_error: Callable[[ApiError], None] = lambda _: None,
        backoff: Backoff | None = None,
        watch_seconds: int = WATCH_SECONDS,
    ) -> None:
        self._known = known
        self._client = client
        self._resource = resource
        self._selection = selection
        self._parse = parse
        self._on_change = on_change
        self._on_error = on_error
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._version: str | None = None
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._watch_lock = threading.Lock()
        self._open_watch: Watch | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"tracker-{resource.plural}", daemon=True
        )

    def start(self) -> None:
        """Starts to follow the API server."""
        self._thread.start()

    def stop(self, *, timeout: float = 5.0) -> None:
        """Stops, and waits for the thread to end, for at most `timeout` seconds.

        It can take that long only while a connection is opened or a list is read.
        """
        self._stopping.set()
        with self._watch_lock:
            if self._open_watch is not None:
                self._open_watch.interrupt()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wait_synced(self, timeout: float) -> bool:
        """Waits until the first list is known and reported; False if the time runs out."""
        return self._synced.wait(timeout)

    @property
    def synced(self) -> bool:
        """Whether the first list is known and reported."""
        return self._synced.is_set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._follow()
            self._stopping.wait(self._backoff.next())

    def _follow(self) -> None:
        """Lists if necessary, then watches once; returns when the watch has ended."""
        try:
            if self._version is None:
                self._version = self._list()
                self._synced.set()
            self._watch(self._version)
        except VersionGone as error:
            _log.info("listing again", extra={"error": str(error)})
            self._version = None
        except ApiError as error:
            _log.warning("cannot follow the API server", extra={"error": str(error)})
            self._on_error(error)
        except Exception:  # noqa: BLE001 - a bug must not end the observation silently
            _log.exception("listing again", extra={"resource": self._resource.qualified_name})
            self._version = None

    def _list(self) -> str:
        with collector_paused():
            listing = self._client.list_as(self._resource, self._listed, self._selection)
            entries = {key: entry for key, entry in listing.items if entry is not None}
            for change in self._known.replace(entries):
                self._report(change)
        return listing.resource_version

    def _listed(self, body: Body) -> tuple[ObjectKey, StoreEntry[T] | None]:
        key = key_of(body)
        return key, self._parsed(body) or self._known.entry(key)

    def _watch(self, version: str) -> None:
        with self._client.watch(
            self._resource, self._selection, resource_version=version, seconds=self._watch_seconds
        ) as watch:
            with self._watch_lock:
                self._open_watch = watch
                if self._stopping.is_set():
                    return
            try:
                for event in watch:
                    if not self._take(event):
                        return
                    self._backoff.reset()
            finally:
                with self._watch_lock:
                    self._open_watch = None

    def _take(self, event: WatchEvent) -> bool:
        """Applies an event. Returns whether the watch can continue."""
        version = version_of(event)
        if self._version is not None and int(version) < int(self._version):
            # The API server was restored from a backup, so what is known is not of its history.
            _log.warning("versions go backwards, listing again", extra={"version": version})
            self._version = None
            return False
        self._version = version
        change: ObjectChange[T] | None = None
        match event:
            case Added(body) | Modified(body):
                entry = self._parsed(body)
                change = self._known.put(key_of(body), entry) if entry is not None else None
            case Deleted(body):
                change = self._known.remove(key_of(body), int(version))
            case Bookmark():
                pass
            case _:
                assert_never(event)
        if change is not None:
            self._report(change)
        return True

    def _report(self, change: ObjectChange[T]) -> None:
        try:
            self._on_change(change)
        except Exception:  # noqa: BLE001 - later changes must be reported too
            _log.exception("on_change failed", extra={"resource": self._resource.qualified_name})

    def _parsed(self, body: Body) -> StoreEntry[T] | None:
        try:
            return StoreEntry(int(resource_version_of(body)), self._parse(body))
        except Exception as error:  # noqa: BLE001 - parsers raise what they like
            _log.warning(
                "skipping an object that cannot be parsed",
                extra={
                    "resource": self._resource.qualified_name,
                    "object": str(key_of(body)),
                    "error": str(error),
                },
            )
            return None


class Reflector(Tracker[T]):
    """A tracker that keeps the objects, too, in `store`."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        parse: Callable[[Body], T],
        *,
        selection: Selection = EVERYTHING,
        on_change: Callable[[ObjectChange[T]], None] = lambda _: None,
        on_error: Callable[[ApiError], None] = lambda _: None,
        backoff: Backoff | None = None,
        watch_seconds: int = WATCH_SECONDS,
    ) -> None:
        self.store: Store[T] = Store()
        super().__init__(
            client,
            resource,
            parse,
            self.store,
            selection=selection,
            on_change=on_change,
            on_error=on_error,
            backoff=backoff,
            watch_seconds=watch_seconds,
        )

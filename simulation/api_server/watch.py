"""The event stream of a watch, from the storage's history."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carina_dra.kube.body import Body
from simulation.api_server.failure import Failure
from simulation.api_server.resources import ServedResource
from simulation.api_server.selectors import Predicate
from simulation.api_server.storage import Change, Storage


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of a watch.

    revision: where to start; None to start with the current objects. bookmark_every: in seconds;
    None for no bookmarks. mark_initial: whether a bookmark follows the current objects
    (`sendInitialEvents`).
    """

    namespace: str
    matches: Predicate
    revision: int | None
    seconds: float
    bookmark_every: float | None
    mark_initial: bool


def events(
    storage: Storage,
    served: ServedResource,
    options: WatchOptions,
    show: Callable[[Body], Body],
    is_over: Callable[[], bool],
) -> Iterator[bytes]:
    """The lines of a watch, each as soon as its change happens.

    show: gives an object in the form that the client accepts; is_over: whether to end the stream.
    """
    deadline = time.monotonic() + options.seconds
    revision = options.revision
    if revision is None:
        with storage.transaction():
            revision = storage.revision
            present = storage.objects(served.storage)
        for key, body in present:
            if _in_scope(options, key.namespace) and options.matches(body):
                yield _line("ADDED", show(body))
        if options.mark_initial:
            yield _bookmark(served, revision, {"k8s.io/initial-events-end": "true"})
    bookmark_at = _next_bookmark(options, deadline)
    while not is_over() and time.monotonic() < deadline:
        try:
            changes = storage.since(revision)
        except Failure as failure:
            yield _line("ERROR", failure.status())
            return
        for change in changes:
            revision = change.revision
            if change.storage == served.storage and _in_scope(options, change.key.namespace):
                yield from _event(change, options.matches, show)
        if time.monotonic() >= bookmark_at:
            yield _bookmark(served, revision, {})
            bookmark_at = _next_bookmark(options, deadline)
        left = max(0.0, min(deadline, bookmark_at) - time.monotonic())
        storage.wait(revision, left, is_over)


def _event(change: Change, matches: Predicate, show: Callable[[Body], Body]) -> Iterator[bytes]:
    """The event for a change, if the selectors match the object before or after it."""
    was_seen = change.before is not None and matches(change.before)
    is_seen = change.after is not None and matches(change.after)
    if is_seen and change.after is not None:
        yield _line("MODIFIED" if was_seen else "ADDED", show(change.after))
    elif was_seen and change.before is not None:
        metadata = change.before["metadata"] | {"resourceVersion": str(change.revision)}
        yield _line("DELETED", show(change.before | {"metadata": metadata}))


def _in_scope(options: WatchOptions, namespace: str) -> bool:
    return not options.namespace or options.namespace == namespace


def _next_bookmark(options: WatchOptions, deadline: float) -> float:
    """At regular intervals, and shortly before the end, as in the real API server."""
    if options.bookmark_every is None:
        return float("inf")
    now = time.monotonic()
    regular, last = now + options.bookmark_every, deadline - 2.0
    return min(regular, last) if last > now else regular


def _bookmark(served: ServedResource, revision: int, annotations: dict[str, str]) -> bytes:
    resource = served.resource
    metadata: Body = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return _line("BOOKMARK", body)


def _line(kind: str, body: Body) -> bytes:
    return json.dumps({"type": kind, "object": body}, separators=(",", ":")).encode() + b"\n"

"""The events of a watch: the changes that the API server reports.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from carina_dra.kube import errors
from carina_dra.kube.body import Body, parse_json, resource_version_of
from carina_dra.kube.errors import ApiOperation, ServerError
from carina_dra.kube.transport import Stream


@dataclass(frozen=True, slots=True)
class Added:
    """An object was created, or now matches the selectors of the watch."""

    body: Body


@dataclass(frozen=True, slots=True)
class Modified:
    """An object has changed."""

    body: Body


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object was deleted, or no longer matches the selectors; `body` is its last state."""

    body: Body


@dataclass(frozen=True, slots=True)
class Bookmark:
    """There are no further changes up to this version."""

    resource_version: str


WatchEvent: TypeAlias = Added | Modified | Deleted | Bookmark


def version_of(event: WatchEvent) -> str:
    """The version that the watch has reached with an event."""
    match event:
        case Bookmark(version):
            return version
        case Added(body) | Modified(body) | Deleted(body):
            return resource_version_of(body)


class Watch:
    """The events of one watch, for one reading thread. Use it in a `with` statement.

    It ends when the server ends it, when `interrupt` is called, or with an ApiError: Gone if the
    version is too old, Unreachable if the connection breaks.
    """

    def __init__(self, operation: ApiOperation, stream: Stream) -> None:
        self._operation = operation
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[WatchEvent]:
        for line in self._stream.lines():
            yield parse_event(self._operation, line)

    def interrupt(self) -> None:
        """Ends the watch at once, from any thread."""
        self._stream.interrupt()


def parse_event(operation: ApiOperation, line: bytes) -> WatchEvent:
    """The event in a line of a watch.

    Raises:
        ApiError: it is an ERROR event, or not an event.
    """
    try:
        event: Any = parse_json(line)
        body: Body = event["object"]
        match event["type"]:
            case "ADDED":
                return Added(body)
            case "MODIFIED":
                return Modified(body)
            case "DELETED":
                return Deleted(body)
            case "BOOKMARK":
                return Bookmark(body["metadata"]["resourceVersion"])
            case "ERROR":
                error = errors.from_status(operation, body)
            case other:
                error = ServerError(operation, f"watch event of unknown type {other!r}")
    except (ValueError, KeyError, TypeError) as malformed:
        raise ServerError(operation, f"not a watch event: {line[:200]!r}") from malformed
    raise error

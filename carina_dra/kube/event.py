"""Events about objects (events.k8s.io/v1) as values.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
Limits: note 1024 bytes, reason and action 128. Repetitions of an occurrence within six minutes are
a *series*: one Event with a count, as in client-go. Times are Unix seconds.
"""

from dataclasses import dataclass, replace
from enum import Enum

from carina_dra.kube.api_resource import EVENTS
from carina_dra.kube.body import Body
from carina_dra.kube.timestamp import micro_time

NOTE_BYTES = 1024

SERIES_WINDOW = 360.0
"""Seconds within which a repetition continues a series."""

SERIES_INTERVAL = 30.0
"""Seconds between two writes of one series, after the first repetition."""


class EventType(Enum):
    """Normal for information, Warning if someone may have to act."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an event is about. The namespace of a cluster-scoped object is empty."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def body(self) -> Body:
        """The reference as an Event contains it."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class ReportingController:
    """The controller that reports, by its name, and which of its processes, such as a node's."""

    name: str
    instance: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What happened, without the time; equal values are repetitions."""

    regarding: ObjectReference
    type: EventType
    reason: str
    action: str
    note: str

    @property
    def namespace(self) -> str:
        """The namespace of its Event: the object's, or `default` if it is cluster-scoped."""
        return self.regarding.namespace or "default"


@dataclass(frozen=True, slots=True)
class EventSeries:
    """An Event that was written, and the repetitions since then."""

    name: str
    last_at: float
    written_at: float
    count: int = 1
    written_count: int = 1

    def continues(self, now: float) -> bool:
        """Whether an occurrence at this time belongs to the series."""
        return now - self.last_at < SERIES_WINDOW

    def again(self, now: float) -> "EventSeries":
        """The series with one more occurrence."""
        return replace(self, count=self.count + 1, last_at=now)

    @property
    def unwritten(self) -> bool:
        """Whether the count has grown since it was written."""
        return self.count > self.written_count

    def due(self, now: float) -> bool:
        """Whether it is time to write the count."""
        waited = now - self.written_at >= SERIES_INTERVAL
        return self.unwritten and (self.written_count == 1 or waited)

    def written(self, now: float) -> "EventSeries":
        """The series after its count was written."""
        return replace(self, written_count=self.count, written_at=now)

    def patch(self) -> Body:
        """The merge patch that writes the count."""
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last_at)}}


def event_body(occurrence: Occurrence, controller: ReportingController, at: float) -> Body:
    """The Event for an occurrence. Its name ends with the time in nanoseconds, as in client-go."""
    object_name = occurrence.regarding.name[:230]  # with the time, it must remain a DNS subdomain
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{object_name}.{int(at * 1e9):x}",
            "namespace": occurrence.namespace,
        },
        "eventTime": micro_time(at),
        "reportingController": controller.name,
        "reportingInstance": controller.instance[:128],
        "regarding": occurrence.regarding.body(),
        "type": occurrence.type.value,
        "reason": occurrence.reason,
        "action": occurrence.action,
        "note": occurrence.note,
    }


def cut_note(note: str) -> str:
    """The note, cut to the API's limit, with an ellipsis if it was longer."""
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    ellipsis = "…"
    room = NOTE_BYTES - len(ellipsis.encode())
    return encoded[:room].decode(errors="ignore") + ellipsis

"""A fake of the EventRecorder."""

from dataclasses import dataclass, field

from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder


@dataclass
class RecordedEvents(EventRecorder):
    """Keeps Events for the test instead of writing them."""

    events: list[tuple[str, EventType, str, str]] = field(default_factory=list)

    def record(
        self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: str,
        note: str,
        *,
        action: str,
    ) -> None:
        assert action
        self.events.append((f"{regarding.kind} {regarding.name}", event_type, reason, note))

    def reasons(self) -> list[str]:
        return [reason for _, _, reason, _ in self.events]

"""What Events say about single objects, as values."""

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from carina_dra.kube.event import EventType
from controller.model.plan import Action, Eviction

REFUSED: Final = "Refused"
"""The reason of Events about groups that cannot be decided on."""


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """About a pod whose group does not get what it asks for."""

    group: str
    word: str
    """The reason as a CamelCase word, which is also the reason of the condition."""
    text: str


@dataclass(frozen=True, slots=True)
class GroupRefused:
    """About a pod, or a PodGroup, whose pods form no group that can be decided on."""

    text: str
    """What is wrong, and the remedy."""


@dataclass(frozen=True, slots=True)
class PodEvicted:
    """About a pod that was evicted."""

    eviction: Eviction


@dataclass(frozen=True, slots=True)
class DoubleAllocation:
    """About a claim that loses its devices: another claim has one of them and keeps it."""

    device: str
    """`driver/pool/device`."""
    keeper: str
    """The claim that keeps it, as `namespace/name`."""


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """About a pod that nobody replaces, whose claim loses a device to another claim."""

    device: str
    """`driver/pool/device`."""
    keeper: str
    """The claim that keeps it, as `namespace/name`."""


@dataclass(frozen=True, slots=True)
class GateNotRemoved:
    """About a pod that was to start, but whose scheduling gate cannot be removed."""

    error: str


Notice: TypeAlias = (
    GroupWaits | GroupRefused | PodEvicted | DoubleAllocation | DeviceLost | GateNotRemoved
)


@dataclass(frozen=True, slots=True)
class EventText:
    """What an Event says, whatever object it is about."""

    type: EventType
    reason: str
    action: str
    note: str


def event_text(notice: Notice) -> EventText:
    """The Event of a notice."""
    match notice:
        case GroupWaits(group=group, word=word, text=text):
            return EventText(EventType.NORMAL, word, "Schedule", f"group {group} waits: {text}")
        case GroupRefused(text=text):
            return EventText(EventType.WARNING, REFUSED, "Schedule", text)
        case PodEvicted(eviction=eviction):
            return EventText(EventType.NORMAL, "Evicted", "Evict", _why_evicted(eviction))
        case DoubleAllocation(device=device, keeper=keeper):
            note = (
                f"device {device} was allocated twice; claim {keeper} keeps it, and what uses this "
                "claim has to leave"
            )
            return EventText(EventType.WARNING, "DoubleAllocation", "Allocate", note)
        case DeviceLost(device=device, keeper=keeper):
            note = (
                f"device {device} was allocated twice; claim {keeper} keeps it, and no controller "
                "replaces this pod: delete it, and create it again"
            )
            return EventText(EventType.WARNING, "DoubleAllocation", "Allocate", note)
        case GateNotRemoved(error=error):
            note = f"its scheduling gate cannot be removed: {error}"
            return EventText(EventType.WARNING, "GateNotRemoved", "RemoveGate", note)
    assert_never(notice)


def _why_evicted(eviction: Eviction) -> str:
    match eviction.action:
        case Action.CONSOLIDATE:
            return f"moves to another node, so that group {eviction.group} has room"
        case Action.RECLAIM:
            return (
                f"its queue has more than its fair share, and group {eviction.group} of another "
                "queue is within its own"
            )
        case Action.PREEMPT:
            return f"group {eviction.group} of its queue has a higher priority"
        case Action.STALE:
            return f"group {eviction.group} has fewer pods than it needs"
    assert_never(eviction.action)

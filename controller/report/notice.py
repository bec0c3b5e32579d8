"""What Events say about single objects, as values."""

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from carina_dra.kube.event import EventType
from controller.engine.explain import Turn
from controller.engine.model.plan import Action, Eviction

REFUSED: Final = "Refused"
"""The reason of Events about groups that cannot be decided on."""
DEGRADED: Final = "Degraded"
"""The reason of Events about groups with devices that have failed."""


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """About a pod whose group does not get what it asks for."""

    group: str
    word: str
    """The reason as a CamelCase word, which is also the reason of the condition."""
    text: str
    help: str = ""
    """What would help; empty if it is not known."""
    is_for_user: bool = False
    """Whether its user has to do something, rather than wait."""


@dataclass(frozen=True, slots=True)
class GroupRefused:
    """About a pod, or a PodGroup, whose pods form no group that can be decided on."""

    text: str
    """What is wrong, and the remedy."""


@dataclass(frozen=True, slots=True)
class PodEvicted:
    """About a pod that was evicted."""

    eviction: Eviction
    queue: str
    """The queue of the group for which it goes; empty if that is not known."""


@dataclass(frozen=True, slots=True)
class PodEvictedForTaint:
    """About a pod that was evicted, since a device of it has a taint with the effect NoExecute."""

    device: str
    """`driver/pool/device`."""
    taint: str
    """`key=value:effect`."""
    past_budgets: bool = False
    """Whether it was deleted, since disruption budgets refused its eviction for too long."""


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
class PodStranded:
    """About a pod that nobody replaces, for which kube-scheduler finds no devices on its node."""

    node: str
    """The only one where it can be."""


@dataclass(frozen=True, slots=True)
class GateNotRemoved:
    """About a pod that was to start, but whose scheduling gate cannot be removed."""

    error: str


@dataclass(frozen=True, slots=True)
class ObjectSetAside:
    """About an object on which the controller has failed."""

    doing: str
    """What could not be done, such as `decided on`."""
    error: str
    """The class of the error."""


@dataclass(frozen=True, slots=True)
class GroupDegraded:
    """About a pod whose group runs with devices that their driver has tainted."""

    group: str
    text: str
    """The devices."""


Notice: TypeAlias = (
    GroupWaits
    | GroupRefused
    | GroupDegraded
    | PodEvicted
    | PodEvictedForTaint
    | DoubleAllocation
    | DeviceLost
    | PodStranded
    | GateNotRemoved
    | ObjectSetAside
)


@dataclass(frozen=True, slots=True)
class EventText:
    """What an Event says, whatever object it is about."""

    type: EventType
    reason: str
    action: str
    note: str


def event_text(notice: Notice, namespace: str, turn: Turn | None = None) -> EventText:
    """The Event of a notice about an object of a namespace.

    Whoever reads the Event may not know what others have in their namespaces: these are not named.

    turn: the place in its queue of a group that waits.
    """
    match notice:
        case GroupWaits(word=word, is_for_user=is_for_user):
            kind = EventType.WARNING if is_for_user else EventType.NORMAL
            return EventText(kind, word, "Schedule", _why_waiting(notice, turn))
        case GroupRefused(text=text):
            return EventText(EventType.WARNING, REFUSED, "Schedule", text)
        case GroupDegraded(group=group, text=text):
            note = f"group {group} is degraded: {text}"
            return EventText(EventType.WARNING, DEGRADED, "Watch", note)
        case PodEvicted() | PodEvictedForTaint():
            return _about_eviction(notice, namespace)
        case DoubleAllocation() | DeviceLost():
            return _about_double_allocation(notice, namespace)
        case PodStranded(node=node):
            note = (
                f"kube-scheduler refuses it on node {node}, where its devices were planned and to "
                "which it is pinned, and no controller replaces this pod: delete it, and create it "
                "again"
            )
            return EventText(EventType.WARNING, "Stranded", "Schedule", note)
        case GateNotRemoved(error=error):
            note = f"its scheduling gate cannot be removed: {error}"
            return EventText(EventType.WARNING, "GateNotRemoved", "RemoveGate", note)
        case ObjectSetAside(doing=doing, error=error):
            note = (
                f"it cannot be {doing}, since the controller has a defect ({error}); it is tried "
                "again when it changes or after a while. Report the defect"
            )
            return EventText(EventType.WARNING, "SetAside", "Schedule", note)
    assert_never(notice)


def _about_eviction(notice: PodEvicted | PodEvictedForTaint, namespace: str) -> EventText:
    match notice:
        case PodEvicted(eviction=eviction, queue=queue):
            note = _why_evicted(eviction, _group(namespace, eviction.group, queue))
            if eviction.past_budgets:
                note += (
                    "; a disruption budget refused its eviction for longer than the evictionGrace "
                    "of its queue, so it is deleted"
                )
            return EventText(EventType.NORMAL, "Evicted", "Evict", note)
        case PodEvictedForTaint(device=device, taint=taint, past_budgets=past_budgets):
            note = f"its device {device} has the taint {taint}"
            if past_budgets:
                note += (
                    "; a disruption budget refused its eviction for longer than "
                    "device_eviction_grace_seconds, so it is deleted"
                )
            return EventText(EventType.NORMAL, "DeviceTainted", "Evict", note)
    assert_never(notice)


def _about_double_allocation(notice: DoubleAllocation | DeviceLost, namespace: str) -> EventText:
    note = f"device {notice.device} was allocated twice; {_keeper(namespace, notice.keeper)} "
    match notice:
        case DoubleAllocation():
            note += "keeps it, and what uses this claim has to leave"
        case DeviceLost():
            note += "keeps it, and no controller replaces this pod: delete it, and create it again"
        case _:
            assert_never(notice)
    return EventText(EventType.WARNING, "DoubleAllocation", "Allocate", note)


def _why_waiting(notice: GroupWaits, turn: Turn | None) -> str:
    note = f"group {notice.group} waits: {notice.text}"
    if turn is not None:
        note += f". It is number {turn.position} of {turn.waiting} that wait in its queue"
    if notice.help:
        note += f". What helps: {notice.help}"
    return note


def _why_evicted(eviction: Eviction, group: str) -> str:
    match eviction.action:
        case Action.CONSOLIDATE | Action.RECLAIM if eviction.moves:
            return (
                f"moves to another node, so that {group} has room; a place there is kept for the "
                "pod that replaces it"
            )
        case Action.CONSOLIDATE:
            return f"it is in the way of {group}, and there is room on another node"
        case Action.PREEMPT | Action.RECLAIM if eviction.overran:
            return f"it runs for longer than it declared, and {group} waits with a reservation"
        case Action.RECLAIM:
            return f"its queue has more than its fair share, and {group} is within that of its own"
        case Action.PREEMPT:
            return f"{group} has a higher priority in its queue"
        case Action.STALE:
            return f"{group} has fewer pods than it needs"
        case Action.DRAIN:
            return "its queue is being emptied, by order of an administrator"
        case Action.RELEASE:
            return f"node {eviction.node} is released, by order of an administrator"
        case Action.REPLACE:
            return f"a device of {group} has failed; the group is planned again"
    assert_never(eviction.action)


def _group(namespace: str, key: str, queue: str) -> str:
    """A group for readers of a namespace, who may know the names of its own groups only."""
    if key.startswith(f"{namespace}/"):
        return f"group {key}"
    return f"a group of queue {queue}" if queue else "another group"


def _keeper(namespace: str, claim: str) -> str:
    return f"claim {claim}" if claim.startswith(f"{namespace}/") else "a claim of another namespace"

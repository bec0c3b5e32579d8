"""What the controller has written about a group, for users who may read one namespace only."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from carina_dra.kube.api_resource import PODS, ApiResource, Scope
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import Forbidden, PathNotFound
from controller.engine.explain import UnknownGroupError
from controller.engine.model.reason import RefusedByScheduler
from controller.names import CONTROLLER, GATE, GROUP_LABEL, POD_GROUPS

# The roles view and edit of Kubernetes allow to read Events of the core group only.
_EVENTS: Final = ApiResource("", "v1", "events", "Event", Scope.NAMESPACED)
_MOST_STATEMENTS: Final = 8
_REFUSED: Final = RefusedByScheduler("").word
_STANDS: Final = 3600.0
"""Seconds for which an Event stands: one that still holds is repeated before."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition or an Event."""

    about: str
    """The kind and the name of the object, such as `Pod train-0`."""
    at: str
    """When it was written first or last, as the API writes times."""
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class WrittenReasons:
    """What stands on the objects of a group."""

    group: str
    """`namespace/name`, as it was asked for."""
    pods: Mapping[str, int]
    """How many of its pods are in each state."""
    statements: tuple[Statement, ...]
    """The newest first."""
    waits: bool


def read_written(client: Client, name: str) -> WrittenReasons:
    """Reads the pods, the PodGroup and the Events of a group.

    name: `namespace/name` of a PodGroup, of a pod, or of the owner of pods.

    Raises:
        UnknownGroupError: there is no such object.
        ApiError: the namespace cannot be read.
    """
    namespace, _, last = name.rpartition("/")
    namespace = namespace.partition("/")[0]
    if not namespace:
        raise UnknownGroupError(f"{name!r} names no namespace; write NAMESPACE/NAME")
    selection = Selection(namespace)
    pods = [pod for pod in client.list(PODS, selection).items if _belongs(pod, last)]
    names = [pod["metadata"]["labels"].get(GROUP_LABEL) or last for pod in pods] or [last]
    declared = [
        group for group in _pod_groups(client, selection) if group["metadata"]["name"] in names
    ]
    if not pods and not declared:
        raise UnknownGroupError(f"there is no pod, owner of pods or PodGroup {name!r}")
    about = {("Pod", pod["metadata"]["name"]) for pod in pods}
    about |= {("PodGroup", group["metadata"]["name"]) for group in declared}
    about |= {("ResourceClaim", claim) for pod in pods for claim in _claims(pod)}
    events = (event for event in client.list(_EVENTS, selection).items if _is_ours(event, about))
    states = Counter(map(_state, pods))
    statements = [*_conditions(declared), *_latest(events)]
    statements.sort(key=lambda statement: statement.at, reverse=True)
    return WrittenReasons(
        group=name,
        pods=dict(states),
        statements=tuple(statements[:_MOST_STATEMENTS]),
        waits=bool(states["waiting"]) or not pods,
    )


def standing_refusal(written: WrittenReasons, now: float) -> Statement | None:
    """What the controller has said of kube-scheduler's refusal, if a group still waits for that.

    The controller alone knows how often it was refused, and when it is tried again. `now` is a Unix
    time.
    """
    if not written.waits:
        return None
    conditions = [statement for statement in written.statements if "=" in statement.reason]
    if conditions:  # they say how it is
        refused = (
            statement for statement in conditions if statement.reason.endswith(f"False {_REFUSED}")
        )
        return next(refused, None)
    latest = next(
        (statement for statement in written.statements if statement.about.startswith("Pod ")), None
    )
    if latest is None or latest.reason != _REFUSED:
        return None
    return latest if now - datetime.fromisoformat(latest.at).timestamp() < _STANDS else None


def written_lines(written: WrittenReasons) -> Iterator[str]:
    """What was read, for people."""
    counts = ", ".join(f"{count} {state}" for state, count in written.pods.items()) or "none"
    yield f"{written.group}: pods: {counts}"
    if written.statements:
        yield "the controller has written:"
    else:
        yield "the controller has written nothing about it yet"
    for statement in written.statements:
        yield f"- {statement.at} {statement.about}: {statement.reason}: {statement.text}"


def _pod_groups(client: Client, selection: Selection) -> list[Body]:
    try:
        return client.list(POD_GROUPS, selection).items
    except (Forbidden, PathNotFound):
        return []  # the Events of the pods say the same


def _belongs(pod: Body, name: str) -> bool:
    metadata = pod["metadata"]
    metadata.setdefault("labels", {})
    owners = (owner.get("name") for owner in metadata.get("ownerReferences") or ())
    return name in (metadata["name"], metadata["labels"].get(GROUP_LABEL), *owners)


def _claims(pod: Body) -> Iterator[str]:
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if claim := status.get("resourceClaimName"):
            yield claim


def _state(pod: Body) -> str:
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        return "ended"
    if any(gate.get("name") == GATE for gate in pod["spec"].get("schedulingGates") or ()):
        return "waiting"
    return "running" if pod["spec"].get("nodeName") else "being scheduled"


def _conditions(groups: Iterable[Body]) -> Iterator[Statement]:
    for group in groups:
        for condition in (group.get("status") or {}).get("conditions") or ():
            yield Statement(
                about=f"PodGroup {group['metadata']['name']}",
                at=condition["lastTransitionTime"],
                reason=f"{condition['type']}={condition['status']} {condition['reason']}",
                text=condition["message"],
            )


def _is_ours(event: Body, about: set[tuple[str, str]]) -> bool:
    regarding = event.get("involvedObject") or {}
    is_ours = event.get("reportingComponent") == CONTROLLER
    return is_ours and (regarding.get("kind", ""), regarding.get("name", "")) in about


def _latest(events: Iterable[Body]) -> Iterator[Statement]:
    """The newest Event of each text: several pods of a group have the same one."""
    latest: dict[tuple[str, str], Statement] = {}
    for event in events:
        series = (event.get("series") or {}).get("lastObservedTime")
        at = series or event.get("eventTime") or event.get("lastTimestamp") or ""
        regarding = event["involvedObject"]
        about = f"{regarding.get('kind', '')} {regarding.get('name', '')}"
        made = Statement(about, at, event.get("reason", ""), event.get("message", ""))
        known = latest.get((made.reason, made.text))
        if known is None or known.at < made.at:
            latest[made.reason, made.text] = made
    yield from latest.values()

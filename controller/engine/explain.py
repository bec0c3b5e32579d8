"""Why a group runs, starts or waits, in words, and what would help."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from carina_dra.resource.errors import did_you_mean
from controller.engine.decide.gangs.order import rank_of_group
from controller.engine.model.failed_device import FailedDevice
from controller.engine.model.group import Group
from controller.engine.model.plan import Eviction, Nomination, Plan, Start
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod
from controller.engine.model.reason import RefusedByScheduler, what_helps
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from controller.engine.unmet_levels import unmet_levels

_NONE_REFUSED: Final[Mapping[str, str]] = {}


class UnknownGroupError(ValueError):
    """The snapshot does not have the group."""


@dataclass(frozen=True, slots=True)
class Because:
    """One reason for which a group waits."""

    reason: str
    help: str
    """What would help."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a group among those of its queue that wait."""

    position: int
    """1 for the group that comes first."""
    waiting: int
    """How many groups of the queue wait."""


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """What a plan means for a group."""

    group: str
    queue: str
    pods: Mapping[str, int]
    """How many of its pods are in each state before the plan, such as `running`."""
    starts: tuple[Start, ...]
    nominations: tuple[Nomination, ...]
    evictions: tuple[Eviction, ...]
    because: tuple[Because, ...]
    """Why it does not get all that it asks for."""
    turn: Turn | None = None
    """Its place in its queue; None if it does not wait, or is not asked for."""
    failed: tuple[FailedDevice, ...] = ()
    """Its devices that have failed."""
    notes: tuple[str, ...] = ()
    """Levels of enforcement that its claims demand, and that devices do not have."""

    @property
    def waits(self) -> bool:
        """Whether it does not get all that it asks for now."""
        return bool(self.because or self.nominations)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the controller does not decide on a group."""

    group: str
    pods: Mapping[str, int]
    """How many of its pods are in each state."""
    refused: str
    """The reason, and what would help."""


WhyAnswer: TypeAlias = GroupExplanation | Refusal


def group_named(snapshot: Snapshot, name: str, refused: Mapping[str, str] = _NONE_REFUSED) -> str:
    """The key of a group, from the key itself or from what users know of the group.

    `namespace/name` is a PodGroup, a pod of the group, or the object that owns the pods, such as a
    Job, if there is only one of this name.

    refused: groups that are not in the snapshot, by key.

    Raises:
        UnknownGroupError: it names no group, or several.
    """
    keys = [*(group.key for group in snapshot.groups), *refused]
    if name in keys:
        return name
    for pod in snapshot.pods:
        if pod.key == name:
            if pod.group is None:
                raise UnknownGroupError(
                    f"pod {name} names no queue, so kube-scheduler alone decides on it; see its "
                    "Events"
                )
            return pod.group
    namespace, _, last = name.rpartition("/")
    owned = [key for key in keys if _is_owned(key, namespace, last)]
    if len(owned) == 1:
        return owned[0]
    if owned:
        raise UnknownGroupError(f"{name} names several groups; write {' or '.join(owned)}")
    remedy = did_you_mean(name, keys) if keys else "the snapshot has no groups"
    raise UnknownGroupError(f"there is no group or pod {name!r}; {remedy}")


def turn_of(state: State, key: str) -> Turn | None:
    """The place of a group in its queue; None if it does not wait."""
    group = state.occupancy.groups.get(key)
    return None if group is None else turns_in(state, group.queue).get(key)


def turns_in(state: State, queue: str) -> Mapping[str, Turn]:
    """The place of each group of a queue that waits, by its key."""
    groups = (state.occupancy.groups[key] for key in state.waiting if key in state.occupancy.groups)
    waiting = [group for group in groups if group.queue == queue]
    waiting.sort(key=lambda group: rank_of_group(state.occupancy, group))
    return {group.key: Turn(at, len(waiting)) for at, group in enumerate(waiting, start=1)}


def explain(snapshot: Snapshot, plan: Plan, key: str, turn: Turn | None = None) -> GroupExplanation:
    """Explains what the plan for a snapshot means for one of its groups.

    turn: its place in its queue, by `turn_of`.

    Raises:
        UnknownGroupError: there is no such group.
    """
    group = _find(snapshot.groups, key)
    pods = [pod for pod in snapshot.pods if pod.group == key]
    own = {pod.key for pod in pods}
    return GroupExplanation(
        group=key,
        queue=group.queue,
        pods=dict(Counter(map(_state, pods))),
        starts=tuple(start for start in plan.starts if start.pod in own),
        nominations=tuple(nomination for nomination in plan.nominations if nomination.pod in own),
        evictions=tuple(eviction for eviction in plan.evictions if eviction.pod in own),
        because=tuple(
            Because(str(reason), what_helps(reason, snapshot.queues))
            for reason in dict.fromkeys(plan.waiting.get(key, ()))
        ),
        turn=turn,
        failed=plan.degraded.get(key, ()),
        notes=unmet_levels(snapshot, (claim for pod in pods for claim in pod.claims)),
    )


def with_refusal(explanation: GroupExplanation, at: str, text: str) -> GroupExplanation:
    """An explanation with what the controller has said of kube-scheduler's refusal of the group.

    at: when it has said it, as the API writes times.
    """
    reason = (
        f"the controller holds it back: {text} (written at {at}). Only the controller knows when "
        "it is tried again; nothing said here to start does before"
    )
    because = Because(reason, RefusedByScheduler("").remedy)
    return replace(explanation, because=(because, *explanation.because))


def refusal(snapshot: Snapshot, key: str, why: str) -> Refusal:
    """Explains that a group is not decided on."""
    pods = Counter(_state(pod) for pod in snapshot.pods if pod.group == key)
    return Refusal(key, dict(pods), why)


def lines(answer: WhyAnswer) -> Iterator[str]:
    """The explanation for people."""
    match answer:
        case Refusal(group=group, pods=pods, refused=refused):
            yield f"{group}: pods: {_counts(pods)}"
            yield f"it is refused: {refused}"
        case GroupExplanation():
            yield from _explanation_lines(answer)
        case _:
            assert_never(answer)


def _explanation_lines(explanation: GroupExplanation) -> Iterator[str]:
    yield (f"{explanation.group}: queue {explanation.queue}, pods: {_counts(explanation.pods)}")
    for failed in explanation.failed:
        yield f"it is degraded: {failed}"
    for start in explanation.starts:
        yield f"pod {start.pod} starts on node {start.node} now"
    for nomination in explanation.nominations:
        yield (
            f"pod {nomination.pod} starts on node {nomination.node} as soon as pods that are being "
            "evicted have left it"
        )
    for eviction in explanation.evictions:
        yield f"pod {eviction.pod} is evicted ({eviction.action}) for group {eviction.group}"
    if explanation.turn is not None:
        turn = explanation.turn
        yield f"it is number {turn.position} of {turn.waiting} that wait in the queue"
    if explanation.because:
        yield "it waits for more, since"
    for because in explanation.because:
        yield f"- {because.reason}"
        yield f"  what helps: {because.help}"
    for note in explanation.notes:
        yield f"note: {note}"
    if not (explanation.waits or explanation.starts or explanation.evictions):
        yield "it has all that it asks for"


def _counts(pods: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in pods.items()) or "none"


def _find(groups: Iterable[Group], key: str) -> Group:
    by_key = {group.key: group for group in groups}
    if key not in by_key:
        remedy = did_you_mean(key, by_key) if by_key else "the snapshot has no groups"
        raise UnknownGroupError(f"there is no group {key!r}; {remedy}")
    return by_key[key]


def _is_owned(key: str, namespace: str, name: str) -> bool:
    """Whether a key is `namespace/kind/name`."""
    parts = key.split("/")
    return len(parts) == 3 and (parts[0], parts[2]) == (namespace, name)


def _state(pod: Pod) -> str:
    match pod.state:
        case Pending():
            return "waiting"
        case Gated():
            return "held back"
        case Placed():
            return "running"
        case Evicting():
            return "being evicted"
        case Ended():
            return "ended"
    assert_never(pod.state)

"""Groups of pods, as the engine decides about them: their tree of pod sets, queue and priority."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar, assert_never

from carina_dra.allocator.preference import Policy
from carina_dra.resource.errors import BadValueError
from controller.engine.files.amount import read_duration
from controller.engine.model.group import Group, OnDeviceFailure, PodSet, SubGroup, SubGroups
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import (
    GROUP_LABEL,
    MIN_COUNT_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
    POD_SET_LABEL,
    PREEMPTIBLE_ANNOTATION,
    RUN_TIME_ANNOTATION,
)
from controller.observe.member import (
    AnnotatedGroup,
    GroupId,
    GroupMember,
    NamedGroup,
    OwnedGroup,
    ReplicaGroup,
    SinglePod,
    place_of,
)
from controller.observe.owner import (
    AllMembers,
    GroupShape,
    Malformed,
    Owner,
    OwnerKey,
    OwnerKind,
    Part,
    Parts,
)
from controller.observe.owners import leader_worker_set
from controller.observe.owners.types import OWNER_TYPES

_Value = TypeVar("_Value", str, int)
_SHOWN: Final = 3
"""So many different values are shown."""
_DIGITS: Final = 9
"""More than the pods of any cluster."""


_REPLACEMENT_DELAY: Final = 660.0
"""Seconds. The Job controller replaces failed pods later and later, at last after ten minutes."""


class Declaration(Protocol):
    """What a PodGroup of Carina says of its group; the fields are those of `Group`."""

    @property
    def root(self) -> SubGroup: ...
    @property
    def preemptible(self) -> bool: ...
    @property
    def staleness_grace(self) -> float | None: ...
    @property
    def preemption_delay(self) -> float: ...
    @property
    def run_time(self) -> float | None: ...
    @property
    def placement(self) -> Policy | None: ...
    @property
    def on_device_failure(self) -> OnDeviceFailure: ...


@dataclass(frozen=True, slots=True)
class RefusedGroup:
    """A group that cannot be."""

    reason: str
    """What is wrong with which object, and the remedy."""


class _RefusedError(Exception):
    """A group cannot be; the message is the reason."""


def group_of(
    group: GroupId,
    members: Collection[GroupMember],
    declaration: Declaration | None = None,
    owner: Owner | None = None,
) -> Group | RefusedGroup:
    """A group, from all of its pods.

    Minimums are lowered by the pods that have succeeded: those need not run again.

    declaration: for a `NamedGroup`, its PodGroup; None if it does not exist.
    owner: for an `OwnedGroup` or a `ReplicaGroup`, what was read of the owner; None if it does not
        exist, or was not read.
    """
    if not members:
        return RefusedGroup("it has no pods")
    alive = [member for member in members if member.succeeded is None] or list(members)
    try:
        made = Group(
            key=group.key,
            queue=_queue(alive),
            root=_lowered(_tree(group, members, declaration, owner), members),
            priority=_priority(alive),
            preempts=all(member.preempts for member in alive),
            moves=all(member.owner is not None for member in alive),
            replacement_delay=_REPLACEMENT_DELAY if any(map(_is_of_job, alive)) else 0,
            created=min(member.created for member in members),
        )
        if isinstance(group, NamedGroup) and declaration is not None:
            _check_pod_sets(alive, made)
            return _with_declared(made, declaration, alive)
        asked = [_preemptible(member) for member in alive]
        return replace(
            made,
            preemptible=may_be_evicted(alive) if _have_started(alive) else all(asked),
            run_time=max(filter(None, map(_run_time, alive)), default=None),
            on_device_failure=_on_device_failure(alive),
            # kube-scheduler evicts no group that has lost pods, and none that others join.
            staleness_grace=(
                math.inf if owner is not None and owner.key.kind is OwnerKind.POD_GROUP else None
            ),
        )
    except (_RefusedError, ValueError) as error:  # the latter from Group: too many levels
        return RefusedGroup(str(error))


def may_be_evicted(members: Iterable[GroupMember]) -> bool:
    """Whether a pod has started as preemptible. Its group stays preemptible as long as it runs.

    Otherwise a group that borrows beyond its quota could become one that nobody may evict.
    """
    return any(each.started and not each.firm for each in members)


def _is_of_job(member: GroupMember) -> bool:
    owner = member.owner
    return owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")


def _have_started(members: Iterable[GroupMember]) -> bool:
    return any(each.started for each in members)


def _with_declared(group: Group, declaration: Declaration, alive: Iterable[GroupMember]) -> Group:
    return replace(
        group,
        preemptible=declaration.preemptible or may_be_evicted(alive),
        staleness_grace=declaration.staleness_grace,
        preemption_delay=declaration.preemption_delay,
        run_time=declaration.run_time,
        placement=declaration.placement,
        on_device_failure=declaration.on_device_failure,
    )


def _check_pod_sets(alive: Iterable[GroupMember], group: Group) -> None:
    """With several pod sets, each pod has to say to which of them it belongs."""
    names = sorted(pod_set.name for pod_set in group.pod_sets)
    if len(names) == 1:
        return
    for member in alive:
        name = member.labels.get(POD_SET_LABEL)
        if name not in names:
            found = "is missing" if name is None else f"is {name!r}"
            raise _RefusedError(
                f"pod {member.name}: the label {POD_SET_LABEL} {found}; "
                f"write one of {', '.join(names)}"
            )


# Trees of pod sets -------------------------------------------------------------------------------


def _tree(
    group: GroupId,
    members: Collection[GroupMember],
    declaration: Declaration | None,
    owner: Owner | None,
) -> SubGroup:
    match group:
        case SinglePod():
            return PodSet("", 1)
        case AnnotatedGroup():
            return PodSet("", _min_count(members, 1))
        case NamedGroup():
            if declaration is None:
                raise _RefusedError(
                    f"PodGroup {group.key} does not exist; "
                    f"create it, or remove the label {GROUP_LABEL} from the pods"
                )
            return declaration.root
        case OwnedGroup(key):
            return _of_shape(_shape_of(key, owner), members)
        case ReplicaGroup(key):
            shape = _shape_of(key, owner)
            size = _youngest(members, leader_worker_set.SIZE)
            return _of_shape(
                shape if size is None else leader_worker_set.resized(shape, size), members
            )
    assert_never(group)


def _shape_of(key: OwnerKey, owner: Owner | None) -> GroupShape:
    if owner is not None:
        return owner.shape
    owner_type = OWNER_TYPES[key.kind]
    if owner_type.versions:
        raise _RefusedError(f"{key} does not exist, or the controller may not read it")
    return owner_type.shape({})


def _of_shape(shape: GroupShape, members: Collection[GroupMember]) -> SubGroup:
    match shape:
        case Malformed(reason=reason):
            raise _RefusedError(reason)
        case AllMembers(min_count=least):
            succeeded = sum(member.succeeded is True for member in members)
            known = sum(member.succeeded is None for member in members)
            return PodSet("", max(least, known + succeeded))
        case Parts(parts=(Part(name="", min_count=least),)):
            return PodSet("", _min_count(members, least))
        case Parts(parts=parts):
            return _of_parts(parts, members)
    assert_never(shape)


def _of_parts(parts: Sequence[Part], members: Iterable[GroupMember]) -> SubGroup:
    """The parts that have pods, or will have some whatever the others do.

    The group does not wait for parts without a queue: their pods are not the controller's. Pods
    of no part are optional.
    """
    by_set: dict[str, list[GroupMember]] = {}
    for member in members:
        by_set.setdefault(place_of(member).pod_set, []).append(member)
    pod_sets = [
        PodSet(part.name, _min_count(by_set.get(part.name, ()), part.min_count))
        for part in parts
        if part.name in by_set or (part.min_count and part.is_awaited)
    ]
    known = {part.name for part in parts}
    pod_sets += (PodSet(name, 0) for name in sorted(by_set) if name not in known)
    if len(pod_sets) == 1:
        return pod_sets[0]
    return SubGroups("", tuple(pod_sets), len(pod_sets))


def _min_count(members: Iterable[GroupMember], default: int) -> int:
    said = _youngest(members, MIN_COUNT_ANNOTATION)
    return max(0, default) if said is None else said  # schemas of operators allow less than 0


def _lowered(part: SubGroup, members: Iterable[GroupMember]) -> SubGroup:
    """The tree without the pods that have succeeded."""
    succeeded = Counter(place_of(each).pod_set for each in members if each.succeeded)
    if not succeeded:
        return part
    if isinstance(part, PodSet):  # all pods belong to it, whatever they say
        return replace(part, min_count=max(0, part.min_count - succeeded.total()))
    return _lowered_by(part, succeeded)


def _lowered_by(part: SubGroup, succeeded: Mapping[str, int]) -> SubGroup:
    match part:
        case PodSet(name=name, min_count=least):
            return replace(part, min_count=max(0, least - succeeded.get(name, 0)))
        case SubGroups(children=children):
            return replace(part, children=tuple(_lowered_by(each, succeeded) for each in children))
    assert_never(part)


# What pods say -----------------------------------------------------------------------------------


def _queue(members: Iterable[GroupMember]) -> str:
    return _the_same(
        "queues",
        f"give all of them one value of the label {QUEUE_LABEL}",
        ((each.labels.get(QUEUE_LABEL, ""), each) for each in members),
    )


def _priority(members: Iterable[GroupMember]) -> int:
    return _the_same(
        "priorities",
        "give all of them one priorityClassName",
        ((each.priority, each) for each in members),
    )


def _the_same(what: str, remedy: str, found: Iterable[tuple[_Value, GroupMember]]) -> _Value:
    """The value that all members have."""
    first: dict[_Value, str] = {}
    for value, member in found:
        first.setdefault(value, member.name)
    if len(first) > 1:
        shown = ", ".join(f"{value} (pod {first[value]})" for value in sorted(first)[:_SHOWN])
        raise _RefusedError(f"its pods have different {what}: {shown}; {remedy}")
    return next(iter(first))


def _preemptible(member: GroupMember) -> bool:
    text = member.annotations.get(PREEMPTIBLE_ANNOTATION, "true")
    if text not in ("true", "false"):
        raise _wrong(member, PREEMPTIBLE_ANNOTATION, text, "true or false")
    return text == "true"


def _run_time(member: GroupMember) -> float | None:
    text = member.annotations.get(RUN_TIME_ANNOTATION)
    if text is None:
        return None
    try:
        return read_duration(text)
    except BadValueError:
        raise _wrong(member, RUN_TIME_ANNOTATION, text, "a duration such as 90m") from None


def _on_device_failure(members: Iterable[GroupMember]) -> OnDeviceFailure:
    """Whether a pod asks for its group to be replaced."""
    asked = set()
    for member in members:
        text = member.annotations.get(ON_DEVICE_FAILURE_ANNOTATION, OnDeviceFailure.WAIT)
        if text not in tuple(OnDeviceFailure):
            remedy = " or ".join(OnDeviceFailure)
            raise _wrong(member, ON_DEVICE_FAILURE_ANNOTATION, text, remedy)
        asked.add(text)
    is_asked = OnDeviceFailure.REPLACE in asked
    return OnDeviceFailure.REPLACE if is_asked else OnDeviceFailure.WAIT


def _youngest(members: Iterable[GroupMember], annotation: str) -> int | None:
    """What the youngest pod with the annotation says: a rolling update changes one by one."""
    for member in sorted(members, key=lambda member: (member.created, member.name), reverse=True):
        text = member.annotations.get(annotation)
        if text is not None:
            if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
                raise _wrong(member, annotation, text, "a whole number such as 4")
            return int(text)
    return None


def _wrong(member: GroupMember, annotation: str, text: str, remedy: str) -> _RefusedError:
    return _RefusedError(
        f"pod {member.name}: the annotation {annotation} is {text!r:.40}; write {remedy}"
    )

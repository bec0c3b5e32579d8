"""The minimum of a group in force: once the group has started, it rises only when it is reached.

An owner that is scaled up asks for more pods than run. If the group needed them at once, it would
be evicted as stale on a full cluster. So it keeps the minimum that it had, and the further pods
start one by one; the pods of a new pod set start together.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from controller.engine.model.group import PodSet, SubGroup, SubGroups, is_satisfied, least_pods
from controller.observe.member import place_of
from controller.observe.owner import AllMembers, GroupShape, Malformed, Parts
from controller.observe.pod import ObservedPod


@dataclass(frozen=True, slots=True)
class _Floor:
    """What a group needs at most until it has what it is asked for."""

    pods: Mapping[str, int]
    """By pod set; those that are not here are new."""
    parts: Mapping[str, int]
    """Of the children of sub-groups, by name."""


def in_force(
    asked: SubGroup,
    before: SubGroup | None,
    members: Collection[ObservedPod],
    shape: GroupShape | None = None,
) -> SubGroup:
    """What a group needs now.

    asked: what its pods, its owner or its PodGroup say.
    before: what was in force until now; None if that is not known, as after a restart.
    shape: that of the owner, if there is one.
    """
    started = [
        pod for pod in members if pod.started and pod.succeeded is None and pod.deleted is None
    ]
    if not started or isinstance(shape, AllMembers):
        return asked
    if is_satisfied(asked, _counts(asked, (pod for pod in started if pod.node is not None))):
        return asked
    if before is not None:
        return _kept(asked, _floor_of(asked, before), _late(shape))
    needed = max((pod.started_with or 0 for pod in started), default=0)
    if not 0 < needed <= len(started) or least_pods(asked) <= needed:
        return asked  # it has lost pods, or its start was interrupted
    return _kept(asked, _Floor(_counts(asked, started), {}), _late(shape))


def _counts(asked: SubGroup, pods: Iterable[ObservedPod]) -> Mapping[str, int]:
    """How many pods are in each pod set; all of them in the only one, if there is one."""
    if isinstance(asked, PodSet):
        return {asked.name: sum(1 for _ in pods)}
    return Counter(place_of(pod).pod_set for pod in pods)


def _floor_of(asked: SubGroup, before: SubGroup) -> _Floor:
    if isinstance(asked, PodSet):
        return _Floor({asked.name: least_pods(before)}, {})
    pods: dict[str, int] = {}
    parts: dict[str, int] = {}
    left = [before]
    while left:
        part = left.pop()
        match part:
            case PodSet(name=name, min_count=least):
                pods[name] = least
            case SubGroups(name=name, children=children, min_count=least):
                parts[name] = least
                left += children
    return _Floor(pods, parts)


def _kept(part: SubGroup, floor: _Floor, late: Container[str]) -> SubGroup:
    match part:
        case PodSet(name=name, min_count=least):
            return replace(part, min_count=min(least, floor.pods.get(name, least)))
        case SubGroups(name=name, children=children, min_count=least):
            known = sum(_is_known(child, floor, late) for child in children)
            return replace(
                part,
                children=tuple(_kept(child, floor, late) for child in children),
                min_count=min(least, known, floor.parts.get(name, least)),
            )
    assert_never(part)


def _is_known(part: SubGroup, floor: _Floor, late: Container[str]) -> bool:
    match part:
        case PodSet(name=name):
            return name in floor.pods or name in late
        case SubGroups(children=children):
            return any(_is_known(child, floor, late) for child in children)
    assert_never(part)


def _late(shape: GroupShape | None) -> frozenset[str]:
    """The parts that come after the others have started: for them, nobody has scaled up."""
    match shape:
        case Parts(parts=parts):
            return frozenset(part.name for part in parts if not part.is_awaited)
        case None | AllMembers() | Malformed():
            return frozenset()
    assert_never(shape)

"""What of a group is placed next: its minimum at once, then pod by pod."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, assert_never

from controller.engine.model.group import Group, PodSet, SubGroup, SubGroups, least_pods
from controller.engine.model.pod import Pod
from controller.engine.model.reason import TooFewPods
from controller.engine.state.members import GroupPods, OrderedPods, order_of_pod, set_of
from controller.engine.state.occupancy import Occupancy

_NO_PODS: Final = OrderedPods()
_NOBODY: Final = GroupPods()
"""Of a group without pods."""


class Fullness(IntEnum):
    """How much of what it needs a group has; groups with less come first."""

    BELOW_MINIMUM = 0
    AT_MINIMUM = 1
    ABOVE_MINIMUM = 2


@dataclass(frozen=True, slots=True)
class PlacementUnit:
    """Pods that are placed together or not at all, as a part of the tree of their group."""

    part: SubGroup
    pods: tuple[Pod, ...]
    """Those of a pod set; empty for sub-groups."""
    children: tuple["PlacementUnit", ...]
    """What is placed of its children, the first ones first."""
    held: frozenset[str] = frozenset()
    """The nodes of its pods that have a place, if a topology constraint keeps the part together."""

    def all_pods(self) -> Iterator[Pod]:
        """The pods of the chunk."""
        yield from self.pods
        for child in self.children:
            yield from child.all_pods()


def next_chunk(
    occupancy: Occupancy, group: Group, among: Collection[str] | None = None
) -> PlacementUnit | TooFewPods | None:
    """What is placed next; None if all of the group's pods have a place.

    Below its minimum, that is what is missing of it. Then it is one more pod, or the minimum of one
    more sub-group. `among` are the pods that may be placed, if not those that wait for a place.
    """
    names = [pod_set.name for pod_set in group.pod_sets]
    if len(set(names)) < len(names):  # nobody can say to which of them a pod belongs
        twice = next(pod_set for pod_set in group.pod_sets if names.count(pod_set.name) > 1)
        return TooFewPods(f"{twice.name} (named twice)", 0, twice.min_count)
    tally = _Tally(occupancy, group)
    if among is not None:
        tally.pending = _among(occupancy, group, among)
    if tally.is_satisfied(group.root):
        return tally.more(group.root)
    return tally.missing(group.root)


def _among(occupancy: Occupancy, group: Group, keys: Collection[str]) -> Mapping[str, OrderedPods]:
    """Those of some pods of a group that have no place, by pod set."""
    found: dict[str, OrderedPods] = {}
    for key in keys:
        if not occupancy.is_active(key):
            pod = occupancy.pods[key]
            found.setdefault(set_of(pod, group), OrderedPods()).add(pod)
    return found


def fullness(occupancy: Occupancy, group: Group) -> Fullness:
    """How much of what it needs a group has."""
    root = group.root
    if isinstance(root, PodSet):  # most are; each victim is asked for it
        active = occupancy.members.get(group.key, _NOBODY).active.get(root.name, ())
        spare = len(active) - root.min_count
        if spare:
            return Fullness.ABOVE_MINIMUM if spare > 0 else Fullness.BELOW_MINIMUM
        return Fullness.AT_MINIMUM
    tally = _Tally(occupancy, group)
    if not tally.is_satisfied(group.root):
        return Fullness.BELOW_MINIMUM
    return Fullness.ABOVE_MINIMUM if tally.has_surplus(group.root) else Fullness.AT_MINIMUM


def is_satisfied(occupancy: Occupancy, group: Group) -> bool:
    """Whether a group has at least its minimum."""
    return _Tally(occupancy, group).is_satisfied(group.root)


def has_nominated(occupancy: Occupancy, group: Group) -> bool:
    """Whether pods of a group have a place, but wait for others to leave it."""
    members = occupancy.members.get(group.key)
    return members is not None and bool(members.nominated)


def stands(occupancy: Occupancy, group: Group, without: Iterable[Pod] = ()) -> bool:
    """Whether a group has its minimum by pods that wait for nobody, `without` some of its pods."""
    missing: Counter[str] = Counter()
    members = occupancy.members.get(group.key)
    if members is not None:
        missing.update(members.nominated)
    for pod in without:
        if occupancy.is_active(pod.key) and not occupancy.is_nominated(pod.key):
            missing[set_of(pod, group)] += 1
    return _Tally(occupancy, group, missing).is_satisfied(group.root)


def surplus(
    occupancy: Occupancy, group: Group, node: str | None = None
) -> Iterator[tuple[Pod, ...]]:
    """What a group can lose without falling below its minimum, each by itself.

    The last to be placed comes first: a pod of a pod set, or a whole sub-group that is not needed.
    With a `node`, only what has a pod there.
    """
    yield from _Tally(occupancy, group).surplus(group.root, node)


def active_pods(occupancy: Occupancy, group: str) -> list[Pod]:
    """The pods of a group that have a place, in the order in which they are placed."""
    members = occupancy.members.get(group)
    if members is None:
        return []
    pods = (occupancy.pods[key] for of in members.active.values() for key in of)
    return sorted(pods, key=order_of_pod)


def has_active(occupancy: Occupancy, group: str) -> bool:
    """Whether a pod of a group has a place."""
    members = occupancy.members.get(group)
    return members is not None and bool(members.active)


class _Tally:
    """The pods of a group, counted."""

    def __init__(
        self, occupancy: Occupancy, group: Group, missing: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """`missing` says how many of the pods of a set with a place do not count."""
        self._occupancy = occupancy
        self._group = group
        self._missing = missing
        self._members = occupancy.members.get(group.key, _NOBODY)
        self.pending: Mapping[str, OrderedPods] = self._members.pending
        """By pod set: the pods that may be placed."""

    def active(self, part: SubGroup) -> int:
        """How many pods of a part have a place."""
        match part:
            case PodSet(name=name):
                return len(self._members.active.get(name, ())) - self._missing.get(name, 0)
            case SubGroups(children=children):
                return sum(map(self.active, children))
        assert_never(part)

    def is_satisfied(self, part: SubGroup) -> bool:
        """Whether a part has at least its minimum."""
        match part:
            case PodSet(min_count=least):
                return self.active(part) >= least
            case SubGroups(children=children, min_count=least):
                return sum(map(self.is_satisfied, children)) >= least
        assert_never(part)

    def has_surplus(self, part: SubGroup) -> bool:
        """Whether a part has more than its minimum."""
        match part:
            case PodSet(min_count=least):
                return self.active(part) > least
            case SubGroups(children=children, min_count=least):
                used = [one for one in children if self.active(one)]
                return len(used) > least or any(map(self.has_surplus, children))
        assert_never(part)

    def missing(self, part: SubGroup) -> PlacementUnit | TooFewPods:
        """What a part needs to have its minimum."""
        match part:
            case PodSet(name=name, min_count=least):
                pending, active = self.pending.get(name, _NO_PODS), self.active(part)
                wanted = least - active
                if len(pending) < wanted:
                    return TooFewPods(name, active + len(pending), least)
                return self._chunk(part, pending.first(wanted))
            case SubGroups(children=children, min_count=least):
                wanted = least - sum(map(self.is_satisfied, children))
                found: list[PlacementUnit] = []
                failed: TooFewPods | None = None
                for child in self._by_need(children):
                    if len(found) == wanted:
                        break
                    if self.is_satisfied(child):
                        continue
                    chunk = self.missing(child)
                    if isinstance(chunk, PlacementUnit):
                        found.append(chunk)
                    else:
                        failed = failed or chunk
                if len(found) < wanted:
                    return failed or TooFewPods(part.name, len(found), wanted)
                return self._chunk(part, (), found)
        assert_never(part)

    def more(self, part: SubGroup) -> PlacementUnit | None:
        """One more pod of a part that has its minimum, or the minimum of one more of its parts."""
        match part:
            case PodSet(name=name):
                pending = self.pending.get(name, _NO_PODS)
                return self._chunk(part, pending.first(1)) if pending else None
            case SubGroups(children=children):
                for child in self._by_need(children):
                    if self.is_satisfied(child):
                        chunk: PlacementUnit | TooFewPods | None = self.more(child)
                    else:
                        chunk = self.missing(child)
                    if isinstance(chunk, PlacementUnit):
                        return self._chunk(part, (), (chunk,))
                return None
        assert_never(part)

    def surplus(self, part: SubGroup, node: str | None = None) -> Iterator[tuple[Pod, ...]]:
        """What a part can lose, each by itself, and still have its minimum."""
        match part:
            case PodSet(name=name, min_count=least):
                if self.active(part) > least:
                    for key in self._last_first(name, node):
                        yield (self._occupancy.pods[key],)
            case SubGroups(children=children, min_count=least):
                used = [child for child in children if self.active(child)]
                spare = sum(map(self.is_satisfied, used)) > least
                for child in reversed(used):
                    if next(self.surplus(child), None) is not None:
                        yield from self.surplus(child, node)
                    elif (spare or not self.is_satisfied(child)) and (
                        node is None or node in self._nodes(child)
                    ):
                        yield tuple(reversed(self._active_pods(child)))

    def _last_first(self, pod_set: str, node: str | None) -> Iterator[str]:
        """The pods of a pod set that have a place, or have it on a node, the last one first."""
        if node is None:
            return reversed(self._members.active[pod_set])
        if node not in self._members.nodes.get(pod_set, ()):
            return iter(())
        pods = map(self._occupancy.pods.__getitem__, self._occupancy.on_node[node])
        here = [
            pod
            for pod in pods
            if pod.group == self._group.key
            and set_of(pod, self._group) == pod_set
            and self._occupancy.is_active(pod.key)
        ]
        return (pod.key for pod in sorted(here, key=order_of_pod, reverse=True))

    def _chunk(
        self, part: SubGroup, keys: Iterable[str], children: Sequence[PlacementUnit] = ()
    ) -> PlacementUnit:
        pods = tuple(map(self._occupancy.pods.__getitem__, keys))
        held = self._nodes(part) if part.topology is not None else frozenset[str]()
        return PlacementUnit(part, pods, tuple(children), held)

    def _nodes(self, part: SubGroup) -> frozenset[str]:
        """The nodes on which pods of a part have a place."""
        match part:
            case PodSet(name=name):
                return frozenset(self._members.nodes.get(name, ()))
            case SubGroups(children=children):
                return frozenset[str]().union(*map(self._nodes, children))
        assert_never(part)

    def _active_pods(self, part: SubGroup) -> list[Pod]:
        match part:
            case PodSet(name=name):
                keys = self._members.active.get(name, ())
                return [self._occupancy.pods[key] for key in keys]
            case SubGroups(children=children):
                return sorted(
                    (pod for child in children for pod in self._active_pods(child)),
                    key=order_of_pod,
                )
        assert_never(part)

    def _by_need(self, children: Sequence[SubGroup]) -> list[SubGroup]:
        """Children without their minimum first, then the emptiest; optional ones last."""
        return sorted(children, key=self._need)

    def _need(self, part: SubGroup) -> tuple[bool, bool, float, str]:
        least = least_pods(part)
        filled = self.active(part) / least if least else 0.0
        return self.is_satisfied(part), least == 0, filled, part.name

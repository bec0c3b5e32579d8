"""What of a group is placed next: its minimum at once, then pod by pod."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import assert_never

from controller.model.group import Group, PodSet, SubGroup, SubGroups, least_pods
from controller.model.pod import Pod
from controller.model.reason import TooFewPods
from controller.state.state import State


class Fullness(IntEnum):
    """How much of what it needs a group has; groups with less come first."""

    BELOW_MINIMUM = 0
    AT_MINIMUM = 1
    ABOVE_MINIMUM = 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pods that are placed together or not at all, as a part of the tree of their group."""

    part: SubGroup
    pods: tuple[Pod, ...]
    """Those of a pod set; empty for sub-groups."""
    children: tuple["Chunk", ...]
    """What is placed of its children, the first ones first."""
    held: tuple[str, ...]
    """The pods of the part that have a place already."""

    def all_pods(self) -> Iterator[Pod]:
        """The pods of the chunk."""
        yield from self.pods
        for child in self.children:
            yield from child.all_pods()


def next_chunk(
    state: State, group: Group, among: Container[str] | None = None
) -> Chunk | TooFewPods | None:
    """What is placed next; None if all of the group's pods have a place.

    Below its minimum, that is what is missing of it. Then it is one more pod, or the minimum of one
    more sub-group. `among` are the pods that may be placed, if not those that wait for a place.
    """
    names = [one.name for one in group.pod_sets]
    if len(set(names)) < len(names):  # nobody can say to which of them a pod belongs
        twice = next(one for one in group.pod_sets if names.count(one.name) > 1)
        return TooFewPods(f"{twice.name} (named twice)", 0, twice.min_count)
    tally = _Tally(state, group, among)
    if tally.is_satisfied(group.root):
        return tally.more(group.root)
    return tally.missing(group.root)


def fullness(state: State, group: Group) -> Fullness:
    """How much of what it needs a group has."""
    if isinstance(group.root, PodSet):
        return _fullness_of_one(state, group.key, group.root.min_count)
    tally = _Tally(state, group)
    if not tally.is_satisfied(group.root):
        return Fullness.BELOW_MINIMUM
    return Fullness.ABOVE_MINIMUM if tally.has_surplus(group.root) else Fullness.AT_MINIMUM


def _fullness_of_one(state: State, group: str, least: int) -> Fullness:
    """Of a group with one pod set, to which all of its pods belong."""
    members = state.members.get(group)
    pods = (key for of in members.by_set.values() for key in of) if members is not None else ()
    active = sum(map(state.is_active, pods))
    if active < least:
        return Fullness.BELOW_MINIMUM
    return Fullness.ABOVE_MINIMUM if active > least else Fullness.AT_MINIMUM


def is_satisfied(state: State, group: Group, without: Container[str] = ()) -> bool:
    """Whether a group has at least its minimum, `without` some of its pods."""
    return _Tally(state, group, without=without).is_satisfied(group.root)


def surplus(state: State, group: Group) -> Iterator[tuple[Pod, ...]]:
    """What a group can lose without falling below its minimum, each by itself.

    The last to be placed comes first: a pod of a pod set, or a whole sub-group that is not needed.
    """
    yield from _Tally(state, group).surplus(group.root)


def active_pods(state: State, group: str) -> list[Pod]:
    """The pods of a group that have a place, in the order in which they are placed."""
    members = state.members.get(group)
    if members is None:
        return []
    pods = (state.pods[key] for of in members.by_set.values() for key in of if state.is_active(key))
    return sorted(pods, key=order_of_pod)


def order_of_pod(pod: Pod) -> tuple[int, float, str]:
    """The order of the pods of a pod set."""
    return pod.rank, pod.created, pod.key


class _Tally:
    """The pods of a group, counted."""

    def __init__(
        self,
        state: State,
        group: Group,
        among: Container[str] | None = None,
        without: Container[str] = (),
    ) -> None:
        self._state = state
        self._group = group
        members = state.members.get(group.key)
        by_set = members.by_set if members is not None else {}
        first = group.pod_sets[0].name if len(group.pod_sets) == 1 else None
        self._active: dict[str, list[str]] = {}
        self._pending: dict[str, list[str]] = {}
        for name, pods in by_set.items():
            pod_set = name if first is None else first  # there is no other that could be meant
            for key in pods:
                if key in without:
                    continue
                if state.is_active(key):
                    self._active.setdefault(pod_set, []).append(key)
                elif state.is_pending(key) if among is None else key in among:
                    self._pending.setdefault(pod_set, []).append(key)

    def _in_order(self, keys: Sequence[str]) -> list[Pod]:
        return sorted((self._state.pods[key] for key in keys), key=order_of_pod)

    def active(self, part: SubGroup) -> int:
        """How many pods of a part have a place."""
        match part:
            case PodSet(name=name):
                return len(self._active.get(name, ()))
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

    def missing(self, part: SubGroup) -> Chunk | TooFewPods:
        """What a part needs to have its minimum."""
        match part:
            case PodSet(name=name, min_count=least):
                pending, active = self._pending.get(name, ()), self.active(part)
                wanted = least - active
                if len(pending) < wanted:
                    return TooFewPods(name, active + len(pending), least)
                return self._chunk(part, self._in_order(pending)[:wanted])
            case SubGroups(children=children, min_count=least):
                wanted = least - sum(map(self.is_satisfied, children))
                found: list[Chunk] = []
                failed: TooFewPods | None = None
                for child in self._by_need(children):
                    if len(found) == wanted:
                        break
                    if self.is_satisfied(child):
                        continue
                    chunk = self.missing(child)
                    if isinstance(chunk, Chunk):
                        found.append(chunk)
                    else:
                        failed = failed or chunk
                if len(found) < wanted:
                    return failed or TooFewPods(part.name, len(found), wanted)
                return self._chunk(part, (), found)
        assert_never(part)

    def more(self, part: SubGroup) -> Chunk | None:
        """One more pod of a part that has its minimum, or the minimum of one more of its parts."""
        match part:
            case PodSet(name=name):
                pending = self._pending.get(name)
                return self._chunk(part, self._in_order(pending)[:1]) if pending else None
            case SubGroups(children=children):
                for child in self._by_need(children):
                    if self.is_satisfied(child):
                        chunk: Chunk | TooFewPods | None = self.more(child)
                    else:
                        chunk = self.missing(child)
                    if isinstance(chunk, Chunk):
                        return self._chunk(part, (), (chunk,))
                return None
        assert_never(part)

    def surplus(self, part: SubGroup) -> Iterator[tuple[Pod, ...]]:
        """What a part can lose, each by itself, and still have its minimum."""
        match part:
            case PodSet(name=name, min_count=least):
                active = self._active.get(name, ())
                if len(active) > least:
                    for pod in reversed(self._in_order(active)):
                        yield (pod,)
            case SubGroups(children=children, min_count=least):
                used = [one for one in children if self.active(one)]
                spare = sum(map(self.is_satisfied, used)) > least
                for child in reversed(used):
                    found = False
                    for unit in self.surplus(child):
                        found = True
                        yield unit
                    if not found and (spare or not self.is_satisfied(child)):
                        yield tuple(reversed(self._in_order(self._keys(child))))

    def _chunk(self, part: SubGroup, pods: Sequence[Pod], children: Sequence[Chunk] = ()) -> Chunk:
        return Chunk(part, tuple(pods), tuple(children), tuple(self._keys(part)))

    def _keys(self, part: SubGroup) -> list[str]:
        match part:
            case PodSet(name=name):
                return list(self._active.get(name, ()))
            case SubGroups(children=children):
                return [key for child in children for key in self._keys(child)]
        assert_never(part)

    def _by_need(self, children: Sequence[SubGroup]) -> list[SubGroup]:
        """Children without their minimum first, then the emptiest; optional ones last."""
        return sorted(children, key=self._need)

    def _need(self, part: SubGroup) -> tuple[bool, bool, float, str]:
        least = least_pods(part)
        filled = self.active(part) / least if least else 0.0
        return self.is_satisfied(part), least == 0, filled, part.name

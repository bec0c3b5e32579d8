"""The pods of a group by pod set: which wait for a place, which have one, in which order.

It is kept up to date pod by pod, so that the next pod of a large group costs no look at all others.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TypeAlias

from controller.engine.model.group import Group
from controller.engine.model.pod import Evicting, Pending, Pod

PodOrder: TypeAlias = tuple[int, float, str]


def order_of_pod(pod: Pod) -> PodOrder:
    """The order in which the pods of a pod set are placed."""
    return pod.rank, pod.created, pod.key


def set_of(pod: Pod, group: Group | None) -> str:
    """The pod set of a pod: the only one of its group, or else the one that it names."""
    if group is not None and len(group.pod_sets) == 1:
        return group.pod_sets[0].name  # there is no other that could be meant
    return pod.pod_set


class OrderedPods:
    """The keys of pods, in the order in which the pods are placed."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        # A sorted list: moving its tail costs less than a tree until it has 100,000 entries.
        self._entries: list[PodOrder] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in self._entries)

    def __reversed__(self) -> Iterator[str]:
        return (key for _, _, key in reversed(self._entries))

    def first(self, count: int) -> list[str]:
        """Returns the first `count` keys."""
        return [key for _, _, key in self._entries[:count]]

    def add(self, pod: Pod) -> None:
        """Adds a pod that is not among them."""
        insort(self._entries, order_of_pod(pod))

    def remove(self, pod: Pod) -> None:
        """Removes a pod that is among them."""
        del self._entries[bisect_left(self._entries, order_of_pod(pod))]


def asks_for_devices(pod: Pod) -> bool:
    """Whether a pod has claims, planned ones among them, or asks for devices of a device plugin."""
    return bool(pod.claims or pod.needs.extended)


class GroupPods:
    """The pods of a group. Sets without pods are left out."""

    __slots__ = ("active", "by_set", "moment", "nodes", "nominated", "pending", "with_devices")

    def __init__(self) -> None:
        self.by_set: dict[str, dict[str, None]] = {}
        """All pods, by the name that each gives its pod set."""
        self.pending: dict[str, OrderedPods] = {}
        """By pod set: those that wait for a place, and have not got one in the trial."""
        self.active: dict[str, OrderedPods] = {}
        """By pod set: those that have a place, and are not on their way out, as stuck ones are."""
        self.nodes: dict[str, dict[str, int]] = {}
        """By pod set: the nodes of the active ones, and how many are on each."""
        self.nominated: dict[str, int] = {}
        """By pod set: how many of the active ones wait for others to leave their place."""

        self.with_devices = 0
        """How many pods with a place ask for devices."""
        self.moment = 0
        """How often pods have got a place or lost it, or begun to wait or ceased to."""

    def wait(self, pod: Pod, pod_set: str) -> None:
        """A pod waits for a place."""
        self.moment += 1
        _add(self.pending, pod_set, pod)

    def wait_no_more(self, pod: Pod, pod_set: str) -> None:
        """A pod that waited does not; the exact inverse of `wait`."""
        self.moment += 1
        _remove(self.pending, pod_set, pod)

    def take_place(self, pod: Pod, pod_set: str, node: str) -> None:
        """A pod has got a place."""
        self.moment += 1
        self.with_devices += asks_for_devices(pod)
        match pod.state:
            case Evicting():
                return
            case Pending():
                _remove(self.pending, pod_set, pod)
            case _:
                pass
        _add(self.active, pod_set, pod)
        _count(self.nodes.setdefault(pod_set, {}), node, 1)

    def give_place(self, pod: Pod, pod_set: str, node: str) -> None:
        """A pod has lost its place; the exact inverse of `take_place`."""
        self.moment += 1
        self.with_devices -= asks_for_devices(pod)
        match pod.state:
            case Evicting():
                return
            case Pending():
                _add(self.pending, pod_set, pod)
            case _:
                pass
        _remove(self.active, pod_set, pod)
        nodes = self.nodes[pod_set]
        _count(nodes, node, -1)
        if not nodes:
            del self.nodes[pod_set]

    def nominate(self, pod_set: str, change: int) -> None:
        """More of the pods that have a place wait for others to leave it, or fewer."""
        _count(self.nominated, pod_set, change)


def _add(of_set: dict[str, OrderedPods], pod_set: str, pod: Pod) -> None:
    of_set.setdefault(pod_set, OrderedPods()).add(pod)


def _remove(of_set: dict[str, OrderedPods], pod_set: str, pod: Pod) -> None:
    pods = of_set[pod_set]
    pods.remove(pod)
    if not pods:
        del of_set[pod_set]


def _count(counts: dict[str, int], key: str, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]

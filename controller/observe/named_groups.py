"""Which group each pod says it is in, and whether the pods of a group name different queues.

The references of a pod to its owners may change while it runs, and so may its group. If pods of
different queues were one group, one queue would pay for all of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from controller.observe.member import group_id_of
from controller.observe.pod import ObservedPod


class NamedGroups:
    """The pods that name a queue, by the group that they say they are in."""

    def __init__(self) -> None:
        self._group_of: dict[str, str] = {}
        self._pods: dict[str, dict[str, ObservedPod]] = {}
        self._queues: dict[str, Counter[str | None]] = {}
        """By group: how many pods name each queue."""

    def is_mixed(self, group: str) -> bool:
        """Whether the pods of a group name different queues."""
        return len(self._queues.get(group, ())) > 1

    def pods(self, group: str) -> Iterable[ObservedPod]:
        """The pods that say they are in a group."""
        return list(self._pods.get(group, {}).values())

    def put(self, pod: ObservedPod) -> list[str]:
        """Adds or updates a pod; the groups that have become mixed, or are so no longer."""
        group = group_id_of(pod).key
        touched = dict.fromkeys((group, self._group_of.get(pod.key, group)))
        before = {each: self.is_mixed(each) for each in touched}
        self._remove(pod.key)
        self._group_of[pod.key] = group
        self._pods.setdefault(group, {})[pod.key] = pod
        self._queues.setdefault(group, Counter())[pod.queue] += 1
        return list(self._turned(before))

    def remove(self, pod: str) -> list[str]:
        """Removes a pod, if it is known; the groups that are mixed no longer."""
        group = self._group_of.get(pod)
        if group is None:
            return []
        before = {group: self.is_mixed(group)}
        self._remove(pod)
        return list(self._turned(before))

    def _remove(self, pod: str) -> None:
        group = self._group_of.pop(pod, None)
        if group is None:
            return
        pods, queues = self._pods[group], self._queues[group]
        queue = pods.pop(pod).queue
        queues[queue] -= 1
        if not queues[queue]:
            del queues[queue]
        if not pods:
            del self._pods[group], self._queues[group]

    def _turned(self, before: dict[str, bool]) -> Iterator[str]:
        return (group for group, was_mixed in before.items() if self.is_mixed(group) != was_mixed)

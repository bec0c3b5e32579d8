"""When a pod of a group was evicted last, also of a group that has begun again since.

A pod of a ReplicaSet is a group by itself, and so is a Job with one pod: the pod that takes the
place of an evicted one is another group, or begins its group again. It would have the rights of
a group that was never evicted, such as to move again at once.
"""

from typing import Final, NamedTuple

from controller.observe.pod import ObservedPod

_REMEMBERED: Final = 86_400.0
"""Seconds for which evictions are remembered of owners."""


class _OwnerInNamespace(NamedTuple):
    """Users may name the owners of others, so the namespace counts."""

    namespace: str
    uid: str


class LastEvictions:
    """By group, and by owner for the groups of the pods that it makes later. Unix times."""

    def __init__(self) -> None:
        self._of_group: dict[str, float] = {}
        self._of_owner: dict[_OwnerInNamespace, float] = {}
        """The earliest first."""

    def __len__(self) -> int:
        return len(self._of_group) + len(self._of_owner)

    def of(self, group: str) -> float | None:
        """When a pod of a group was evicted last."""
        return self._of_group.get(group)

    def note(self, group: str, pod: ObservedPod, now: float) -> None:
        """Records that a pod of a group is evicted."""
        self._of_group[group] = now
        owner = _owner_of(pod)
        if owner is not None:
            self._of_owner.pop(owner, None)
            self._of_owner[owner] = now
        while self._of_owner:
            oldest = next(iter(self._of_owner))
            if self._of_owner[oldest] + _REMEMBERED > now:
                break
            del self._of_owner[oldest]

    def begin(self, group: str, pod: ObservedPod) -> None:
        """Records that a group begins with a pod."""
        owner = _owner_of(pod)
        if owner is not None and owner in self._of_owner:
            known = self._of_group.get(group, 0.0)
            self._of_group[group] = max(known, self._of_owner[owner])

    def end(self, group: str) -> None:
        """Records that a group has no pods any more, and no PodGroup."""
        self._of_group.pop(group, None)


def _owner_of(pod: ObservedPod) -> _OwnerInNamespace | None:
    return None if pod.owner is None else _OwnerInNamespace(pod.namespace, pod.owner.uid)

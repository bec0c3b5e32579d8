"""The roster: which pods are in which group, and what each group is, kept up to date."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from controller.api.pod_group import DeclaredGroup
from controller.api.queue import DeclaredQueue
from controller.engine.model.group import Group, PodSet, SchedulerRefusal, SubGroup, least_pods
from controller.engine.model.queue import QUEUE_LABEL
from controller.observe.declared_queues import DeclaredQueues
from controller.observe.grouping import RefusedGroup, group_of, may_be_evicted
from controller.observe.last_evictions import LastEvictions
from controller.observe.member import (
    GroupId,
    NamedGroup,
    OwnedGroup,
    ReplicaGroup,
    SinglePod,
    group_id_of,
)
from controller.observe.minimum import in_force
from controller.observe.named_groups import NamedGroups
from controller.observe.owner import Owner, OwnerKey
from controller.observe.pod import ObservedPod
from controller.observe.set_aside import SetAsideObjects

GROUPS: Final = "groups"
"""What groups are called among the objects that are set aside."""
Made = TypeVar("Made")
Otherwise = TypeVar("Otherwise")
_DEFECT: Final = RefusedGroup(
    "the controller failed when it read the group, as its log says; change or delete its pods, and "
    "report the defect"
)
_MIXED: Final = RefusedGroup(
    "the pods of its group name different queues; give all of them one value of the label "
    f"{QUEUE_LABEL}"
)


class GroupRegistry:
    """The groups of the pods that name a queue. Used by one thread."""

    def __init__(self, set_aside: SetAsideObjects | None = None) -> None:
        """set_aside: keeps groups that cannot be made of their pods."""
        self._set_aside = SetAsideObjects() if set_aside is None else set_aside
        self.groups: dict[str, Group] = {}
        """By key."""
        self.refused: dict[str, str] = {}
        """The groups that cannot be decided on, by key: why, and the remedy."""
        self.turned: dict[str, None] = {}
        """The groups that can be decided on since the last look at this, or no longer."""
        self.declared: dict[str, DeclaredGroup] = {}
        """The PodGroups by `namespace/name`."""
        self.queues = DeclaredQueues()
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """The labels of each namespace."""
        self._owners: dict[OwnerKey, Owner] = {}
        self._group_of: dict[str, str] = {}
        """The key of the group of each pod."""
        self._ids: dict[str, GroupId] = {}
        """By key, as long as the group has pods."""
        self._of_owner: dict[OwnerKey, dict[str, None]] = {}
        """The keys of the groups that depend on each owner."""
        self._members: dict[str, dict[str, ObservedPod]] = {}
        self._named = NamedGroups()
        self._roots: dict[str, SubGroup] = {}
        """By group: what it needed when it could be decided on last."""
        self._stale_since: dict[str, float] = {}
        self._evictions = LastEvictions()
        self._device_evictions: dict[str, float] = {}
        """By group: when a pod of it was evicted last for a device, if none has started since."""
        self._scheduler_refusals: dict[str, SchedulerRefusal] = {}
        self._changed: dict[str, None] = {}

    def group_of(self, pod: str) -> str | None:
        """The key of the group of a pod."""
        return self._group_of.get(pod)

    def pods(self) -> Iterator[tuple[ObservedPod, str]]:
        """All pods, with the keys of their groups."""
        for group, members in self._members.items():
            for pod in members.values():
                yield pod, group

    def members(self, group: str) -> list[ObservedPod]:
        """The pods of a group."""
        return list(self._members.get(group, {}).values())

    def pods_of(self, group: str) -> list[str]:
        """The keys of the pods of a group."""
        return list(self._members.get(group, {}))

    def put(self, pod: ObservedPod) -> None:
        """Adds or updates a pod that names a queue."""
        turned = self._named.put(pod)
        self._place(pod)
        self._regroup(turned)

    def remove(self, key: str) -> None:
        """Removes a pod, if it is known."""
        turned = self._named.remove(key)
        self._leave(key)
        self._regroup(turned)

    def declare(self, key: str, declared: DeclaredGroup | None) -> None:
        """Applies a PodGroup, or its removal."""
        before = self.declared.pop(key, None)
        if declared is not None:
            self.declared[key] = declared
        if before != declared:
            self._changed[key] = None

    def put_owner(self, key: OwnerKey, owner: Owner | None) -> None:
        """Applies an owner, or its removal."""
        before = self._owners.pop(key, None)
        if owner is not None:
            self._owners[key] = owner
        if before != owner:
            self._changed |= self._of_owner.get(key, {})

    def put_queue(self, name: str, queue: DeclaredQueue | None) -> bool:
        """Applies a Queue, or its removal; whether more than its status is new."""
        if not self.queues.put(name, queue):
            return False
        self._changed |= dict.fromkeys(self._members)
        return True

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Applies the labels of a namespace, or its removal."""
        if labels is None:
            self.namespaces.pop(name, None)
        elif self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self._changed |= {
                group: None for group in self._members if group.startswith(f"{name}/")
            }

    def note_evicted(self, pod: ObservedPod, now: float) -> None:
        """Records that a pod is evicted at a Unix time."""
        group = self._group_of.get(pod.key)
        if group is not None:
            self._evictions.note(group, pod, now)
            self._changed[group] = None

    def note_device_eviction(self, pod: ObservedPod, now: float) -> None:
        """Records that a pod is evicted at a Unix time for a taint of its device."""
        group = self._group_of.get(pod.key)
        if group is not None:
            self._device_evictions[group] = now
            self._changed[group] = None

    def note_refusal(self, group: str, refusal: SchedulerRefusal | None) -> None:
        """Applies what kube-scheduler has refused of a group, or that this is over."""
        if refusal is not None and group in self._members:
            self._scheduler_refusals[group] = refusal
        elif self._scheduler_refusals.pop(group, None) is None:
            return
        self._changed[group] = None

    def note_stale(self, stale: Iterable[str], now: float) -> None:
        """Applies all groups that have fewer pods than they need, but some."""
        since = {group: self._stale_since.get(group, now) for group in stale}
        self._changed |= dict.fromkeys(since.keys() ^ self._stale_since.keys())
        self._stale_since = since

    @property
    def has_changed(self) -> bool:
        """Whether there is something new for `refresh`."""
        return bool(self._changed)

    def refresh(self) -> dict[str, Group | None]:
        """The groups that are not as at the last call; None for those that are no more."""
        changed, self._changed = self._changed, {}
        found: dict[str, Group | None] = {}
        for key in changed:
            made, before = self._attempt(key, self._made, _DEFECT), self.groups.get(key)
            was_refused = self.refused.pop(key, None) is not None
            if was_refused != isinstance(made, RefusedGroup):
                self.turned[key] = None
            if isinstance(made, RefusedGroup):
                self.refused[key] = made.reason
                # What runs of it stays in the account of its queue, and may be evicted as before.
                is_known = key in self._members
                made = self._attempt(key, self._charged, None) if is_known else None
            if made is None:
                self.groups.pop(key, None)
                self._set_aside.forget(GROUPS, key)
                if key not in self._members and key not in self.declared:
                    self._evictions.end(key)
            else:
                self.groups[key] = made
            if made != before:
                found[key] = made
        return found

    def refusal(self, queue: str, namespace: str) -> str | None:
        """Why a namespace may not use a queue; None if it may."""
        labels = self.namespaces.get(namespace, {})
        return self.queues.namespace_refusal(queue, namespace, labels)

    def _place(self, pod: ObservedPod) -> None:
        """Puts a pod into the group that it names; by itself, if its pods name different queues."""
        group = group_id_of(pod)
        if self._named.is_mixed(group.key):
            group = SinglePod(pod.namespace, pod.name)
        if self._group_of.get(pod.key, group.key) != group.key:
            self._leave(pod.key)
        self._forget_id(group.key)
        self._ids[group.key] = group
        if (owner := _owner_of(group)) is not None:
            self._of_owner.setdefault(owner, {})[group.key] = None
        self._group_of[pod.key] = group.key
        if group.key not in self._members:
            self._evictions.begin(group.key, pod)
        members = self._members.setdefault(group.key, {})
        self._note_device(group.key, members.get(pod.key), pod)
        members[pod.key] = pod
        self._changed[group.key] = None

    def _note_device(self, group: str, before: ObservedPod | None, pod: ObservedPod) -> None:
        """Records whether a pod of a group has begun to leave its device, or to run."""
        if pod.device_eviction is not None:
            if before is None or before.device_eviction is None:
                self._device_evictions[group] = pod.device_eviction
        elif before is not None and before.scheduled is None and pod.scheduled is not None:
            self._device_evictions.pop(group, None)

    def _leave(self, pod: str) -> None:
        """Takes a pod out of its group."""
        group = self._group_of.pop(pod, None)
        if group is not None:
            members = self._members[group]
            del members[pod]
            if not members:
                del self._members[group]
                self._roots.pop(group, None)
                self._scheduler_refusals.pop(group, None)
                self._device_evictions.pop(group, None)
                self._forget_id(group)
            self._changed[group] = None

    def _regroup(self, groups: Iterable[str]) -> None:
        """Groups the pods again of groups whose pods name different queues now, or no longer."""
        for group in groups:
            self._changed[group] = None
            for pod in self._named.pods(group):
                self._place(pod)
                self.turned[self._group_of[pod.key]] = None

    def _forget_id(self, group: str) -> None:
        known = self._ids.pop(group, None)
        owner = None if known is None else _owner_of(known)
        if owner is not None:
            groups = self._of_owner[owner]
            del groups[group]
            if not groups:
                del self._of_owner[owner]

    def _charged(self, key: str) -> Group:
        """The pods of a group that cannot be decided on, as one that needs none of them."""
        members = self.members(key)
        alive = [pod for pod in members if pod.started and pod.succeeded is None]
        oldest = min(alive or members, key=lambda pod: (pod.created, pod.key))
        return Group(
            key=key,
            queue=oldest.queue or "",
            root=PodSet("", 0),
            priority=self.queues.priority(oldest.queue or "", oldest.priority),
            preemptible=not alive or may_be_evicted(alive),
            moves=all(pod.owner is not None for pod in alive),
            created=oldest.created,
        )

    def _attempt(
        self, key: str, make: Callable[[str], Made], otherwise: Otherwise
    ) -> Made | Otherwise:
        """What is made of a group; something else if a defect prevents it."""
        made: list[Made] = []
        self._set_aside.attempt(GROUPS, key, make.__name__, lambda: made.append(make(key)))
        return made[0] if made else otherwise

    def _made(self, key: str) -> Group | RefusedGroup | None:
        if self._named.is_mixed(key):
            return _MIXED
        group = self._ids.get(key)
        if group is None:
            return None
        declared = self.declared.get(key) if isinstance(group, NamedGroup) else None
        owner_key, members = _owner_of(group), self.members(key)
        if self._named.is_mixed(group_id_of(members[0]).key):
            return _MIXED
        owner = None if owner_key is None else self._owners.get(owner_key)
        made = group_of(group, members, declared, owner)
        if isinstance(made, RefusedGroup):
            return made
        refusal = self.refusal(made.queue, members[0].namespace)
        refusal = refusal or self.queues.priority_refusal(made.queue, made.priority)
        if refusal is not None:
            return RefusedGroup(refusal)
        root = in_force(
            made.root, self._roots.get(key), members, None if owner is None else owner.shape
        )
        self._roots[key] = root
        return replace(
            made,
            root=root,
            started=_started(root, members),
            stale_since=self._stale_since.get(key),
            evicted=self._evictions.of(key),
            device_eviction=self._device_eviction(key),
            refusal=self._scheduler_refusals.get(key),
        )

    def _device_eviction(self, key: str) -> float | None:
        """When a pod of a group was evicted last for a device; None if another has started since.

        A leader that has just begun may see both at once.
        """
        at = self._device_evictions.get(key)
        if at is None:
            return None
        staying = (pod for pod in self._members[key].values() if pod.device_eviction is None)
        has_started = any(pod.scheduled is not None and pod.scheduled > at for pod in staying)
        return None if has_started else at


def _owner_of(group: GroupId) -> OwnerKey | None:
    """The owner whose object is read for a group."""
    return group.owner if isinstance(group, OwnedGroup | ReplicaGroup) else None


def _started(root: SubGroup, members: Iterable[ObservedPod]) -> float | None:
    """When the oldest of its pods was bound, if as many run as the group needs, or needed at first.

    Neither a minimum that rises later nor a pod that is replaced makes a group start again: it
    would be safe once more for the min-runtime of its queue, and its run time would begin again.
    """
    bound = sorted(
        (pod.scheduled, pod.started_with or math.inf)
        for pod in members
        if pod.scheduled is not None and pod.succeeded is None and pod.deleted is None
    )
    if not bound:
        return None
    _, at_first = bound[0]
    least = max(min(least_pods(root), at_first), 1)
    return bound[0][0] if len(bound) >= least else None

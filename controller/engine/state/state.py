"""The mirrored state of a cluster: a snapshot that is kept up to date, event by event.

What decisions need is computed from what changes, and what was refused is asked again only after
something relevant has changed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from carina_dra.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from controller.engine.model.group import Group
from controller.engine.model.node import ClusterNode, NodeRelease
from controller.engine.model.plan import CarriedOver
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import Snapshot
from controller.engine.model.volume import StorageObject
from controller.engine.state.asking import replaceable
from controller.engine.state.members import GroupPods
from controller.engine.state.memory import EngineMemory
from controller.engine.state.occupancy import Occupancy, discard
from controller.engine.state.queue_tree import QueueTree
from controller.engine.state.recount import Recount
from controller.engine.state.requests import Requests
from controller.engine.state.spare_parts import SpareParts
from controller.engine.state.tainted import TaintedDevices

_DeviceObject: TypeAlias = ResourceSlice | DeviceClass | DeviceTaintRule


class State:
    """A cluster with its queues, groups and pods. Used by one thread at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.occupancy = Occupancy(snapshot)
        self.now = snapshot.now
        self.settings = snapshot.settings
        self.topologies = snapshot.topologies
        self.usage = snapshot.usage
        self.waiting: set[str] = set()
        """The groups with pods that wait for a place."""
        self.touched: set[str] = set()
        """The groups of which something has changed since the last cycle."""
        self.released: dict[str, None] = {}
        """The nodes whose devices are released."""
        self.bereft: dict[str, None] = {}
        """The groups of which a pod was evicted for a taint of its device (`device_eviction`)."""
        self._replaceable: dict[str, int] = {}
        """By claim: how many devices it has that might get fewer elsewhere."""
        self._devices_changed = True
        self._recount = Recount()
        self.requests = Requests(self.occupancy)
        self.spare_parts = SpareParts(self.occupancy)
        self.tainted = TaintedDevices(self.occupancy.cluster, self.occupancy.claims)
        self._queues: dict[str, Queue] = {}
        self._memory = EngineMemory(snapshot.memory)
        self._load(snapshot)
        self.memory = snapshot.memory  # what is remembered holds for the snapshot as a whole
        self.occupancy.journal.forget()

    def _load(self, snapshot: Snapshot) -> None:
        for device_class in snapshot.classes:
            self.occupancy.feed.put(device_class)
        for rule in snapshot.rules:
            self.occupancy.feed.put(rule)
        self.tainted.note_rules()
        for published in snapshot.slices:
            self.occupancy.feed.put(published)
            self.tainted.note_slice(None, published)
        for node in snapshot.nodes:
            self.put_node(node)
        self.put_queues(snapshot.queues)
        for claim in snapshot.claims:
            self.put_claim(claim)
        for group in snapshot.groups:
            self.put_group(group)
        for pod in snapshot.pods:
            self.put_pod(pod)

    def snapshot(self) -> Snapshot:
        """The snapshot of the present, from which an equal state can be made."""
        return Snapshot(
            now=self.now,
            nodes=tuple(self.occupancy.nodes.values()),
            slices=tuple(self.occupancy.cluster.slices.values()),
            classes=tuple(self.occupancy.feed.classes.values()),
            rules=tuple(self.occupancy.cluster.rules.values()),
            claims=tuple(self.occupancy.claims.values()),
            queues=tuple(self._queues.values()),
            groups=tuple(self.occupancy.groups.values()),
            pods=tuple(self.occupancy.pods.values()),
            topologies=self.topologies,
            budgets=self.occupancy.budgets,
            usage=self.usage,
            namespaces=self.occupancy.namespaces,
            storage=self.occupancy.volumes.storage(),
            features=self.occupancy.cluster.features,
            settings=self.settings,
            memory=self.memory,
        )

    def put_node(self, node: ClusterNode) -> None:
        """Adds or updates a node."""
        if self.occupancy.nodes.get(node.name) != node:
            self._ask_again()
            self._notice_devices()
            self.occupancy.put_node(node)
            self.released.pop(node.name, None)
            if node.release is not NodeRelease.NONE:
                self.released[node.name] = None

    def remove_node(self, name: str) -> None:
        """Removes a node, if it is known; the pods on it keep their place until they are gone."""
        if name in self.occupancy.nodes:
            self._ask_again()
            self._notice_devices()
            self.occupancy.remove_node(name)
            self.released.pop(name, None)

    def put_devices(self, watched: _DeviceObject) -> None:
        """Adds or updates what devices there are."""
        before = self._known(watched)
        if before is not None and before.spec == watched.spec:
            return
        self._ask_again()
        self._notice_devices(before, watched)
        self.occupancy.feed.put(watched)
        self._note(before, watched)

    def remove_devices(self, watched: _DeviceObject) -> None:
        """Applies that such an object was deleted."""
        self._ask_again()
        before = self._known(watched)
        self._notice_devices(before)
        self.occupancy.feed.remove(watched)
        self._note(before, None)

    def _note(self, before: _DeviceObject | None, after: _DeviceObject | None) -> None:
        """Has what follows from devices follow a change of an object."""
        match after or before:
            case DeviceClass():
                self.occupancy.devices.forget_classes()
            case DeviceTaintRule():
                self.tainted.note_rules()
            case ResourceSlice():
                versions = (before, after)
                self.tainted.note_slice(
                    *(
                        version if isinstance(version, ResourceSlice) else None
                        for version in versions
                    )
                )
            case None:
                pass

    def set_exclusive(self, *, exclusive: bool) -> None:
        """Applies whether GPUs are for the claims only that are allocated by a plan."""
        if self.settings.exclusive != exclusive:
            self.settings = replace(self.settings, exclusive=exclusive)
            self._ask_again()

    def _known(self, watched: _DeviceObject) -> _DeviceObject | None:
        """The object of its name as it is in the state."""
        name = watched.metadata.name
        match watched:
            case ResourceSlice():
                return self.occupancy.cluster.slices.get(name)
            case DeviceClass():
                return self.occupancy.feed.classes.get(name)
            case DeviceTaintRule():
                return self.occupancy.cluster.rules.get(name)
        assert_never(watched)

    def put_queues(self, queues: Iterable[Queue]) -> None:
        """Replaces all queues."""
        self._queues = {queue.name: queue for queue in queues}
        self._ask_again()
        self._charge_all_again()

    def _charge_all_again(self) -> None:
        """Charges the present queues with all that pods have and ask for."""
        pods = list(self.occupancy.pods.values())
        for pod in pods:
            self._detach(pod)
        self.occupancy.set_tree(QueueTree(self._queues.values()))
        for pod in pods:
            self._attach(pod)
        self.occupancy.journal.forget()

    def put_group(self, group: Group) -> None:
        """Adds or updates a group."""
        before = self.occupancy.groups.get(group.key)
        if before == group:
            return
        if group.device_eviction is None:
            self.bereft.pop(group.key, None)
        else:
            self.bereft[group.key] = None
        if before is not None and _differ_in_history_only(before, group):
            self.occupancy.groups[group.key] = group
            self._touch(group.key)
            return
        if before is not None:
            self._ask_again()
        pods = [self.occupancy.pods[pod] for pod in self._pods_of(group.key)]
        for pod in pods:
            self._detach(pod)
        self.occupancy.groups[group.key] = group
        for pod in pods:
            self._attach(pod)
        self._touch(group.key)
        self.occupancy.journal.forget()

    def remove_group(self, key: str) -> None:
        """Removes a group, if it is known; no queue is responsible for its pods any more."""
        if key in self.occupancy.groups:
            pods = [self.occupancy.pods[pod] for pod in self._pods_of(key)]
            for pod in pods:
                self._detach(pod)
            del self.occupancy.groups[key]
            self.bereft.pop(key, None)
            for pod in pods:
                self._attach(pod)
            self._touch(key)
            self._ask_again()
            self.occupancy.journal.forget()

    def put_pod(self, pod: Pod) -> None:
        """Adds or updates a pod."""
        before = self.occupancy.pods.get(pod.key)
        if before == pod:
            return
        if before is not None:
            self._detach(before)
            if not isinstance(before.state, Pending | Gated):
                self._ask_again()
        self._attach(pod)
        if pod.key in self.occupancy.holds and self.occupancy.neighbours.is_awaited(pod):
            self._ask_again()
        self.occupancy.journal.forget()

    def remove_pod(self, key: str) -> None:
        """Removes a pod, if it is known."""
        pod = self.occupancy.pods.get(key)
        if pod is not None:
            self._detach(pod)
            if not isinstance(pod.state, Pending | Gated):
                self._ask_again()
            self.occupancy.journal.forget()

    def put_claim(self, claim: ResourceClaim) -> None:
        """Adds or updates a claim."""
        before = self.occupancy.claims.get(claim.key)
        if before == claim:
            return
        if before is not None and _ask_and_have_the_same(before, claim):
            self.occupancy.claims[claim.key] = claim
            for pod in self.occupancy.referring.get(claim.key, ()):
                group = self.occupancy.pods[pod].group
                if group is not None:
                    self._touch(group)
            return
        if before is not None and before.status.allocation not in (None, claim.status.allocation):
            self._ask_again()  # one that gets devices leaves less to others, which helps nobody
        self._replace_claim(claim.key, claim)

    def remove_claim(self, key: str) -> None:
        """Removes a claim, if it is known; its devices are free."""
        if key in self.occupancy.claims:
            self._ask_again()
            self._replace_claim(key, None)

    def put_budgets(self, budgets: Mapping[str, int]) -> None:
        """Replaces how many pods each disruption budget still allows to be disrupted."""
        if budgets != self.occupancy.budgets:
            self._ask_again()
            self.occupancy.budgets = dict(budgets)

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Adds or updates the labels of a namespace; None if it is gone."""
        if self.occupancy.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.occupancy.namespaces[name]
            self._keep_no_places_for(name)
        else:
            self.occupancy.namespaces[name] = labels
        gone = name if labels is None else None
        if self.occupancy.neighbours.forget_namespaces(
            gone
        ) | self.occupancy.leavers.forget_namespaces(gone):
            self._ask_again()

    def _keep_no_places_for(self, namespace: str) -> None:
        """Records that no pod will come for the places that are kept for a namespace."""
        kept = self.memory.kept_places
        left = tuple(place for place in kept if not place.pod.startswith(f"{namespace}/"))
        if len(left) < len(kept):
            self.memory = replace(self.memory, kept_places=left)
            self._ask_again()

    def put_storage(self, name: str, watched: StorageObject) -> bool:
        """Adds or updates what says where volumes can be; who waits for it is asked again.

        Whether it was another before.
        """
        pods = self.occupancy.volumes.put(name, watched)
        self._touch_all(pods or ())
        return pods is not None

    def remove_storage(self, kind: type[StorageObject], name: str) -> None:
        """Applies that such an object is gone."""
        self._touch_all(self.occupancy.volumes.remove(kind, name))

    def most_to_spare(self) -> int:
        """How many devices claims could have at most in addition, if nobody is evicted for good."""
        return self.occupancy.devices.spare() + sum(self._replaceable.values())

    def refresh(self) -> None:
        """Counts again what queues have and ask for, where devices or classes have changed."""
        if not self._devices_changed:
            return
        self._devices_changed = False
        cordoned = [name for name, node in self.occupancy.nodes.items() if node.unschedulable]
        self.occupancy.devices.leave_out(cordoned)
        self.occupancy.asking.forget_claims()
        have = self._recount.take(self.occupancy.tree.resources)
        self.requests.wish_again(have)
        if self.occupancy.asking.look_again():
            touched, memory = set(self.touched), self._memory.copy()
            self._charge_all_again()
            self.touched &= touched  # the groups are as they were
            self._memory = memory
        elif self.occupancy.asking.depends_on_devices:
            for key in have:
                self.occupancy.charge_again(key)
            self.requests.count_again(have)
            self.occupancy.journal.forget()

    def advance(self, now: float) -> None:
        """Sets the time, in seconds; what was refused until now may be possible."""
        self.now = now
        wake = self.memory.wake
        if wake is not None and now >= wake:
            self._ask_again()

    def _notice_devices(self, *changed: _DeviceObject | None) -> None:
        """What claims have and ask for may count differently now."""
        self._devices_changed = True
        for one in changed:
            self._recount.note(one)
        self.occupancy.devices.forget_published()
        self.occupancy.asking.forget_claims()

    def _ask_again(self) -> None:
        """Something that was refused may be possible now."""
        self.occupancy.neighbours.all_are_asked_again()
        self._memory.forget_refusals()

    @property
    def memory(self) -> CarriedOver:
        """What the last cycle has left, without what has changed since."""
        return self._memory.memory

    @memory.setter
    def memory(self, memory: CarriedOver) -> None:
        self._memory = EngineMemory(memory)

    def _touch(self, group: str) -> None:
        self.touched.add(group)
        self._memory.forget(group)

    def _touch_all(self, pods: Iterable[str]) -> None:
        for key in pods:
            group = self.occupancy.pods[key].group
            if group is not None:
                self._touch(group)

    def _pods_of(self, group: str) -> Iterator[str]:
        members = self.occupancy.members.get(group)
        if members is not None:
            for pods in list(members.by_set.values()):
                yield from list(pods)

    def _attach(self, pod: Pod) -> None:
        self.occupancy.pods[pod.key] = pod
        self.occupancy.volumes.refer(pod)
        for claim in pod.claims:
            self.occupancy.referring.setdefault(claim, {})[pod.key] = None
        if pod.group is not None:
            members = self.occupancy.members.setdefault(pod.group, GroupPods())
            members.by_set.setdefault(pod.pod_set, {})[pod.key] = None
            self._touch(pod.group)
        match pod.state:
            case Pending():
                if pod.group is not None:
                    self.occupancy.members[pod.group].wait(pod, self.occupancy.pod_set_of(pod))
                    self.waiting.add(pod.group)
                self.requests.add(pod)
            case Placed(node=node) | Evicting(node=node, stuck=True):
                # Who does not end is charged: a queue could exceed its limits by deleting pods.
                self.requests.add(pod)
                self.occupancy.occupy(pod, node)
            case Evicting(node=node, charged=charged):
                if charged:
                    self.requests.add(pod)
                self.occupancy.leave(pod, node)
            case Gated() | Ended():
                pass
            case _:
                assert_never(pod.state)
        self.requests.count_claims_again(pod)

    def _detach(self, pod: Pod) -> None:
        self._end_state(pod)
        for claim in pod.claims:
            discard(self.occupancy.referring, claim, pod.key)
        if pod.group is not None:
            members = self.occupancy.members[pod.group]
            discard(members.by_set, pod.pod_set, pod.key)
            if not members.by_set:
                del self.occupancy.members[pod.group]
            self._touch(pod.group)
        self.occupancy.volumes.unrefer(pod)
        del self.occupancy.pods[pod.key]

    def _end_state(self, pod: Pod) -> None:
        """Takes from a pod what follows from its state."""
        match pod.state:
            case Pending():
                self.requests.remove(pod)
                if pod.group is not None:
                    members = self.occupancy.members[pod.group]
                    members.wait_no_more(pod, self.occupancy.pod_set_of(pod))
                    if not members.pending:
                        self.waiting.discard(pod.group)
            case Placed() | Evicting(stuck=True):
                self.requests.remove(pod)
                self.occupancy.vacate(pod)
            case Evicting(node=node, charged=charged):
                if charged:
                    self.requests.remove(pod)
                self.occupancy.stay(pod, node)
            case Gated() | Ended():
                pass
            case _:
                assert_never(pod.state)
        self.requests.count_claims_again(pod)

    def _replace_claim(self, key: str, claim: ResourceClaim | None) -> None:
        pods = [self.occupancy.pods[pod] for pod in list(self.occupancy.referring.get(key, ()))]
        for pod in pods:
            self._detach(pod)
        self.occupancy.cluster.release(key)
        self._recount.follow(key, self.occupancy.claims.get(key), claim)
        self.tainted.follow(key, self.occupancy.claims.get(key), claim)
        if claim is None:
            del self.occupancy.claims[key]
            self._replaceable.pop(key, None)
        else:
            self.occupancy.claims[key] = claim
            self._set_replaceable(claim)
            self.occupancy.settle(key)
        for pod in pods:
            self._attach(pod)
        self.occupancy.journal.forget()

    def _set_replaceable(self, claim: ResourceClaim) -> None:
        count = replaceable(claim)
        if count:
            self._replaceable[claim.key] = count
        else:
            self._replaceable.pop(claim.key, None)


def _differ_in_history_only(before: Group, after: Group) -> bool:
    """Whether two states of a group differ in nothing but what has happened to it."""
    return after == replace(
        before,
        started=after.started,
        evicted=after.evicted,
        device_eviction=after.device_eviction,
        stale_since=after.stale_since,
    )


def _ask_and_have_the_same(before: ResourceClaim, after: ResourceClaim) -> bool:
    """Whether two states of a claim differ in nothing but its users, its labels and the like."""
    return before.spec == after.spec and before.status.allocation == after.status.allocation

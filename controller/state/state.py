"""The mirrored state of a cluster: a snapshot that is kept up to date, and can be tried out.

What decisions need is computed from what changes. A pod that is being evicted has already left its
place here, so that it can be promised; `leaving` says who still holds something. All changes
between `mark` and `rollback` are undone exactly.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, assert_never

from carina_dra.placement.cluster import Cluster
from carina_dra.placement.feed import Feed
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from controller.model.group import Group
from controller.model.node import ClusterNode
from controller.model.plan import Memory
from controller.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod
from controller.model.queue import Queue
from controller.model.resource import Amounts, minus, plus
from controller.model.snapshot import Snapshot
from controller.state.accounts import Accounts
from controller.state.asking import Asking, replaceable
from controller.state.devices import Devices
from controller.state.journal import Journal
from controller.state.queue_tree import ROOT, QueueTree
from controller.state.room import NodeCapacity, Room

_DeviceObject: TypeAlias = ResourceSlice | DeviceClass | DeviceTaintRule


@dataclass(frozen=True, slots=True)
class Hold:
    """What a pod has on a node."""

    node: str
    queue: str
    """The queue that is charged; ROOT for a pod that no queue is responsible for."""


@dataclass(slots=True)
class Members:
    """The pods of a group, by pod set."""

    by_set: dict[str, dict[str, None]] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Those that wait for a place in the snapshot."""


class State:
    """A cluster with its queues, groups and pods. Used by one thread at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.settings = snapshot.settings
        self.topologies = snapshot.topologies
        self.usage = snapshot.usage
        self.journal = Journal()
        self.budgets = dict(snapshot.budgets)
        self.capacity = NodeCapacity()
        self.cluster = Cluster(snapshot.features)
        self._feed = Feed(self.cluster)
        self.devices = Devices(self.cluster, self._feed.classes)
        self.nodes: dict[str, ClusterNode] = {}
        self.rooms: dict[str, Room] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, Pod] = {}
        self.members: dict[str, Members] = {}
        self.holds: dict[str, Hold] = {}
        """The pods that have a place, here and now or as soon as others have left it."""
        self.on_node: dict[str, dict[str, None]] = {}
        """The pods that have a place on each node."""
        self.versions: dict[str, int] = {}
        """By node: how often pods have got a place there, or lost it."""
        self.leaving: dict[str, dict[str, None]] = {}
        """By node: the pods that are being evicted, but still hold what they have."""
        self.nominated: dict[str, dict[str, None]] = {}
        """By node: the pods that have a place as soon as others have left it."""
        self.users: dict[str, dict[str, None]] = {}
        """By claim: the pods that have a place and refer to it."""
        self._leavers: dict[str, dict[str, None]] = {}
        """By claim: the pods that are being evicted and refer to it."""
        self._referrers: dict[str, dict[str, None]] = {}
        """By claim: all pods that refer to it."""
        self._assigned: dict[str, Allocation] = {}
        """What claims get in a trial."""
        self._charges: dict[str, tuple[str, Amounts, bool]] = {}
        """By claim: the queue that is charged for it, and whether for a preemptible group."""
        self._replaceable: dict[str, int] = {}
        """By claim: how many devices it has that might get fewer elsewhere."""
        self._devices_changed = True
        self._requests: dict[str, tuple[str, Amounts]] = {}
        """By pod or claim: what counts as asked for, and in which queue."""
        self._counted: dict[str, str] = {}
        """By claim: the pod with which it counts as asked for."""
        self.tree = QueueTree(())
        self._queues: dict[str, Queue] = {}
        self.accounts = Accounts(self.tree, self.journal)
        self.asking = self._new_asking()
        self.waiting: set[str] = set()
        """The groups with pods that wait for a place."""
        self.touched: set[str] = set()
        """The groups of which something has changed since the last cycle."""
        self.node_moment = 0
        """How often nodes have changed."""
        self.memory = snapshot.memory
        self._load(snapshot)
        self.memory = snapshot.memory  # what is remembered holds for the snapshot as a whole
        self.journal.forget()

    def _load(self, snapshot: Snapshot) -> None:
        for device_class in snapshot.classes:
            self._feed.put(device_class)
        for rule in snapshot.rules:
            self._feed.put(rule)
        for published in snapshot.slices:
            self._feed.put(published)
        for node in snapshot.nodes:
            self.put_node(node)
        self.put_queues(snapshot.queues)
        for claim in snapshot.claims:
            self.put_claim(claim)
        for group in snapshot.groups:
            self.put_group(group)
        for pod in snapshot.pods:
            self.put_pod(pod)

    # Events.

    def put_node(self, node: ClusterNode) -> None:
        """Adds or updates a node."""
        before = self.nodes.get(node.name)
        if before == node:
            return
        self._ask_again()
        self.node_moment += 1
        self._devices_changed = True
        if before is not None:
            self.capacity.remove(before)
        self.capacity.add(node)
        self.nodes[node.name] = node
        self.cluster.put_node(node.node)
        self.rooms[node.name] = room = Room(node)
        for pod in self.on_node.setdefault(node.name, {}):
            room.take(self.pods[pod].needs)
        self.journal.forget()

    def remove_node(self, name: str) -> None:
        """Removes a node, if it is known; the pods on it keep their place until they are gone."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self._ask_again()
            self._devices_changed = True
            self.capacity.remove(node)
            self.node_moment += 1
            self.cluster.remove_node(name)
            del self.rooms[name]

    def put_devices(self, watched: _DeviceObject) -> None:
        """Adds or updates what devices there are."""
        self._ask_again()
        self._devices_changed = True
        self._feed.put(watched)
        if isinstance(watched, DeviceClass):
            self.devices.forget_classes()

    def remove_devices(self, watched: _DeviceObject) -> None:
        """Applies that such an object was deleted."""
        self._ask_again()
        self._devices_changed = True
        self._feed.remove(watched)
        if isinstance(watched, DeviceClass):
            self.devices.forget_classes()

    def put_queues(self, queues: Iterable[Queue]) -> None:
        """Replaces all queues."""
        self._queues = {queue.name: queue for queue in queues}
        self._ask_again()
        pods = list(self.pods.values())
        for pod in pods:
            self._detach(pod)
        self.tree = QueueTree(self._queues.values())
        self.accounts = Accounts(self.tree, self.journal)
        self.asking = self._new_asking()
        for pod in pods:
            self._attach(pod)
        self.journal.forget()

    def put_group(self, group: Group) -> None:
        """Adds or updates a group."""
        before = self.groups.get(group.key)
        if before == group:
            return
        if before is not None and not _differ_in_history_only(before, group):
            self._ask_again()
        pods = [self.pods[pod] for pod in self._pods_of(group.key)]
        for pod in pods:
            self._detach(pod)
        self.groups[group.key] = group
        for pod in pods:
            self._attach(pod)
        self._touch(group.key)
        self.journal.forget()

    def remove_group(self, key: str) -> None:
        """Removes a group, if it is known; no queue is responsible for its pods any more."""
        if key in self.groups:
            pods = [self.pods[pod] for pod in self._pods_of(key)]
            for pod in pods:
                self._detach(pod)
            del self.groups[key]
            for pod in pods:
                self._attach(pod)
            self._touch(key)
            self._ask_again()
            self.journal.forget()

    def put_pod(self, pod: Pod) -> None:
        """Adds or updates a pod."""
        before = self.pods.get(pod.key)
        if before == pod:
            return
        if before is not None:
            self._detach(before)
            if not isinstance(before.state, Pending | Gated):
                self._ask_again()
        self._attach(pod)
        self.journal.forget()

    def remove_pod(self, key: str) -> None:
        """Removes a pod, if it is known."""
        pod = self.pods.get(key)
        if pod is not None:
            self._detach(pod)
            if not isinstance(pod.state, Pending | Gated):
                self._ask_again()
            self.journal.forget()

    def put_claim(self, claim: ResourceClaim) -> None:
        """Adds or updates a claim."""
        before = self.claims.get(claim.key)
        if before == claim:
            return
        if before is not None and before.status.allocation not in (None, claim.status.allocation):
            self._ask_again()  # one that gets devices leaves less to others, which helps nobody
        self._replace_claim(claim.key, claim)

    def remove_claim(self, key: str) -> None:
        """Removes a claim, if it is known; its devices are free."""
        if key in self.claims:
            self._ask_again()
            self._replace_claim(key, None)

    def put_budgets(self, budgets: Mapping[str, int]) -> None:
        """Replaces how many pods each disruption budget still allows to be disrupted."""
        if budgets != self.budgets:
            self._ask_again()
            self.budgets = dict(budgets)

    # What a trial does.

    def mark(self) -> int:
        """The present, for `rollback`."""
        return self.journal.mark()

    def rollback(self, mark: int) -> None:
        """Undoes all that has been tried since a mark."""
        self.journal.rollback(mark)

    def place(self, key: str, node: str, allocations: Iterable[tuple[str, Allocation]]) -> None:
        """Gives a pod a place, and its claims what they have not got."""
        for claim, allocation in allocations:
            self._assign(claim, allocation)
        self._occupy(self.pods[key], node)

    def evict(self, key: str, *, here: bool) -> None:
        """Takes its place from a pod. If it is `here` already, it still holds what it has."""
        pod, hold = self.pods[key], self.holds[key]
        self._vacate(pod)
        if here:
            self._leave(pod, hold.node)
        elif key in self.nominated.get(hold.node, ()):
            self._set_nominated(key, hold.node, nominated=False)

    def put_back(self, key: str, node: str) -> None:
        """Gives an evicted pod its place back; the exact inverse of `evict`."""
        pod = self.pods[key]
        self._stay(pod, node)
        self._occupy(pod, node)

    def nominate(self, key: str) -> None:
        """Takes notice that a pod has its place only when others have left it."""
        self._set_nominated(key, self.holds[key].node, nominated=True)

    def disrupt(self, pod: Pod) -> bool:
        """Counts a disruption in the pod's budgets; false, and no change, if one is spent."""
        if any(self.budgets.get(name, 0) < 1 for name in pod.budgets):
            return False
        for name in pod.budgets:
            self._spend(name, 1)
            self.journal.record(partial(self._spend, name, -1))
        return True

    def undisrupt(self, pod: Pod) -> None:
        """Takes back that a pod was disrupted."""
        for name in pod.budgets:
            self._spend(name, -1)
            self.journal.record(partial(self._spend, name, 1))

    def hide(self, claim: str) -> None:
        """Has the devices of a claim free; to be rolled back."""
        held = self.cluster.allocation(claim)
        if held is not None:
            self.cluster.release(claim)
            self.journal.record(partial(self.cluster.allocate, claim, held))

    def show(self, claim: str) -> None:
        """Has the devices of a claim in use; to be rolled back."""
        allocation = self.claims[claim].status.allocation if claim in self.claims else None
        if allocation is not None and self.cluster.allocation(claim) is None:
            self.cluster.allocate(claim, allocation)
            self.journal.record(partial(self.cluster.release, claim))

    # What it is.

    def referrers(self, claim: str) -> int:
        """How many pods refer to a claim."""
        return len(self._referrers.get(claim, ()))

    def allocation(self, claim: str) -> Allocation | None:
        """What a claim has, or gets in the trial; None if all who use it are leaving."""
        assigned = self._assigned.get(claim)
        if assigned is not None:
            return assigned
        if claim in self._leavers and claim not in self.users:
            return None  # it is taken from the claim when the last of them is gone
        known = self.claims.get(claim)
        return None if known is None else known.status.allocation

    def is_pending(self, key: str) -> bool:
        """Whether a pod waits for a place, and has not got one in the trial."""
        return isinstance(self.pods[key].state, Pending) and key not in self.holds

    def device_count(self, pod: Pod) -> int:
        """How many devices the claims of a pod have."""
        found = map(self.allocation, pod.claims)
        return sum(len(one.devices.results) for one in found if one is not None)

    def device_count_before(self, pod: Pod) -> int:
        """How many devices the claims of a pod had in the snapshot."""
        claims = (self.claims[key] for key in pod.claims if key in self.claims)
        found = (claim.status.allocation for claim in claims)
        return sum(len(one.devices.results) for one in found if one is not None)

    def most_to_spare(self) -> int:
        """How many devices claims could have at most in addition, if nobody is evicted for good."""
        return self.devices.spare() + sum(self._replaceable.values())

    def asked_by(self, pod: Pod) -> Amounts:
        """What a pod and its claims without devices count in a queue, as asked."""
        amounts = self.asking.of_pod(pod.needs)
        for key in pod.claims:
            claim = self.claims.get(key)
            if claim is not None and not self.users.get(key) and self.allocation(key) is None:
                amounts = plus(amounts, self.asking.asked(claim))
        return amounts

    def charged_to(self, pod: Pod) -> Amounts:
        """What a pod that has a place counts, with the claims that nobody else would keep."""
        amounts = self.asking.of_pod(pod.needs)
        for key in pod.claims:
            charge = self._charges.get(key)
            if charge is not None and len(self.users[key]) == 1:
                amounts = plus(amounts, charge[1])
        return amounts

    def refresh(self) -> None:
        """Counts again what is asked for, where that depends on devices which have changed."""
        if not self._devices_changed:
            return
        self._devices_changed = False
        cordoned = [name for name, node in self.nodes.items() if node.unschedulable]
        self.devices.leave_out(cordoned)
        if self.asking.depends_on_devices:
            for key in list(self._counted):
                queue, _ = self._requests[key]
                self._uncount(key)
                self._count(key, queue, self._amounts(key))

    def advance(self, now: float) -> None:
        """Sets the time, in seconds; what was refused until now may be possible."""
        self.now = now
        wake = self.memory.wake
        if wake is not None and now >= wake:
            self._ask_again()

    # Events, one by one.

    def _new_asking(self) -> Asking:
        return Asking(
            self.tree,
            self.devices.classes,
            self.cluster.features,
            self.devices.least,
            self.devices.capacities,
        )

    def _ask_again(self) -> None:
        """Something that was refused may be possible now."""
        if self.memory.refusals or self.memory.cursors:
            kept = self.memory
            self.memory = Memory(kept.nominations, reservations=kept.reservations)

    def _touch(self, group: str) -> None:
        self.touched.add(group)
        if group in self.memory.refusals:
            refusals = {key: of for key, of in self.memory.refusals.items() if key != group}
            cursors = {key: of for key, of in self.memory.cursors.items() if key != group}
            self.memory = replace(self.memory, refusals=refusals, cursors=cursors)

    def _pods_of(self, group: str) -> Iterator[str]:
        members = self.members.get(group)
        if members is not None:
            for pods in list(members.by_set.values()):
                yield from list(pods)

    def _attach(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        for claim in pod.claims:
            self._referrers.setdefault(claim, {})[pod.key] = None
        if pod.group is not None:
            members = self.members.setdefault(pod.group, Members())
            members.by_set.setdefault(pod.pod_set, {})[pod.key] = None
            self._touch(pod.group)
        match pod.state:
            case Pending():
                if pod.group is not None:
                    self.members[pod.group].pending.add(pod.key)
                    self.waiting.add(pod.group)
                self._request(pod)
            case Placed(node=node):
                self._request(pod)
                self._occupy(pod, node)
            case Evicting(node=node, stuck=stuck):
                if stuck:
                    self._occupy(pod, node, charged=False)
                else:
                    self._leave(pod, node)
            case Gated() | Ended():
                pass
            case _:
                assert_never(pod.state)

    def _detach(self, pod: Pod) -> None:
        match pod.state:
            case Pending():
                self._forget_request(pod)
                if pod.group is not None:
                    pending = self.members[pod.group].pending
                    pending.discard(pod.key)
                    if not pending:
                        self.waiting.discard(pod.group)
            case Placed():
                self._forget_request(pod)
                self._vacate(pod)
            case Evicting(node=node, stuck=stuck):
                if stuck:
                    self._vacate(pod)
                else:
                    self._stay(pod, node)
            case Gated() | Ended():
                pass
            case _:
                assert_never(pod.state)
        for claim in pod.claims:
            _discard(self._referrers, claim, pod.key)
        if pod.group is not None:
            members = self.members[pod.group]
            _discard(members.by_set, pod.pod_set, pod.key)
            if not members.by_set:
                del self.members[pod.group]
            self._touch(pod.group)
        del self.pods[pod.key]

    def _replace_claim(self, key: str, claim: ResourceClaim | None) -> None:
        pods = [self.pods[pod] for pod in list(self._referrers.get(key, ()))]
        for pod in pods:
            self._detach(pod)
        self.cluster.release(key)
        if claim is None:
            del self.claims[key]
            self._replaceable.pop(key, None)
        else:
            self.claims[key] = claim
            self._set_replaceable(claim)
            self._settle(key)
        for pod in pods:
            self._attach(pod)
        self.journal.forget()

    def _set_replaceable(self, claim: ResourceClaim) -> None:
        count = replaceable(claim)
        if count:
            self._replaceable[claim.key] = count
        else:
            self._replaceable.pop(claim.key, None)

    def _request(self, pod: Pod) -> None:
        queue = self._queue_of(pod)
        self._count(pod.key, queue, self.asking.of_pod(pod.needs))
        for key in pod.claims:
            if key not in self._counted and key in self.claims:
                self._counted[key] = pod.key
                self._count(key, queue, self._amounts(key))

    def _forget_request(self, pod: Pod) -> None:
        self._uncount(pod.key)
        for key in pod.claims:
            if self._counted.get(key) == pod.key:
                del self._counted[key]
                self._uncount(key)
                others = (self.pods[one] for one in sorted(self._referrers[key]) if one != pod.key)
                for other in others:
                    if isinstance(other.state, Pending | Placed):
                        self._counted[key] = other.key
                        self._count(key, self._queue_of(other), self._amounts(key))
                        break

    def _count(self, key: str, queue: str, amounts: Amounts) -> None:
        self._requests[key] = queue, amounts
        self.accounts.request(queue, amounts)

    def _uncount(self, key: str) -> None:
        known = self._requests.pop(key, None)
        if known is not None:
            queue, amounts = known
            self.accounts.request(queue, minus(self.accounts.zero, amounts))

    def _amounts(self, key: str) -> Amounts:
        """What a claim counts, as it is asked or given."""
        claim, allocation = self.claims[key], self.allocation(key)
        if allocation is None:
            return self.asking.asked(claim)
        return self.asking.given(claim, allocation)

    def _queue_of(self, pod: Pod) -> str:
        group = None if pod.group is None else self.groups.get(pod.group)
        return group.queue if group is not None and group.queue in self.tree.queues else ROOT

    def _is_preemptible(self, pod: Pod) -> bool:
        group = None if pod.group is None else self.groups.get(pod.group)
        return group is None or group.preemptible

    # Changes that are undone.

    def _assign(self, claim: str, allocation: Allocation) -> None:
        self._assigned[claim] = allocation
        self.journal.record(partial(self._assigned.pop, claim))

    def _unassign(self, claim: str) -> None:
        allocation = self._assigned.pop(claim)
        self.journal.record(partial(self._assigned.__setitem__, claim, allocation))

    def _occupy(self, pod: Pod, node: str, *, charged: bool = True) -> None:
        queue, preemptible = self._queue_of(pod) if charged else ROOT, self._is_preemptible(pod)
        self._take_place(pod, Hold(node, queue))
        self.journal.record(partial(self._give_place, pod))
        self.accounts.take(queue, self.asking.of_pod(pod.needs), preemptible=preemptible)
        for claim in pod.claims:
            self._add(self.users, claim, pod.key)
            self._settle(claim)
            if claim not in self._charges and claim in self.claims:
                self._charge(claim, queue, preemptible=preemptible)

    def _vacate(self, pod: Pod) -> None:
        hold = self.holds[pod.key]
        self._give_place(pod)
        self.journal.record(partial(self._take_place, pod, hold))
        amounts = self.asking.of_pod(pod.needs)
        self.accounts.give(hold.queue, amounts, preemptible=self._is_preemptible(pod))
        for claim in pod.claims:
            self._drop(self.users, claim, pod.key)
            if claim not in self.users:
                if claim in self._charges:
                    self._uncharge(claim)
                if claim in self._assigned:
                    self._unassign(claim)
            self._settle(claim)

    def _take_place(self, pod: Pod, hold: Hold) -> None:
        self.holds[pod.key] = hold
        self.versions[hold.node] = self.versions.get(hold.node, 0) + 1
        self.on_node.setdefault(hold.node, {})[pod.key] = None
        room = self.rooms.get(hold.node)
        if room is not None:
            room.take(pod.needs)

    def _give_place(self, pod: Pod) -> None:
        hold = self.holds.pop(pod.key)
        self.versions[hold.node] = self.versions.get(hold.node, 0) + 1
        del self.on_node[hold.node][pod.key]
        room = self.rooms.get(hold.node)
        if room is not None:
            room.give_back(pod.needs)

    def _charge(self, claim: str, queue: str, *, preemptible: bool) -> None:
        allocation = self.allocation(claim)
        if allocation is None:
            return
        amounts = self.asking.given(self.claims[claim], allocation)
        self.accounts.take(queue, amounts, preemptible=preemptible)
        self._charges[claim] = queue, amounts, preemptible
        self.journal.record(partial(self._charges.pop, claim))

    def _uncharge(self, claim: str) -> None:
        queue, amounts, preemptible = charge = self._charges.pop(claim)
        self.journal.record(partial(self._charges.__setitem__, claim, charge))
        self.accounts.give(queue, amounts, preemptible=preemptible)

    def _settle(self, claim: str) -> None:
        """Has the devices of a claim in use, if it has any."""
        wanted, held = self.allocation(claim), self.cluster.allocation(claim)
        if wanted is held:
            return
        if held is not None:
            self.cluster.release(claim)
            self.journal.record(partial(self.cluster.allocate, claim, held))
        if wanted is not None:
            self.cluster.allocate(claim, wanted)
            self.journal.record(partial(self.cluster.release, claim))

    def _leave(self, pod: Pod, node: str) -> None:
        self._add(self.leaving, node, pod.key)
        for claim in pod.claims:
            self._add(self._leavers, claim, pod.key)
            self._settle(claim)

    def _stay(self, pod: Pod, node: str) -> None:
        self._drop(self.leaving, node, pod.key)
        for claim in pod.claims:
            self._drop(self._leavers, claim, pod.key)
            self._settle(claim)

    def _set_nominated(self, key: str, node: str, *, nominated: bool) -> None:
        if nominated:
            self._add(self.nominated, node, key)
        else:
            self._drop(self.nominated, node, key)

    def _add(self, index: dict[str, dict[str, None]], key: str, member: str) -> None:
        index.setdefault(key, {})[member] = None
        self.journal.record(partial(_discard, index, key, member))

    def _drop(self, index: dict[str, dict[str, None]], key: str, member: str) -> None:
        _discard(index, key, member)
        self.journal.record(partial(_include, index, key, member))

    def _spend(self, budget: str, amount: int) -> None:
        self.budgets[budget] -= amount


def _differ_in_history_only(one: Group, other: Group) -> bool:
    """Whether two states of a group differ in nothing but what has happened to it."""
    return other == replace(
        one, started=other.started, evicted=other.evicted, stale_since=other.stale_since
    )


def _include(index: dict[str, dict[str, None]], key: str, member: str) -> None:
    index.setdefault(key, {})[member] = None


def _discard(index: dict[str, dict[str, None]], key: str, member: str) -> None:
    of_key = index[key]
    del of_key[member]
    if not of_key:
        del index[key]

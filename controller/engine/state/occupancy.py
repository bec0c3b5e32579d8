"""Who has what of a cluster: places of pods, devices of claims, and what queues are charged.

All changes between `mark` and `rollback` are undone exactly. A pod that is being evicted has
already left its place here, so that it can be promised; `leaving` says who still holds something.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.feed import Feed
from carina_dra.resource import Allocation, ResourceClaim
from controller.engine.model.group import Group
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import Evicting, Pending, Pod, PodNeeds
from controller.engine.model.resource import Amounts, plus
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.accounts import Accounts
from controller.engine.state.asking import Asking
from controller.engine.state.charge import Charge, GpuPart
from controller.engine.state.devices import Devices
from controller.engine.state.journal import Journal
from controller.engine.state.members import GroupPods, asks_for_devices, set_of
from controller.engine.state.neighbours import Neighbours
from controller.engine.state.queue_tree import LOST, ROOT, QueueTree
from controller.engine.state.room import NodeCapacity, Room
from controller.engine.state.volumes import Volumes


@dataclass(frozen=True, slots=True)
class PodHold:
    """What a pod has on a node."""

    node: str
    queue: str
    """The queue that is charged; ROOT or LOST for a pod that no queue is responsible for."""
    priority: int
    """That of its group."""
    needs: PodNeeds
    """What it has of the node besides devices of claims."""
    gpus: tuple[GpuPart, ...] = ()
    """What device plugins serve it, by what counts it."""


class _Deleted(NamedTuple):
    """What is charged for a pod that its user has deleted, beside its claims."""

    queue: str
    preemptible: bool
    amounts: Amounts
    gpus: tuple[GpuPart, ...]


class Occupancy:
    """Places, devices and charges, which are tried and undone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.journal = Journal()
        self.budgets = dict(snapshot.budgets)
        self.cluster = Cluster(snapshot.features)
        self.feed = Feed(self.cluster)
        self.devices = Devices(self.cluster, self.feed.classes, snapshot.settings.driver)
        self.nodes: dict[str, ClusterNode] = {}
        self.capacity = NodeCapacity()
        self.rooms: dict[str, Room] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, Pod] = {}
        self.members: dict[str, GroupPods] = {}  # by group
        self.holds: dict[str, PodHold] = {}
        """The pods that have a place, here and now or as soon as others have left it."""
        self.holders: dict[str, dict[int, int]] = {}
        """By queue and priority: how many pods have a place and could be evicted from it."""
        self.without_devices: dict[str, int] = {}
        """By queue: how many of these have no devices."""
        self.lingering: dict[str, dict[str, None]] = {}
        """By group: the pods with a place that are being deleted and linger."""
        self.on_node: dict[str, dict[str, None]] = {}
        """The pods that have a place on each node."""
        # By node: who has devices there that are kept for a pod to come.
        self.kept: dict[str, dict[str, None]] = {}
        self.versions: dict[str, int] = {}
        """By node: how often pods have got a place there, or lost it."""
        self.leaving: dict[str, dict[str, None]] = {}
        """By node: the pods that are being evicted, but still hold what they have."""
        self.nominated: dict[str, dict[str, None]] = {}
        """By node: the pods that have a place as soon as others have left it."""
        self.namespaces = dict(snapshot.namespaces)
        self.neighbours = Neighbours(self.pods, self.on_node, self.namespaces)
        """The pods that have a place."""
        self.leavers = Neighbours(self.pods, self.leaving, self.namespaces)
        """Those that are being evicted: kube-scheduler has others keep away until they are gone."""
        self.volumes = Volumes(snapshot.storage)
        self.users: dict[str, dict[str, None]] = {}
        """By claim: the pods that have a place and refer to it."""
        self._payers: dict[str, dict[tuple[str, bool], int]] = {}
        """By claim, queue, and whether they are preemptible: how many of these pods there are."""
        self._leavers: dict[str, dict[str, None]] = {}
        """By claim: the pods that are being evicted and refer to it."""
        self._deleted: dict[str, _Deleted] = {}
        """The pods that have left their place and are charged until they are gone."""
        self.referring: dict[str, dict[str, None]] = {}
        """By claim: all pods that refer to it."""
        self._assigned: dict[str, Allocation] = {}
        """What claims get in a trial."""
        self._charges: dict[str, dict[str, tuple[Charge, bool]]] = {}
        """By claim and queue: what is charged, and whether for preemptible groups."""
        self.set_tree(QueueTree(()))

    def set_tree(self, tree: QueueTree) -> None:
        """Begins to charge the queues of another tree; nobody may have a place."""
        self.tree = tree
        self.accounts = Accounts(tree, self.journal)
        self.asking = Asking(
            tree,
            self.devices.classes,
            self.cluster.features,
            self.devices.least,
            self.devices,
            self.pods,
            self.claims,
        )

    def put_node(self, node: ClusterNode) -> None:
        """Adds or updates a node."""
        before = self.nodes.get(node.name)
        if before is not None:
            self.capacity.remove(before)
        self.capacity.add(node)
        self.nodes[node.name] = node
        self.cluster.put_node(node.node)
        self.rooms[node.name] = room = Room(node)
        for pod in self.on_node.setdefault(node.name, {}):
            room.take(self.pods[pod].needs)
        self.cluster.touch(node.name)
        self.journal.forget()

    def remove_node(self, name: str) -> None:
        """Removes a node that is known; the pods on it keep their place until they are gone."""
        self.capacity.remove(self.nodes.pop(name))
        self.cluster.remove_node(name)
        del self.rooms[name]

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
        self.occupy(self.pods[key], node)

    def evict(self, key: str, *, here: bool) -> None:
        """Takes its place from a pod. If it is `here` already, it still holds what it has."""
        pod, hold = self.pods[key], self.holds[key]
        self.vacate(pod)
        if here:
            self.leave(pod, hold.node)
        elif key in self.nominated.get(hold.node, ()):
            self._set_nominated(key, hold.node, nominated=False)

    def put_back(self, key: str, node: str) -> None:
        """Gives an evicted pod its place back; the exact inverse of `evict`."""
        pod = self.pods[key]
        self.stay(pod, node)
        self.occupy(pod, node)

    def nominate(self, key: str) -> None:
        """Records that a pod has its place only when others have left it."""
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
        self._disrupt(pod, -1)

    def disrupt_anyway(self, pod: Pod) -> None:
        """Counts a disruption in the pod's budgets, also in those that are spent."""
        self._disrupt(pod, 1)

    def _disrupt(self, pod: Pod, count: int) -> None:
        for name in pod.budgets:
            if name in self.budgets:
                self._spend(name, count)
                self.journal.record(partial(self._spend, name, -count))

    def hide(self, claim: str) -> None:
        """Marks the devices of a claim as free; to be rolled back."""
        held = self.cluster.allocation(claim)
        if held is not None:
            self.cluster.release(claim)
            self.journal.record(partial(self.cluster.allocate, claim, held))

    def show(self, claim: str) -> None:
        """Marks the devices that a claim has as used, whatever it gets instead; rolled back."""
        allocation = self.claims[claim].status.allocation if claim in self.claims else None
        held = self.cluster.allocation(claim)
        if allocation is None or held == allocation:
            return
        holder = claim if held is None else f"{claim} as it is"
        self.cluster.allocate(holder, allocation)
        self.journal.record(partial(self.cluster.release, holder))

    def keep_devices(self, node: str, holder: str, allocation: Allocation) -> None:
        """Marks devices of a node as used for a pod to come; to be rolled back."""
        self.cluster.allocate(holder, allocation)
        self.journal.record(partial(self.cluster.release, holder))
        self._add(self.kept, node, holder)

    def keep_room(self, node: str, needs: PodNeeds) -> None:
        """Takes room of a node for a pod to come; to be rolled back."""
        self.rooms[node].take(needs)
        self.cluster.touch(node)
        self.journal.record(partial(self._give_room_back, node, needs))
        self.look_again([node])

    def charge_place(
        self,
        queue: str,
        needs: PodNeeds,
        allocations: Iterable[Allocation],
        *,
        preemptible: bool,
    ) -> None:
        """Charges a queue with a place for a pod to come; to be rolled back.

        needs: what the pod needs of its node (`needs_on`).
        """
        gpus = self.asking.plugin_gpus(needs)
        self.accounts.take(queue, self.asking.of_pod(needs), preemptible=preemptible, gpus=gpus)
        for allocation in allocations:
            given = self.asking.given_to_come(allocation)
            self.accounts.take(queue, given.amounts, preemptible=preemptible, gpus=given.gpus)

    def _give_room_back(self, node: str, needs: PodNeeds) -> None:
        self.rooms[node].give_back(needs)
        self.cluster.touch(node)
        self.look_again([node])

    def look_again(self, nodes: Iterable[str]) -> None:
        """Invalidates cached results for these nodes."""
        for node in nodes:
            self.versions[node] = self.versions.get(node, 0) + 1

    def needs_on(self, needs: PodNeeds, node: str | None) -> PodNeeds:
        """What a pod needs of a node besides devices of claims; of none, of one without plugins."""
        if not needs.mapped:
            return needs
        known = None if node is None else self.nodes.get(node)
        return needs.served_by(()) if known is None else needs.served_by(known.offered)

    def claims_on(self, pod: Pod, node: str) -> tuple[str, ...]:
        """The claims that a pod needs on a node: where a plugin serves it, a planned one is not."""
        known = self.nodes.get(node)
        return pod.claims if known is None else pod.claims_where(known.offered)

    def needs_as_asked(self, pod: Pod) -> PodNeeds:
        """What a pod counts as asking for besides its claims, wherever it will be.

        What a planned claim could not get from any node counts as it does from a device plugin.
        """
        if not pod.needs.mapped:
            return pod.needs
        served = {
            name
            for name, key in pod.planned
            if name in self.capacity.offered
            and not ((claim := self.claims.get(key)) and any(self.asking.asked(claim)))
        }
        return pod.needs.served_by(served)

    def referrers(self, claim: str) -> int:
        """How many pods refer to a claim."""
        return len(self.referring.get(claim, ()))

    def allocation(self, claim: str) -> Allocation | None:
        """What a claim has, or gets in the trial; None if all who use it are leaving."""
        assigned = self._assigned.get(claim)
        if assigned is not None:
            return assigned
        if claim in self._leavers and claim not in self.users:
            return None  # it is taken from the claim when the last of them is gone
        known = self.claims.get(claim)
        return None if known is None else known.status.allocation

    def charged(self, claim: str, queue: str) -> Charge | None:
        """What a queue is charged for a claim, if it is charged for it."""
        found = self._charges.get(claim, {}).get(queue)
        return None if found is None else found[0]

    def is_pending(self, key: str) -> bool:
        """Whether a pod waits for a place, and has not got one in the trial."""
        return isinstance(self.pods[key].state, Pending) and key not in self.holds

    def is_active(self, key: str) -> bool:
        """Whether a pod has a place and is not on its way out, as a stuck one is."""
        return key in self.holds and not isinstance(self.pods[key].state, Evicting)

    def is_nominated(self, key: str) -> bool:
        """Whether a pod has a place as soon as others have left it."""
        hold = self.holds.get(key)
        return hold is not None and key in self.nominated.get(hold.node, ())

    def device_count(self, pod: Pod) -> int:
        """How many devices the claims of a pod have."""
        found = map(self.allocation, pod.claims)
        return sum(len(one.devices.results) for one in found if one is not None)

    def device_count_before(self, pod: Pod) -> int:
        """How many devices the claims of a pod had in the snapshot."""
        claims = (self.claims[key] for key in pod.claims if key in self.claims)
        found = (claim.status.allocation for claim in claims)
        return sum(len(one.devices.results) for one in found if one is not None)

    def has_devices(self, group: str) -> bool:
        """Whether a pod of a group with a place asks for devices."""
        members = self.members.get(group)
        return members is not None and members.with_devices > 0

    def asked_by(self, pods: Iterable[Pod]) -> Amounts:
        """What pods and their claims without devices count in a queue, as asked.

        A claim that several of them refer to counts once.
        """
        amounts = self.accounts.zero
        claims: dict[str, None] = {}
        for pod in pods:
            amounts = plus(amounts, self.asking.of_pod(self.needs_as_asked(pod)))
            claims |= dict.fromkeys(pod.claims)
        for key in claims:
            claim = self.claims.get(key)
            if claim is not None and not self.users.get(key) and self.allocation(key) is None:
                amounts = plus(amounts, self.asking.asked(claim))
        return amounts

    def queue_of(self, pod: Pod) -> str:
        """The queue that is responsible for a pod; ROOT if none is, LOST if it is not in the tree.

        What is of ROOT is left out when queues divide the cluster; what is of LOST is not.
        """
        group = None if pod.group is None else self.groups.get(pod.group)
        if group is None:
            return ROOT
        return group.queue if group.queue in self.tree.queues else LOST

    def pod_set_of(self, pod: Pod) -> str:
        """The set of its group that a pod belongs to."""
        return set_of(pod, None if pod.group is None else self.groups.get(pod.group))

    def _is_preemptible(self, pod: Pod) -> bool:
        """Whether what a pod has counts as preemptible; it may be evicted if its group is."""
        group = None if pod.group is None else self.groups.get(pod.group)
        return not pod.firm and (group is None or group.preemptible)

    def _priority_of(self, pod: Pod) -> int:
        group = None if pod.group is None else self.groups.get(pod.group)
        return 0 if group is None else group.priority

    def _assign(self, claim: str, allocation: Allocation) -> None:
        self._assigned[claim] = allocation
        self.journal.record(partial(self._assigned.pop, claim))
        self.charge_again(claim)

    def _unassign(self, claim: str) -> None:
        allocation = self._assigned.pop(claim)
        self.journal.record(partial(self._assigned.__setitem__, claim, allocation))
        self.charge_again(claim)

    def occupy(self, pod: Pod, node: str) -> None:
        """Gives a pod a place, with the devices that its claims have."""
        queue, preemptible = self.queue_of(pod), self._is_preemptible(pod)
        needs = self.needs_on(pod.needs, node)
        gpus = self.asking.plugin_gpus(needs)
        self._take_place(pod, PodHold(node, queue, self._priority_of(pod), needs, gpus))
        self.journal.record(partial(self._give_place, pod))
        amounts = self.asking.of_pod(needs)
        self.accounts.take(queue, amounts, preemptible=preemptible, gpus=gpus)
        for claim in pod.claims:
            self._add(self.users, claim, pod.key)
            self._count_payer(claim, (queue, preemptible), 1)
            self.settle(claim)
            self._charge_payers(claim)

    def vacate(self, pod: Pod) -> None:
        """Takes a place from a pod, and the devices from claims that nobody else uses."""
        hold = self.holds[pod.key]
        self._give_place(pod)
        self.journal.record(partial(self._take_place, pod, hold))
        amounts = self.asking.of_pod(hold.needs)
        preemptible = self._is_preemptible(pod)
        self.accounts.give(hold.queue, amounts, preemptible=preemptible, gpus=hold.gpus)
        for claim in pod.claims:
            self._drop(self.users, claim, pod.key)
            self._count_payer(claim, (hold.queue, preemptible), -1)
            self._charge_payers(claim)
            if claim not in self.users and claim in self._assigned:
                self._unassign(claim)
            self.settle(claim)

    def _take_place(self, pod: Pod, hold: PodHold) -> None:
        self.holds[pod.key] = hold
        if _could_leave(pod):
            holders = self.holders.setdefault(hold.queue, {})
            holders[hold.priority] = holders.get(hold.priority, 0) + 1
            if not asks_for_devices(pod):
                self.without_devices[hold.queue] = self.without_devices.get(hold.queue, 0) + 1
        if _lingers(pod):
            self.lingering.setdefault(pod.group or "", {})[pod.key] = None
        self.versions[hold.node] = self.versions.get(hold.node, 0) + 1
        self.on_node.setdefault(hold.node, {})[pod.key] = None
        room = self.rooms.get(hold.node)
        if room is not None:
            room.take(pod.needs)
            self.cluster.touch(hold.node)
        self.neighbours.put(pod, hold.node)
        if pod.volumes:
            self.volumes.use(pod, hold.node)
        if pod.group is not None:
            self.members[pod.group].take_place(pod, self.pod_set_of(pod), hold.node)

    def _give_place(self, pod: Pod) -> None:
        hold = self.holds.pop(pod.key)
        if _could_leave(pod):
            if not asks_for_devices(pod):
                self.without_devices[hold.queue] -= 1
            holders = self.holders[hold.queue]
            holders[hold.priority] -= 1
            if not holders[hold.priority]:
                del holders[hold.priority]
                if not holders:
                    del self.holders[hold.queue]
        if _lingers(pod):
            discard(self.lingering, pod.group or "", pod.key)
        self.versions[hold.node] = self.versions.get(hold.node, 0) + 1
        del self.on_node[hold.node][pod.key]
        room = self.rooms.get(hold.node)
        if room is not None:
            room.give_back(pod.needs)
            self.cluster.touch(hold.node)
        self.neighbours.remove(pod, hold.node)
        if pod.volumes:
            self.volumes.leave(pod, hold.node)
        if pod.group is not None:
            self.members[pod.group].give_place(pod, self.pod_set_of(pod), hold.node)

    def _count_payer(self, claim: str, payer: tuple[str, bool], change: int) -> None:
        """Counts the pods that use a claim, so that charging it costs no look at each of them."""
        self._change_count(claim, payer, change)
        self.journal.record(partial(self._change_count, claim, payer, -change))

    def _change_count(self, claim: str, payer: tuple[str, bool], change: int) -> None:
        counts = self._payers.setdefault(claim, {})
        count = counts.get(payer, 0) + change
        if count:
            counts[payer] = count
        else:
            del counts[payer]
            if not counts:
                del self._payers[claim]

    def _charge_payers(self, claim: str) -> None:
        """Charges each queue whose pods use a claim.

        If only one were, another that has used it all along would be charged when the first has
        left it, unseen, and beyond what it may have. No queue is responsible only if none uses it.
        """
        preemptible: dict[str, bool] = {}
        if claim in self.claims:
            for queue, are_preemptible in self._payers.get(claim, ()):
                preemptible[queue] = preemptible.get(queue, True) and are_preemptible
        if len(preemptible) > 1:
            preemptible.pop(ROOT, None)
        if len(preemptible) > 1:
            preemptible.pop(LOST, None)
        for queue, (_, was_preemptible) in list(self._charges.get(claim, {}).items()):
            if preemptible.get(queue) is not was_preemptible:
                self._uncharge(claim, queue)
        for queue, is_preemptible in preemptible.items():
            if queue not in self._charges.get(claim, {}):
                self._charge(claim, queue, preemptible=is_preemptible)

    def charged_allocation(self, claim: str) -> Allocation | None:
        """What is charged of a claim: what it has, also if all who use it are leaving."""
        assigned = self._assigned.get(claim)
        if assigned is not None:
            return assigned
        known = self.claims.get(claim)
        return None if known is None else known.status.allocation

    def is_charged(self, claim: str) -> bool:
        """Whether a queue is charged for a claim."""
        return claim in self._charges

    def _charge(self, claim: str, queue: str, *, preemptible: bool) -> None:
        allocation = self.charged_allocation(claim)
        if allocation is None:
            return
        given = self.asking.given(self.claims[claim], allocation)
        self.accounts.take(queue, given.amounts, preemptible=preemptible, gpus=given.gpus)
        self._put_charge(claim, queue, (given, preemptible))
        self.journal.record(partial(self._drop_charge, claim, queue))

    def charge_again(self, claim: str) -> None:
        """Charges what a claim has now, by what is published now."""
        allocation = self.charged_allocation(claim)
        if allocation is None or claim not in self._charges:
            return
        present = self.asking.given(self.claims[claim], allocation)
        for queue, (charged, preemptible) in list(self._charges[claim].items()):
            if charged != present:
                self._uncharge(claim, queue)
                self._charge(claim, queue, preemptible=preemptible)

    def _uncharge(self, claim: str, queue: str) -> None:
        given, preemptible = charge = self._charges[claim][queue]
        self._drop_charge(claim, queue)
        self.journal.record(partial(self._put_charge, claim, queue, charge))
        self.accounts.give(queue, given.amounts, preemptible=preemptible, gpus=given.gpus)

    def _put_charge(self, claim: str, queue: str, charge: tuple[Charge, bool]) -> None:
        self._charges.setdefault(claim, {})[queue] = charge

    def _drop_charge(self, claim: str, queue: str) -> None:
        charges = self._charges[claim]
        del charges[queue]
        if not charges:
            del self._charges[claim]

    def settle(self, claim: str) -> None:
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

    def leave(self, pod: Pod, node: str) -> None:
        """Records that a pod without a place still holds what it had on a node."""
        self._add(self.leaving, node, pod.key)
        self._hold_on(pod, node)
        self.journal.record(partial(self._let_go, pod, node))
        for claim in pod.claims:
            self._add(self._leavers, claim, pod.key)
            self.settle(claim)
        if isinstance(pod.state, Evicting) and pod.state.charged:
            self._charge_deleted(pod, node)

    def stay(self, pod: Pod, node: str) -> None:
        """Records that it does not; the exact inverse of `leave`."""
        if pod.key in self._deleted:
            self._uncharge_deleted(pod)
        self._drop(self.leaving, node, pod.key)
        self._let_go(pod, node)
        self.journal.record(partial(self._hold_on, pod, node))
        for claim in pod.claims:
            self._drop(self._leavers, claim, pod.key)
            self.settle(claim)

    def _charge_deleted(self, pod: Pod, node: str) -> None:
        queue, preemptible = self.queue_of(pod), self._is_preemptible(pod)
        needs = self.needs_on(pod.needs, node)
        amounts, gpus = self.asking.of_pod(needs), self.asking.plugin_gpus(needs)
        self._deleted[pod.key] = _Deleted(queue, preemptible, amounts, gpus)
        self.journal.record(partial(self._deleted.pop, pod.key))
        self.accounts.take(queue, amounts, preemptible=preemptible, gpus=gpus)
        for claim in pod.claims:
            self._count_payer(claim, (queue, preemptible), 1)
            self._charge_payers(claim)

    def _uncharge_deleted(self, pod: Pod) -> None:
        queue, preemptible, amounts, gpus = charged = self._deleted.pop(pod.key)
        self.journal.record(partial(self._deleted.__setitem__, pod.key, charged))
        self.accounts.give(queue, amounts, preemptible=preemptible, gpus=gpus)
        for claim in pod.claims:
            self._count_payer(claim, (queue, preemptible), -1)
            self._charge_payers(claim)

    def _hold_on(self, pod: Pod, node: str) -> None:
        self.leavers.put(pod, node)
        self.volumes.use(pod, node)

    def _let_go(self, pod: Pod, node: str) -> None:
        self.leavers.remove(pod, node)
        self.volumes.leave(pod, node)

    def _set_nominated(self, key: str, node: str, *, nominated: bool) -> None:
        if nominated:
            self._add(self.nominated, node, key)
        else:
            self._drop(self.nominated, node, key)
        pod = self.pods[key]
        if pod.group is not None:
            members, pod_set, change = (
                self.members[pod.group],
                self.pod_set_of(pod),
                1 if nominated else -1,
            )
            members.nominate(pod_set, change)
            self.journal.record(partial(members.nominate, pod_set, -change))

    def _add(self, index: dict[str, dict[str, None]], key: str, member: str) -> None:
        index.setdefault(key, {})[member] = None
        self.journal.record(partial(discard, index, key, member))

    def _drop(self, index: dict[str, dict[str, None]], key: str, member: str) -> None:
        discard(index, key, member)
        self.journal.record(partial(_include, index, key, member))

    def _spend(self, budget: str, amount: int) -> None:
        self.budgets[budget] -= amount


def _include(index: dict[str, dict[str, None]], key: str, member: str) -> None:
    index.setdefault(key, {})[member] = None


def discard(index: dict[str, dict[str, None]], key: str, member: str) -> None:
    of_key = index[key]
    del of_key[member]
    if not of_key:
        del index[key]


def _could_leave(pod: Pod) -> bool:
    """Whether a pod with a place could be evicted from it, or be made to end sooner."""
    return not isinstance(pod.state, Evicting) or pod.state.lingers


def _lingers(pod: Pod) -> bool:
    return isinstance(pod.state, Evicting) and pod.state.lingers

"""Who has what of a cluster: places of pods, devices of claims, and what queues are charged.

All changes between `mark` and `rollback` are undone exactly. A pod that is being evicted has
already left its place here, so that it can be promised; `leaving` says who still holds something.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from carina_dra.placement.cluster import Cluster
from carina_dra.placement.feed import Feed
from carina_dra.resource import Allocation, ResourceClaim
from controller.model.group import Group
from controller.model.node import ClusterNode
from controller.model.pod import Evicting, Pending, Pod
from controller.model.resource import Amounts, plus
from controller.model.snapshot import Snapshot
from controller.state.accounts import Accounts
from controller.state.asking import Asking
from controller.state.devices import Devices
from controller.state.journal import Journal
from controller.state.members import Members, set_of
from controller.state.queue_tree import ROOT, QueueTree
from controller.state.room import Room


@dataclass(frozen=True, slots=True)
class Hold:
    """What a pod has on a node."""

    node: str
    queue: str
    """The queue that is charged; ROOT for a pod that no queue is responsible for."""
    priority: int
    """That of its group."""


class Occupancy:
    """Places, devices and charges, which are tried and undone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.journal = Journal()
        self.budgets = dict(snapshot.budgets)
        self.cluster = Cluster(snapshot.features)
        self.feed = Feed(self.cluster)
        self.devices = Devices(self.cluster, self.feed.classes)
        self.nodes: dict[str, ClusterNode] = {}
        self.rooms: dict[str, Room] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, Pod] = {}
        self.members: dict[str, Members] = {}
        """By group."""
        self.holds: dict[str, Hold] = {}
        """The pods that have a place, here and now or as soon as others have left it."""
        self.holders: dict[str, dict[int, int]] = {}
        """By queue and priority: how many pods have a place and could be evicted from it."""
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
        self._charges: dict[str, dict[str, tuple[Amounts, bool]]] = {}
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
            self.devices.capacities,
        )

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
        """Has the devices in use that a claim has, whatever it gets instead; to be rolled back."""
        allocation = self.claims[claim].status.allocation if claim in self.claims else None
        held = self.cluster.allocation(claim)
        if allocation is None or held == allocation:
            return
        holder = claim if held is None else f"{claim} as it is"
        self.cluster.allocate(holder, allocation)
        self.journal.record(partial(self.cluster.release, holder))

    def look_again(self, nodes: Iterable[str]) -> None:
        """Has what is remembered of the pods on nodes be forgotten."""
        for node in nodes:
            self.versions[node] = self.versions.get(node, 0) + 1

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

    def asked_by(self, pods: Iterable[Pod]) -> Amounts:
        """What pods and their claims without devices count in a queue, as asked.

        A claim that several of them refer to counts once.
        """
        amounts = self.accounts.zero
        claims: dict[str, None] = {}
        for pod in pods:
            amounts = plus(amounts, self.asking.of_pod(pod.needs))
            claims |= dict.fromkeys(pod.claims)
        for key in claims:
            claim = self.claims.get(key)
            if claim is not None and not self.users.get(key) and self.allocation(key) is None:
                amounts = plus(amounts, self.asking.asked(claim))
        return amounts

    def queue_of(self, pod: Pod) -> str:
        """The queue that is responsible for a pod; ROOT if none is."""
        group = None if pod.group is None else self.groups.get(pod.group)
        return group.queue if group is not None and group.queue in self.tree.queues else ROOT

    def _set_of(self, pod: Pod) -> str:
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

    def _unassign(self, claim: str) -> None:
        allocation = self._assigned.pop(claim)
        self.journal.record(partial(self._assigned.__setitem__, claim, allocation))

    def occupy(self, pod: Pod, node: str) -> None:
        """Gives a pod a place, with the devices that its claims have."""
        queue, preemptible = self.queue_of(pod), self._is_preemptible(pod)
        self._take_place(pod, Hold(node, queue, self._priority_of(pod)))
        self.journal.record(partial(self._give_place, pod))
        self.accounts.take(queue, self.asking.of_pod(pod.needs), preemptible=preemptible)
        for claim in pod.claims:
            self._add(self.users, claim, pod.key)
            self.settle(claim)
            self._charge_payers(claim)

    def vacate(self, pod: Pod) -> None:
        """Takes a place from a pod, and the devices from claims that nobody else uses."""
        hold = self.holds[pod.key]
        self._give_place(pod)
        self.journal.record(partial(self._take_place, pod, hold))
        amounts = self.asking.of_pod(pod.needs)
        self.accounts.give(hold.queue, amounts, preemptible=self._is_preemptible(pod))
        for claim in pod.claims:
            self._drop(self.users, claim, pod.key)
            self._charge_payers(claim)
            if claim not in self.users and claim in self._assigned:
                self._unassign(claim)
            self.settle(claim)

    def _take_place(self, pod: Pod, hold: Hold) -> None:
        self.holds[pod.key] = hold
        if not isinstance(pod.state, Evicting):
            holders = self.holders.setdefault(hold.queue, {})
            holders[hold.priority] = holders.get(hold.priority, 0) + 1
        self.versions[hold.node] = self.versions.get(hold.node, 0) + 1
        self.on_node.setdefault(hold.node, {})[pod.key] = None
        room = self.rooms.get(hold.node)
        if room is not None:
            room.take(pod.needs)
        if pod.group is not None:
            self.members[pod.group].take_place(pod, self._set_of(pod), hold.node)

    def _give_place(self, pod: Pod) -> None:
        hold = self.holds.pop(pod.key)
        if not isinstance(pod.state, Evicting):
            holders = self.holders[hold.queue]
            holders[hold.priority] -= 1
            if not holders[hold.priority]:
                del holders[hold.priority]
        self.versions[hold.node] = self.versions.get(hold.node, 0) + 1
        del self.on_node[hold.node][pod.key]
        room = self.rooms.get(hold.node)
        if room is not None:
            room.give_back(pod.needs)
        if pod.group is not None:
            self.members[pod.group].give_place(pod, self._set_of(pod), hold.node)

    def _charge_payers(self, claim: str) -> None:
        """Charges each queue whose pods use a claim.

        If only one were, another that has used it all along would be charged when the first has
        left it, unseen, and beyond what it may have. No queue is responsible only if none uses it.
        """
        preemptible: dict[str, bool] = {}
        if claim in self.claims:
            for user in self.users.get(claim, ()):
                queue = self.holds[user].queue
                preemptible[queue] = preemptible.get(queue, True) and self._is_preemptible(
                    self.pods[user]
                )
        if len(preemptible) > 1:
            preemptible.pop(ROOT, None)
        for queue, (_, was_preemptible) in list(self._charges.get(claim, {}).items()):
            if preemptible.get(queue) is not was_preemptible:
                self._uncharge(claim, queue)
        for queue, is_preemptible in preemptible.items():
            if queue not in self._charges.get(claim, {}):
                self._charge(claim, queue, preemptible=is_preemptible)

    def _charge(self, claim: str, queue: str, *, preemptible: bool) -> None:
        allocation = self.allocation(claim)
        if allocation is None:
            return
        amounts = self.asking.given(self.claims[claim], allocation)
        self.accounts.take(queue, amounts, preemptible=preemptible)
        self._put_charge(claim, queue, (amounts, preemptible))
        self.journal.record(partial(self._drop_charge, claim, queue))

    def _uncharge(self, claim: str, queue: str) -> None:
        amounts, preemptible = charge = self._charges[claim][queue]
        self._drop_charge(claim, queue)
        self.journal.record(partial(self._put_charge, claim, queue, charge))
        self.accounts.give(queue, amounts, preemptible=preemptible)

    def _put_charge(self, claim: str, queue: str, charge: tuple[Amounts, bool]) -> None:
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
        """Takes notice that a pod without a place still holds what it had on a node."""
        self._add(self.leaving, node, pod.key)
        for claim in pod.claims:
            self._add(self._leavers, claim, pod.key)
            self.settle(claim)

    def stay(self, pod: Pod, node: str) -> None:
        """Takes notice that it does not; the exact inverse of `leave`."""
        self._drop(self.leaving, node, pod.key)
        for claim in pod.claims:
            self._drop(self._leavers, claim, pod.key)
            self.settle(claim)

    def _set_nominated(self, key: str, node: str, *, nominated: bool) -> None:
        if nominated:
            self._add(self.nominated, node, key)
        else:
            self._drop(self.nominated, node, key)
        pod = self.pods[key]
        if pod.group is not None:
            members, pod_set, change = (
                self.members[pod.group],
                self._set_of(pod),
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

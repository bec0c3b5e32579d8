"""What pods and their claims count as asked for, in which queue: the `requested` of accounts.

A claim counts once, for the pod of the lowest rank of those that refer to it and ask.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias, assert_never

from carina_dra.allocator.group import WHOLE
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod
from controller.engine.model.resource import minus
from controller.engine.model.wish import Wish
from controller.engine.state.asking import asked_devices
from controller.engine.state.charge import Charge
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.queue_tree import LOST, ROOT
from controller.engine.state.wishes import AskedWishes

_Counted: TypeAlias = dict[str, tuple[str, Charge]]
_SEVERAL: Final = 2


class Requests:
    """What is asked for, kept while pods, claims and devices change."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._of_pods: _Counted = {}
        """By pod: what it counts as asked for, and in which queue."""
        self._by_name: dict[str, None] = {}
        """Those of them that wait and have planned claims: how they count depends on devices."""
        self._of_claims: _Counted = {}
        """By claim, which may have the name of a pod: the same."""
        self._askers: dict[str, str] = {}
        """By claim: the pod with which it counts as asked for."""
        self.wishes = AskedWishes()
        """What claims and their pods ask for, whatever is tried."""

    def wish_again(self, claims: Iterable[str]) -> None:
        """Applies that devices have changed: claims may be for parts of GPUs that were whole."""
        for key in claims:
            if key in self._askers:
                self.wishes.put(key, self._of_claims[key][0], self._wish(key))

    def count_again(self, having: Iterable[str]) -> None:
        """Counts what depends on devices: claims that have some, claims and pods that wait."""
        waiting = [key for key in self._askers if self._occupancy.allocation(key) is None]
        for key in (*waiting, *having):
            self._count_claim_again(key)
        for key in self._by_name:
            self._count_pod_again(self._occupancy.pods[key])

    def add(self, pod: Pod) -> None:
        """A pod begins to count as asking for what it has or waits for."""
        queue = self._occupancy.queue_of(pod)
        node = _node_of(pod)
        needs = (
            self._occupancy.needs_as_asked(pod)
            if node is None
            else self._occupancy.needs_on(pod.needs, node)
        )
        self._count(self._of_pods, pod.key, queue, Charge(self._occupancy.asking.of_pod(needs)))
        if node is None and pod.planned:
            self._by_name[pod.key] = None
        for key in pod.claims if node is None else self._occupancy.claims_on(pod, node):
            counted = self._askers.get(key)
            if key not in self._occupancy.claims or (
                counted is not None and self._rank(self._occupancy.pods[counted]) < self._rank(pod)
            ):
                continue
            self._uncount_claim(key)
            self._askers[key] = pod.key
            self._count_claim(key, queue, self._amounts(key))

    def remove(self, pod: Pod) -> None:
        """A pod ceases to count; another that refers to its claims counts for them."""
        self._uncount(self._of_pods, pod.key)
        self._by_name.pop(pod.key, None)
        for key in pod.claims:
            if self._askers.get(key) == pod.key:
                del self._askers[key]
                self._uncount_claim(key)
                others = (
                    self._occupancy.pods[referrer]
                    for referrer in self._occupancy.referring[key]
                    if referrer != pod.key
                )
                asking = (other for other in others if _asks(other))
                other = min(asking, key=self._rank, default=None)
                if other is not None:
                    self._askers[key] = other.key
                    queue, amounts = self._occupancy.queue_of(other), self._amounts(key)
                    self._count_claim(key, queue, amounts)

    def count_claims_again(self, pod: Pod) -> None:
        """Counts what its claims have now: that depends on who uses them, and who leaves them."""
        for key in pod.claims:
            self._count_claim_again(key)

    def _count_pod_again(self, pod: Pod) -> None:
        """Counts what a pod that waits asks for besides its claims: that depends on devices."""
        queue, charge = self._of_pods[pod.key]
        present = Charge(self._occupancy.asking.of_pod(self._occupancy.needs_as_asked(pod)))
        if present != charge:
            self._uncount(self._of_pods, pod.key)
            self._count(self._of_pods, pod.key, queue, present)

    def _count_claim_again(self, key: str) -> None:
        known = self._of_claims.get(key)
        if known is not None:
            queue, amounts = known
            if (present := self._amounts(key)) != amounts:
                self._uncount_claim(key)
                self._count_claim(key, queue, present)

    def _rank(self, pod: Pod) -> tuple[bool, str]:
        """The pod of the lowest rank counts for a claim: one of a queue, if there is one."""
        return self._occupancy.queue_of(pod) in (ROOT, LOST), pod.key

    def _count_claim(self, key: str, queue: str, charge: Charge) -> None:
        self._count(self._of_claims, key, queue, charge)
        self.wishes.put(key, queue, self._wish(key))

    def _uncount_claim(self, key: str) -> None:
        self._uncount(self._of_claims, key)
        self.wishes.put(key, "", None)

    def _wish(self, key: str) -> Wish | None:
        """What a claim asks for with its pod, if it has GPUs, or asks for several devices.

        Whether it asks for a whole one or a part is known once it has one.
        """
        allocation = self._occupancy.allocation(key)
        if allocation is None:
            devices, part = asked_devices(self._occupancy.claims[key]), WHOLE
            if devices < _SEVERAL:
                return None
        else:
            given = map(self._occupancy.devices.part, allocation.devices.results)
            parts = list(filter(None, given))
            if not parts:
                return None
            devices, part = len(parts), max(parts)
        needs = self._occupancy.pods[self._askers[key]].needs
        return Wish(needs.cpu, needs.memory, devices, part)

    def _count(self, counted: _Counted, key: str, queue: str, charge: Charge) -> None:
        counted[key] = queue, charge
        self._occupancy.accounts.request(queue, charge.amounts, charge.gpus)

    def _uncount(self, counted: _Counted, key: str) -> None:
        known = counted.pop(key, None)
        if known is not None:
            queue, charge = known
            amounts = minus(self._occupancy.accounts.zero, charge.amounts)
            self._occupancy.accounts.request(queue, amounts, charge.gpus, sign=-1)

    def _amounts(self, key: str) -> Charge:
        """What a claim counts, as it is asked or given."""
        claim, allocation = self._occupancy.claims[key], self._occupancy.allocation(key)
        if allocation is None and self._occupancy.is_charged(key):
            allocation = self._occupancy.charged_allocation(key)
        if allocation is None:
            return Charge(self._occupancy.asking.asked(claim))
        return self._occupancy.asking.given(claim, allocation)


def _node_of(pod: Pod) -> str | None:
    """Where a pod has its place, or had it; None for one that waits."""
    match pod.state:
        case Placed(node=node) | Evicting(node=node):
            return node
        case Pending() | Gated() | Ended():
            return None
    assert_never(pod.state)


def _asks(pod: Pod) -> bool:
    """Whether a pod counts as asking for what it has or waits for."""
    match pod.state:
        case Pending() | Placed() | Evicting(stuck=True) | Evicting(charged=True):
            return True
        case Gated() | Evicting() | Ended():
            return False
    assert_never(pod.state)

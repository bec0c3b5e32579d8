"""Until when what pods hold that leave, or have left, is believed to become free.

Others wait for it until then, rather than that somebody is evicted for them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from carina_dra.resource import ResourceClaim
from controller.engine.model.plan import CarriedOver
from controller.engine.model.pod import Evicting, Pod, PodNeeds
from controller.engine.model.queue import LEAST_GRACE
from controller.observe.claim import is_pod, node_of
from controller.observe.pod import ObservedPod

_GRACE: Final = 60.0
"""Seconds that a pod may take beyond its grace period, and a claim after the last of its pods."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """A pod that stands for those who had a claim, which no pod can have."""

    pod: Pod
    until: float
    """The Unix time from which it is not believed any more."""


def longest_grace(memory: CarriedOver, queue: str, whole: float, deleted: float) -> float:
    """The longest grace period that counts of a pod that its user deleted at a time.

    It is the `whole` evictionGrace of its queue, less what budgets have taken of it from those who
    wait: to delete a pod then with a long grace period of its own gives no more time.
    """
    clocks = (known[queue] for known in memory.budget_refusals.values() if queue in known)
    ends = (clock.since + whole for clock in clocks if clock.groups)
    end = min(ends, default=deleted + whole)
    return min(whole, max(end - deleted, LEAST_GRACE))


def leaving(
    pod: ObservedPod, node: str, now: float, *, longest: float, evicted: float | None
) -> tuple[Evicting, float | None]:
    """How a deleted pod leaves its node, and when it counts as one that does not end.

    Of its grace period, which a user chooses, `longest` seconds count. If a user deletes it with a
    longer one, it counts as lingering at once: others do not wait for so long. `evicted` is when
    the controller evicted it, or shortened its grace period.
    """
    lingers = pod.deletion_grace > longest
    if lingers and evicted is None:
        return Evicting(node, stuck=True, lingers=True), None
    since = max(pod.deleted or 0, evicted or 0)
    end = since + min(pod.deletion_grace, longest) + _GRACE
    if now < end:
        return Evicting(node, charged=evicted is None), end
    return Evicting(node, stuck=True, lingers=lingers), None


def leaver_key(claim: str) -> str:
    """The key of the pod that stands for those who had a claim."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/resourceclaim/{name}/left"


class Leavers:
    """The claims with devices of which all pods have ended, since when that is so."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def remove(self, claim: str) -> None:
        """Applies that a claim is gone."""
        self._since.pop(claim, None)

    def leaver_of(
        self, claim: ResourceClaim, users: Iterable[ObservedPod], now: float
    ) -> Leaver | None:
        """Returns a placeholder for a claim whose users have all ended, until its grace is over.

        kube-controller-manager takes them back a moment after the last of its pods. Until then it
        would seem that nobody leaves, and that others have to be evicted. If it does not take them
        back, they are in use.
        """
        allocation, consumers = claim.status.allocation, claim.status.reserved_for
        node = None if allocation is None else node_of(allocation)
        alive = {pod.uid for pod in users if pod.succeeded is None}
        if node and consumers and all(is_pod(by) and by.uid not in alive for by in consumers):
            end = self._since.setdefault(claim.key, now) + _GRACE
            leaver = Pod(leaver_key(claim.key), PodNeeds(), Evicting(node), claims=(claim.key,))
            return Leaver(leaver, end) if now < end else None
        self.remove(claim.key)
        return None

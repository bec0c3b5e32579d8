"""Until when what pods hold that leave, or have left, is believed to become free.

Others wait for it until then, rather than that somebody is evicted for them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from carina_dra.resource import ResourceClaim
from controller.model.pod import Evicting, Pod, PodNeeds
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


def leaving(pod: ObservedPod, node: str, now: float) -> tuple[Evicting, float | None]:
    """How a deleted pod leaves its node, and when it counts as one that does not end."""
    end = (pod.deleted or 0) + _GRACE
    return (Evicting(node), end) if now < end else (Evicting(node, stuck=True), None)


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
        """Has the devices of a claim be about to become free, if all who could use it have ended.

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

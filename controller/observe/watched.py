"""Pods and claims as they were last watched, and which pods refer to which claims.

Watches and the answers to writes come in any order: the newest version of an object counts, and
what is gone does not come back.
"""

from collections.abc import Iterator, Mapping

from carina_dra.resource import ResourceClaim
from controller.observe.gone import Gone
from controller.observe.planned_claims import is_special
from controller.observe.pod import ObservedPod


class Watched:
    """The newest versions, by `namespace/name`."""

    def __init__(self) -> None:
        self.pods: dict[str, ObservedPod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self._gone = Gone()
        self._referrers: dict[str, dict[str, None]] = {}
        """By claim: the pods that name it."""

    def is_newer_pod(self, pod: ObservedPod) -> bool:
        """Whether nothing newer is known of a pod."""
        known = self.pods.get(pod.key)
        if pod.uid in self._gone:
            return False
        return known is None or known.uid != pod.uid or known.version < pod.version

    def put_pod(self, pod: ObservedPod) -> tuple[str, ...]:
        """Adds or updates a pod; the claims that it refers to, or did until now."""
        before = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        former: tuple[str, ...] = ()
        if before is not None and before.named_claims != pod.named_claims:
            former = before.named_claims
            self._unrefer(pod.key, former)
        for claim in pod.named_claims:
            self._referrers.setdefault(claim, {})[pod.key] = None
        return (*former, *pod.named_claims)

    def remove_pod(self, pod: ObservedPod, now: float) -> ObservedPod | None:
        """Applies that a pod is gone; as it was known, if it was."""
        self._gone.add(pod.uid, now)
        known = self.pods.get(pod.key)
        if known is None or known.uid != pod.uid:
            return None
        del self.pods[pod.key]
        self._unrefer(pod.key, known.named_claims)
        return known

    def is_newer_claim(self, claim: ResourceClaim) -> bool:
        """Whether nothing newer is known of a claim."""
        known, uid = self.claims.get(claim.key), claim.metadata.uid
        if uid in self._gone:
            return False
        return known is None or known.metadata.uid != uid or _version(known) < _version(claim)

    def put_claim(self, claim: ResourceClaim) -> None:
        """Adds or updates a claim."""
        self.claims[claim.key] = claim

    def is_there(self, claim: ResourceClaim) -> bool:
        """Whether a claim is not gone, nor was created again."""
        known = self.claims.get(claim.key)
        return known is not None and known.metadata.uid == claim.metadata.uid

    def remove_claim(self, claim: ResourceClaim, now: float) -> bool:
        """Applies that a claim is gone; whether it was known."""
        self._gone.add(claim.metadata.uid, now)
        if not self.is_there(claim):
            return False
        del self.claims[claim.key]
        return True

    def expire(self, now: float) -> None:
        """Forgets those of the gone of which nothing can come any more."""
        self._gone.expire(now)

    def users_of(self, claim: str) -> Iterator[ObservedPod]:
        """The pods that use a claim: it is named in their spec, or is their special one."""
        for pod in map(self.pods.__getitem__, self._referrers.get(claim, ())):
            if claim in pod.claims or is_special(self.claims.get(claim), pod):
                yield pod

    def named_by(self, claim: str) -> Iterator[ObservedPod]:
        """The pods that name a claim, whether it is theirs or not."""
        return map(self.pods.__getitem__, self._referrers.get(claim, ()))

    @property
    def referrers(self) -> Mapping[str, Mapping[str, None]]:
        """By claim: the pods that name it."""
        return self._referrers

    def _unrefer(self, pod: str, claims: tuple[str, ...]) -> None:
        for claim in claims:
            referrers = self._referrers.get(claim, {})
            referrers.pop(pod, None)
            if not referrers:
                self._referrers.pop(claim, None)


def _version(claim: ResourceClaim) -> int:
    return int(claim.metadata.resource_version)

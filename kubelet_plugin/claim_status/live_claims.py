"""What is known of the recorded claims and their GPUs now, for those who tell it.

The record of claims, the preparer and the poller of the GPUs write here and return at once. Who
tells something waits for the next change; how slow it is, and that there may be several, affects
nobody else.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kubelet_plugin.claim_status.device_health import GpusNow
from kubelet_plugin.claim_status.readiness import NotChecked, NotSetUp, Readiness, SetUp
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.failure import ClaimFailure, DeviceUnhealthy
from kubelet_plugin.inventory.inventory import Inventory
from kubelet_plugin.prepare.resource import Identity, Made, MadeInstance, MadeLimit, MadeMps
from kubelet_plugin.sharing.standing import Standings


@dataclass(frozen=True, slots=True)
class ClaimsNow:
    """One state of the claims and GPUs."""

    version: int = 0
    claims: Mapping[str, NodeClaim] = field(default_factory=dict)
    """The recorded claims by UID."""
    readiness: Mapping[str, Readiness] = field(default_factory=dict)
    """By UID; without those that are being prepared, or not checked yet since the start."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """The pod that a claim was made for, by the claim's UID; without claims that pods share."""
    gpus: GpusNow = field(default_factory=GpusNow)
    standings: Standings | None = None
    """How it is with the shares, as far as carina-sharing watches them; None before it is known
    whether it does."""
    stopped: bool = False
    """Whether the plugin stops; nothing changes any more."""


class LiveClaims:
    """The present state, and waiting for the next. Thread-safe; only `wait` and `pause` block."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = ClaimsNow()

    @property
    def now(self) -> ClaimsNow:
        """The present state."""
        return self._now

    def recorded(self, claims: Iterable[NodeClaim]) -> None:
        """Sets the recorded claims."""
        by_uid = {claim.uid: claim for claim in claims}
        with self._changed:
            left = {uid: how for uid, how in self._now.readiness.items() if uid in by_uid}
            pods = {uid: pod for uid, pod in self._now.pods.items() if uid in by_uid}
            self._set(replace(self._now, claims=by_uid, readiness=left, pods=pods))

    def made_for(self, uid: str, pod: str) -> None:
        """Sets the name of the pod that a recorded claim was made for."""
        with self._changed:
            if uid in self._now.claims and self._now.pods.get(uid) != pod:
                self._set(replace(self._now, pods={**self._now.pods, uid: pod}))

    def set_up(self, claim: NodeClaim, made: Mapping[Identity, Made]) -> None:
        """Sets that a claim has what it needs, and what was made for it."""
        instances = {
            identity.name: instance
            for identity, instance in made.items()
            if isinstance(instance, MadeInstance)
        }
        limited = frozenset(
            identity.gpu for identity, limit in made.items() if isinstance(limit, MadeLimit)
        )
        mps = any(isinstance(daemon, MadeMps) for daemon in made.values())
        self._set_readiness(claim, SetUp(instances, limited, mps))

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        """Sets that what a claim needs could not be checked and restored.

        If its GPU has a problem, the claim stays what it was: the condition Healthy speaks of that.
        """
        if not isinstance(failure, DeviceUnhealthy):
            self._set_readiness(claim, NotSetUp(str(failure)))
        elif claim.uid not in self._now.readiness:
            self._set_readiness(claim, NotChecked())

    def gpus_seen(self, inventory: Inventory) -> None:
        """Sets the GPUs."""
        gpus = GpusNow(inventory)
        with self._changed:
            self._set(replace(self._now, gpus=gpus))

    def shares_seen(self, standings: Standings) -> None:
        """Sets how it is with the shares."""
        with self._changed:
            self._set(replace(self._now, standings=standings))

    def stop(self) -> None:
        """Ends all waiting."""
        with self._changed:
            self._set(replace(self._now, stopped=True))

    def wake(self) -> None:
        """Lets everybody who waits look again."""
        with self._changed:
            self._set(self._now)

    def wait(self, version: int, timeout: float) -> ClaimsNow:
        """Returns the state once it is not that of `version`, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._now.version != version or self._now.stopped, timeout
            )
            return self._now

    def pause(self, seconds: float) -> None:
        """Waits for this time, or until the plugin stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._now.stopped, seconds)

    def _set_readiness(self, claim: NodeClaim, how: Readiness) -> None:
        with self._changed:
            if self._now.readiness.get(claim.uid) != how:
                readiness = {**self._now.readiness, claim.uid: how}
                self._set(replace(self._now, readiness=readiness))

    def _set(self, state: ClaimsNow) -> None:
        self._now = replace(state, version=self._now.version + 1)
        self._changed.notify_all()

"""Which pods are evicted since a device of theirs has a taint with the effect NoExecute.

kube-controller-manager evicts the pods that name a claim with such a device. It does not look at
the claims that kube-scheduler makes for extended resources (kubernetes #141290), so the controller
evicts the pods of these: those of queues, and others only by a setting.

Disruption budgets are asked first. What the pod does on such a device is lost in any case, so a
budget that refuses its eviction is respected for a time only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final

from carina_dra.allocator.taint import eviction_time
from carina_dra.allocator.usage import DeviceId
from carina_dra.kube.errors import ServerError, TooManyRequests, Unavailable
from carina_dra.resource import DeviceTaint
from controller.engine.state.tainted import TaintedDevices
from controller.observe.mirror import CLAIMS, Mirror
from controller.observe.planned_claims import is_special
from controller.observe.pod import ObservedPod
from controller.report.rate import TokenBucket

RATE: Final = 5.0
"""Evictions of the pods of one namespace, a second."""
BURST: Final = 50
_RETRY: Final = 5.0
"""Seconds before a refused eviction is tried again."""


@dataclass(frozen=True, slots=True)
class DeviceEviction:
    """A pod is evicted for a taint of a device that it has."""

    pod: ObservedPod
    device: DeviceId
    taint: DeviceTaint
    grace: float
    """The longest grace period that it gets, in seconds: that of its queue, or infinite."""
    past_budgets: bool = False
    """Whether disruption budgets that refuse it are not respected any more."""


@dataclass(frozen=True, slots=True)
class _Due:
    """Why a pod is evicted, and from when on, as a Unix time."""

    pod: ObservedPod
    device: DeviceId
    taint: DeviceTaint
    at: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """The API server has not evicted a pod."""

    uid: str
    refused: float
    """Since when disruption budgets have refused it, as a Unix time; infinite if none has."""
    retry: float
    """When it is asked again, as a Unix time."""


@dataclass(slots=True)
class DeviceEvictions:
    """What the taints of devices evict, and when. Used by one thread."""

    mirror: Mirror
    evicts_unqueued: bool
    """Whether pods without a queue are evicted, too."""
    grace: float
    """Seconds for which disruption budgets are respected that refuse an eviction."""
    wake: float | None = None
    """When the next eviction is due that was not at the last look, as a Unix time."""
    _to_look: dict[str, None] = field(default_factory=dict)
    """The claims of which something has changed since they were looked at, or at which that failed;
    that is tried again later."""
    _known: dict[str, _Due] = field(default_factory=dict)
    """By claim: whom it evicts, and when."""
    _failures: dict[str, _Failure] = field(default_factory=dict)
    """By pod that is to be evicted."""
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)
    """By namespace of which pods have been evicted lately."""

    def due(self, now: float) -> Iterator[DeviceEviction]:
        """The evictions to be asked for now: as many of each namespace as its rate allows."""
        self.wake = None
        self._look()
        if not (self._known or self._failures or self._buckets):
            return
        evicting = self.mirror.evicting
        found = [
            self._known[key]
            for key in sorted(self._known)
            if self._known[key].pod.key not in evicting
        ]
        self._forget(found, now)
        for due in found:
            failure = self._failures.get(due.pod.key)
            at = due.at if failure is None else max(due.at, failure.retry)
            bucket = self._bucket_of(due.pod.namespace)
            if at > now:
                self._wake_at(at)
            elif bucket.take(now):
                past = failure is not None and failure.refused + self.grace <= now
                yield self._eviction(due, past_budgets=past)
            else:
                self._wake_at(now + bucket.wait(now))

    def fail(self, pod: ObservedPod, error: Exception, now: float) -> None:
        """Records that an eviction has failed; it is tried again later."""
        known = self._failures.get(pod.key)
        refused = inf if known is None or known.uid != pod.uid else known.refused
        if _is_refusal(error):
            refused = min(refused, now)
        self._failures[pod.key] = _Failure(pod.uid, refused, now + _RETRY)

    def _look(self) -> None:
        """Looks at the claims of which something has changed since the last time."""
        tainted = self.mirror.state.tainted
        turned = tainted.take_turned()
        if turned is None:
            self._known.clear()
            self._to_look.clear()
            turned = tainted.evicted_claims()
        self._to_look |= dict.fromkeys(turned)
        attempt = self.mirror.set_aside.attempt_when_due
        for key in tuple(self._to_look):
            look = partial(self._look_at, tainted, key)
            if attempt(CLAIMS, key, "looked at for taints", look):
                del self._to_look[key]

    def _look_at(self, tainted: TaintedDevices, key: str) -> None:
        """Finds out whether a claim for the extended resources of a pod evicts it, and when."""
        self._known.pop(key, None)
        mirror = self.mirror
        claim = mirror.claims.get(key)
        if claim is None or claim.status.allocation is None:
            return
        pods = [pod for pod in mirror.users_of(key) if self._may_go(pod) and is_special(claim, pod)]
        if not pods:
            return
        soonest: _Due | None = None
        for result in claim.status.allocation.devices.results:
            for taint in tainted.evicting(result):
                at = eviction_time(taint, result.tolerations)
                if at < (inf if soonest is None else soonest.at):
                    device = DeviceId(result.driver, result.pool, result.device)
                    soonest = _Due(pods[0], device, taint, at)
        if soonest is not None:
            self._known[key] = soonest

    def _eviction(self, due: _Due, *, past_budgets: bool) -> DeviceEviction:
        queues, queue = self.mirror.roster.queues, due.pod.queue
        longest = inf if queue is None else queues.eviction_grace(queue)
        return DeviceEviction(due.pod, due.device, due.taint, longest, past_budgets)

    def _may_go(self, pod: ObservedPod) -> bool:
        if pod.queue is None and not self.evicts_unqueued:
            return False
        return not pod.is_held and pod.succeeded is None and pod.deleted is None

    def _bucket_of(self, namespace: str) -> TokenBucket:
        return self._buckets.setdefault(namespace, TokenBucket(rate=RATE, burst=BURST))

    def _forget(self, found: Iterable[_Due], now: float) -> None:
        """Forgets pods that are not to be evicted any more, and rates that bound nothing now.

        A pod that is being evicted may be refused yet.
        """
        uids = {due.pod.uid for due in found} | set(self.mirror.evicting.values())
        self._failures = {
            key: failure for key, failure in self._failures.items() if failure.uid in uids
        }
        self._buckets = {
            name: bucket for name, bucket in self._buckets.items() if bucket.wait(now, BURST) > 0
        }

    def _wake_at(self, at: float) -> None:
        self.wake = at if self.wake is None else min(self.wake, at)


def _is_refusal(error: Exception) -> bool:
    """Whether disruption budgets refuse an eviction: one does (429), or there are several (500)."""
    is_server_error = isinstance(error, ServerError) and not isinstance(error, Unavailable)
    return isinstance(error, TooManyRequests) or is_server_error

"""Writes what was decided: many objects at the same time, never more than a bound.

Nothing waits for one object. What the API server answers is delivered as if a watch had shown it,
so that the next decision knows it. A commit ends when all of its writes have ended: `Committed`,
or `CommitFailed` with the first error, after which nothing more of it is written. Everything that
is begun has exactly one end, unless the writer is closed.

What a failed write has left of a claim or pod is read, however long the API server does not answer:
devices that may have been given must not be given again. A write whose outcome is unknown may be
carried out even later, by an API server that was paused. So the object gets another version, which
refuses it.

An eviction that is carried out late has no such fence: its pod has not changed. It does no more
harm than if it had been carried out in time, before what it made room for went away.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias, TypeVar, assert_never

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client, MergePatch, Preconditions
from carina_dra.kube.errors import (
    ApiError,
    ApiOperation,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from carina_dra.resource import ResourceClaim, decode
from controller.act import patch
from controller.act.commit import ClaimStart, ClaimUse, ClaimWrite, Commit, PodStart, Release
from controller.act.device_eviction import DeviceEviction
from controller.act.takeover import Unsettled
from controller.engine.model.plan import Eviction
from controller.names import DELETE_PROTECTION
from controller.observe.pod import ObservedPod
from controller.report.metrics import ControllerMetrics, Write

_TIMEOUT: Final = 10.0
"""Seconds for one write."""
_MOST_CONFLICTS: Final = 5
"""How often a condition of a pod is tried to be written, which others change meanwhile."""
_MOST_REFUSALS: Final = 5
"""Answers other than that an object is gone, after which nothing more is learnt about it."""
_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


class NotLeading(ApiError):  # noqa: N818 - named like the API server's reasons
    """The write was not sent, since what it was decided on may hold no more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The API server has stored an object."""

    resource: ApiResource
    body: Body


@dataclass(frozen=True, slots=True)
class Committed:
    """All of a commit is written."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A commit is not written, or only a part of it."""

    commit: Commit
    error: Exception


@dataclass(frozen=True, slots=True)
class Released:
    """An attempt to take a tentative allocation back has ended."""

    claim: ResourceClaim
    error: Exception | None


@dataclass(frozen=True, slots=True)
class ReservationEnded:
    """An attempt to end the controller's own reservation of a claim has ended."""

    claim: str
    error: Exception | None


@dataclass(frozen=True, slots=True)
class EvictionEnded:
    """An attempt to evict a pod has ended."""

    pod: ObservedPod
    eviction: Eviction | DeviceEviction | None
    """None if its own start is undone by it."""
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Fenced:
    """The attempts to give an object another version have ended."""

    unsettled: Unsettled
    error: Exception | None = None


WriteOutcome: TypeAlias = (
    Stored | Committed | CommitFailed | Released | ReservationEnded | EvictionEnded | Fenced
)


@dataclass(slots=True)
class _Progress:
    """A commit that is being written. Guarded by the writer's lock."""

    commit: Commit
    left: int
    error: Exception | None = None
    claims_done: bool = False


class Writer:
    """Writes in a pool. `deliver` is called by any of its threads, and should return soon."""

    def __init__(
        self,
        client: Client,
        deliver: Callable[[WriteOutcome], None],
        *,
        pool: Executor,
        leading: Callable[[], bool],
        metrics: ControllerMetrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        retry_seconds: float = 1.0,
    ) -> None:
        self._client = client
        self._deliver = deliver
        self._leading = leading
        self._metrics = metrics
        self._now = now
        self._pool = pool
        self._retry_seconds = retry_seconds
        self._closing = threading.Event()
        self._settled = True
        self._lock = threading.Lock()

    @property
    def settled(self) -> bool:
        """Whether none of its own writes is of unknown outcome, evictions aside.

        What the API server refuses to settle counts as settled: the next leader could do no better.
        """
        return self._settled

    def close(self) -> None:
        """Writes nothing more; what is being written may end."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def commit(self, commit: Commit) -> None:
        """Writes a commit: its claims, then its pods."""
        if commit.claims:
            progress = _Progress(commit, left=len(commit.claims))
            for claim in commit.claims:
                self._submit(progress, partial(self._write_claim, claim))
        else:
            self._start_pods(_Progress(commit, left=0))

    def release(self, release: Release) -> None:
        """Takes a tentative allocation back, if none of its pods has lost its gate meanwhile.

        That is asked of the API server: a watch may be late, or the answer to a write be lost.
        """
        claim = release.claim

        def work() -> None:
            for pod in release.pods:
                with suppress(NotFound):
                    self._patch_pod(pod, patch.confirm(pod))
            self._patch_claim(claim, patch.deallocate(claim), status=True)

        self._pool.submit(lambda: self._deliver(Released(claim, _error_of(work))))

    def unreserve(self, claim: ResourceClaim) -> None:
        """Ends the controller's own reservation of a claim."""

        def work() -> None:
            self._patch_claim(claim, patch.unreserve(claim), status=True)

        self._pool.submit(lambda: self._deliver(ReservationEnded(claim.key, _error_of(work))))

    def evict(self, pod: ObservedPod, eviction: Eviction | DeviceEviction | None) -> None:
        """Evicts a pod through the eviction API, which respects disruption budgets.

        One that is being deleted already is deleted again with a shorter grace period, which the
        eviction API would not do.
        """
        longest = None if eviction is None else eviction.grace

        def end() -> None:
            if eviction is not None and eviction.past_budgets:
                is_tainted = isinstance(eviction, DeviceEviction)
                why = patch.DEVICE_TAINTED if is_tainted else patch.RECLAIMED
                self._delete(pod, why, longest)
            elif pod.deleted is not None:
                self._hasten(pod, longest)
            else:
                self._client.create_subresource(
                    PODS,
                    pod.name,
                    "eviction",
                    patch.evict(pod, unchanged=eviction is None, longest=longest),
                    namespace=pod.namespace,
                    timeout=_TIMEOUT,
                )

        def work() -> None:
            with suppress(NotFound):  # it is gone
                try:
                    self._measured(Write.EVICTION, end)
                except Invalid:  # its user has made it so large that nothing can be added to it
                    self._make_room(pod)
                    self._measured(Write.EVICTION, end)

        self._pool.submit(lambda: self._deliver(EvictionEnded(pod, eviction, _error_of(work))))

    def _delete(self, pod: ObservedPod, why: patch.Disruption, longest: float | None) -> None:
        """Deletes a pod although disruption budgets refuse it, and notes in it why."""
        self._note_disruption(ObjectKey(pod.namespace, pod.name), pod.uid, why)
        self._hasten(pod, longest)

    def _note_disruption(self, key: ObjectKey, uid: str, why: patch.Disruption) -> None:
        """Writes the condition DisruptionTarget, whatever else changes the pod meanwhile.

        A tenant may change it again and again, or leave no room; then it is deleted without the
        condition.
        """
        for _ in range(_MOST_CONFLICTS):
            body = self._write(PODS, key, patch.nothing(uid))
            with suppress(Conflict, Invalid):
                self._write(PODS, key, patch.disrupted(body, why, self._now()), "status")
                return

    def _make_room(self, pod: ObservedPod) -> None:
        """Makes a pod smaller, which is to end."""
        key = ObjectKey(pod.namespace, pod.name)
        body = self._write(PODS, key, patch.nothing(pod.uid))
        self._measured(Write.POD, lambda: self._write(PODS, key, patch.smaller(body)))

    def _hasten(self, pod: ObservedPod, longest: float | None) -> None:
        """Deletes a pod; one that is being deleted ends sooner."""
        self._client.delete(
            PODS,
            pod.name,
            namespace=pod.namespace,
            preconditions=Preconditions(uid=pod.uid),
            grace_period_seconds=patch.seconds_of_grace(pod, longest),
            timeout=_TIMEOUT,
        )

    def fence(self, unsettled: Unsettled, *, until: float) -> None:
        """Gives an object another version, which is tried until a monotonic time."""
        changes = patch.fence(unsettled.uid, self._now())

        def work() -> None:
            self._learn(
                lambda: self._write(unsettled.resource, unsettled.key, changes), until=until
            )

        def fence() -> None:
            self._deliver(Fenced(unsettled, _error_of(work)))

        self._pool.submit(fence)

    def _submit(self, progress: _Progress, write: Callable[[], None]) -> None:
        def work() -> None:
            error = _error_of(write) if progress.error is None else None
            with self._lock:
                progress.error = progress.error or error
                progress.left -= 1
                ended = progress.left == 0
            if ended:
                self._proceed(progress)

        self._pool.submit(work)

    def _proceed(self, progress: _Progress) -> None:
        """Goes on when all writes of a step have ended."""
        if progress.error is not None:
            self._deliver(CommitFailed(progress.commit, progress.error))
        elif progress.claims_done or not progress.commit.claims:
            self._deliver(Committed(progress.commit))
        else:
            self._start_pods(progress)

    def _start_pods(self, progress: _Progress) -> None:
        pods = progress.commit.pods
        progress.claims_done = True
        progress.left = len(pods)
        if not pods:
            self._deliver(Committed(progress.commit))
        for pod in pods:
            self._submit(progress, partial(self._start_pod, pod))

    def _write_claim(self, write: ClaimWrite) -> None:
        match write:
            case ClaimStart():
                self._start_claim(write)
            case ClaimUse(claim, consumers):
                self._patch_claim(claim, patch.reserve_for(claim, consumers), status=True)
            case _:
                assert_never(write)

    def _start_claim(self, start: ClaimStart) -> None:
        claim = start.claim
        if DELETE_PROTECTION not in claim.metadata.finalizers:
            claim = self._patch_claim(claim, patch.protect(claim), status=False)
        body = patch.allocate(claim, start.allocation, start.consumers, self._now())
        self._patch_claim(claim, body, status=True)

    def _patch_claim(
        self, claim: ResourceClaim, body: patch.Json, *, status: bool
    ) -> ResourceClaim:
        metadata = claim.metadata
        key = ObjectKey(metadata.namespace, metadata.name)
        kind = Write.CLAIM_STATUS if status else Write.CLAIM
        stored = self._patch(
            kind, RESOURCE_CLAIMS, key, metadata.uid, body, "status" if status else None
        )
        return decode(ResourceClaim, stored)

    def _start_pod(self, start: PodStart) -> None:
        self._patch_pod(
            start.pod,
            patch.admit(start.pod, start.node, start.group, is_chosen_for=start.is_chosen_for),
        )

    def _patch_pod(self, pod: ObservedPod, body: patch.Json) -> None:
        self._patch(Write.POD, PODS, ObjectKey(pod.namespace, pod.name), pod.uid, body)

    def _patch(
        self,
        kind: Write,
        resource: ApiResource,
        key: ObjectKey,
        uid: str,
        body: patch.Json,
        subresource: str | None = None,
    ) -> Body:
        try:
            return self._measured(kind, lambda: self._write(resource, key, body, subresource))
        except Conflict:
            self._settle(lambda: self._write(resource, key, patch.nothing(uid)))
            raise
        except (ServerError, Unreachable):
            self._settle(lambda: self._write(resource, key, patch.fence(uid, self._now())))
            raise

    def _write(
        self,
        resource: ApiResource,
        key: ObjectKey,
        changes: patch.Json,
        subresource: str | None = None,
    ) -> Body:
        stored = self._client.patch(
            resource,
            key.name,
            MergePatch(changes),
            namespace=key.namespace,
            subresource=subresource,
            timeout=_TIMEOUT,
        )
        self._deliver(Stored(resource, stored))
        return stored

    def _settle(self, ask: Callable[[], Body]) -> None:
        """Learns what became of a write, and knows if that cannot be learnt."""
        if not self._learn(ask):
            self._settled = False

    def _learn(self, ask: Callable[[], Body], *, until: float = math.inf) -> bool:
        """Learns what is stored, which may be what was written, or what somebody else has.

        False if nobody has answered until the end.

        An API server that does not answer is asked until it does, or until a monotonic time. One
        that refuses it is asked a few times: users can see to it that it always does.
        """
        refusals = 0
        while not self._closing.is_set() and time.monotonic() < until:
            try:
                ask()
            except (NotFound, Conflict):
                return True  # it is gone, or was created again
            except (Unreachable, Unavailable, TooManyRequests):
                pass
            except ApiError as error:
                refusals += 1
                # What is invalid stays so. Others are refused for a while: 403 by one that starts.
                if refusals == _MOST_REFUSALS or isinstance(error, Invalid | BadRequest):
                    _log.warning("a write may still be carried out", extra={"error": str(error)})
                    return True
            else:
                return True
            self._closing.wait(self._retry_seconds)
        return False

    def _measured(self, kind: Write, write: Callable[[], _Answer]) -> _Answer:
        with self._metrics.writing(kind):
            if not self._leading():
                raise NotLeading(ApiOperation("write", kind.value), "another process may lead now")
            return write()


def _error_of(work: Callable[[], None]) -> Exception | None:
    """Does work, and gives the error with which it ended."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - what is begun must have an end, which has the error
        return error
    return None

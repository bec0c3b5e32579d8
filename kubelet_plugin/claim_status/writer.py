"""Writes `status.devices` of the claims on this node, and has users told of what changes.

One thread writes, at a bounded rate, after a claim was prepared: no call of the kubelet waits for
it or fails with it. A claim has one status, however many pods share it. It is read before it is
written: what it says already is not written again, such as after a restart of the plugin. Entries
are written by server-side apply with the driver as field manager, so that those of other drivers
stay, and they are taken back when the claim is unprepared. What failed is tried again later, less
often while everything fails; a claim that has not failed waits for none that has.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body
from carina_dra.kube.client import ApplyPatch, Client
from carina_dra.kube.errors import ApiError, Conflict, NotFound
from carina_dra.kube.timestamp import timestamp
from carina_dra.resource import ConsumerReference, DecodeError, ResourceClaim, decode
from kubelet_plugin.claim_status.device_status import (
    DeviceStatus,
    completed,
    device_statuses,
    read_statuses,
    rendered,
)
from kubelet_plugin.claim_status.health_notice import HealthNotice, notices
from kubelet_plugin.claim_status.live_claims import ClaimsNow, LiveClaims
from kubelet_plugin.claims.claim import ClaimReference

_PACE: Final = 0.2
"""Seconds between two claims: 5 a second, of a read and a write each."""
_BURST: Final = 4
_WINDOW: Final = 60.0
"""A claim is written 4 times in these seconds at most, so that a flaky GPU costs few writes."""
_AGAIN: Final = 15.0
"""Seconds after which a claim is tried again that could not be read or written."""
_REFUSED: Final = 300.0
"""Seconds after which a write that was refused is tried again: permissions may be granted."""
_TIMEOUT: Final = 5.0

_log = logging.getLogger(__name__)


class ClaimApi(Protocol):
    """Reads and patches claims."""

    def read(self, claim: ClaimReference) -> Body:
        """Returns the claim; raises ApiError."""

    def apply_status(self, claim: ClaimReference, patch: ApplyPatch) -> None:
        """Applies the status of the claim; raises ApiError."""


class ClaimStatuses:
    """The ClaimApi of an API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, claim: ClaimReference) -> Body:
        """Returns the claim; raises ApiError."""
        return self._client.get(
            RESOURCE_CLAIMS, claim.name, namespace=claim.namespace, timeout=_TIMEOUT
        )

    def apply_status(self, claim: ClaimReference, patch: ApplyPatch) -> None:
        """Applies the status of the claim; raises ApiError."""
        self._client.patch(
            RESOURCE_CLAIMS,
            claim.name,
            patch,
            namespace=claim.namespace,
            subresource="status",
            timeout=_TIMEOUT,
        )


class StatusReporter(Protocol):
    """Reports to users and operators. Called by the writer's thread."""

    def status_written(self) -> None:
        """Reports that the status of a claim was written."""

    def status_not_written(self, claim: ClaimReference, error: ApiError) -> None:
        """Reports that a write failed; it is tried again."""

    def health_changed(
        self,
        claim: ClaimReference,
        consumers: Sequence[ConsumerReference],
        noticed: Iterable[HealthNotice],
    ) -> None:
        """Reports what changed to those who use the claim."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a claim's status says, as far as it is known."""

    claim: ClaimReference
    statuses: tuple[DeviceStatus, ...] | None
    """None before it was read."""
    next_at: float
    """When it may be written next."""
    again: bool = False
    """Whether it is to be written again, although nothing changes."""
    recent: tuple[float, ...] = ()
    """When it was written, the last few times."""

    def says(self, wanted: Iterable[DeviceStatus]) -> bool:
        """Returns whether nothing is left to be said."""
        return (
            not self.again
            and self.statuses is not None
            and completed(wanted, self.statuses) == self.statuses
        )


class ClaimStatusWriter:
    """Keeps the status of the claims on this node as it should be."""

    def __init__(
        self,
        claims: LiveClaims,
        api: ClaimApi,
        *,
        driver: str,
        reporter: StatusReporter,
        clock: Callable[[], float],
        now: Callable[[], float],
        pause: Callable[[float], object],
        backoff: Backoff | None = None,
    ) -> None:
        """`clock` is monotonic, in seconds; `now` is the time in Unix seconds.

        `pause` waits for a number of seconds, or until the plugin stops.
        """
        self._claims = claims
        self._api = api
        self._driver = driver
        self._reporter = reporter
        self._clock = clock
        self._now = now
        self._pause = pause
        self._backoff = backoff or Backoff(initial=1.0, cap=60.0)
        self._told: dict[str, _Told] = {}
        self._retry_at = 0.0
        """When a claim that failed may be tried again; no other claim waits for it."""

    def start(self) -> None:
        """Starts the thread, which ends when the claims are stopped."""
        threading.Thread(target=self._run, name="claim-status", daemon=True).start()

    def _run(self) -> None:
        while not (seen := self._claims.now).stopped:
            try:
                patience = self.write_due(seen)
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
                _log.exception("the status of claims cannot be written; retrying")
                self._pause(self._backoff.next())
                continue
            self._claims.wait(seen.version, patience)

    def write_due(self, seen: ClaimsNow) -> float:
        """Writes the status of the claims that are due, until something changes.

        Returns the seconds after which more may be due, if nothing changes.
        """
        soonest = _REFUSED
        left = [
            (self._told.get(claim.uid) or _Told(claim, None, 0.0), wanted)
            for claim, wanted in self._wanted(seen)
        ]
        for told, wanted in sorted(left, key=lambda entry: entry[0].next_at):
            if told.says(wanted):
                continue
            if (wait := self._wait(told)) > 0:
                soonest = min(soonest, wait)
                continue
            self._write(told.claim, wanted, told)
            if self._claims.now.version != seen.version:
                return 0.0
            if (now := self._told.get(told.claim.uid)) is not None and now.again:
                soonest = min(soonest, max(0.0, self._wait(now)))
        return soonest

    def _wait(self, told: _Told) -> float:
        """Returns the seconds until a claim is due. One that failed waits for the API server."""
        due = max(told.next_at, self._retry_at) if told.again else told.next_at
        return due - self._clock()

    def _wanted(self, seen: ClaimsNow) -> Iterator[tuple[ClaimReference, tuple[DeviceStatus, ...]]]:
        """Returns what is to be said of each claim; nothing of one that is recorded no longer."""
        for uid, told in tuple(self._told.items()):
            if uid not in seen.claims:
                yield told.claim, ()
        if seen.gpus.inventory is None:
            return
        for uid, readiness in seen.readiness.items():
            claim = seen.claims[uid]
            yield claim.reference, device_statuses(claim, readiness, seen.gpus, seen.standings)

    def _write(self, claim: ClaimReference, wanted: tuple[DeviceStatus, ...], told: _Told) -> None:
        """Writes the status of a claim, unless it says what is wanted."""
        at = self._clock()
        recent = (*told.recent, at)[-_BURST:]
        try:
            said, refused = self._tell(claim, wanted, told.statuses)
        except ApiError as error:
            self._reporter.status_not_written(claim, error)
            self._told[claim.uid] = replace(told, next_at=at + _AGAIN, again=True)
            self._retry_at = at + self._backoff.next()
            self._pause(_PACE)
            return
        self._backoff.reset()
        self._retry_at = at
        if refused:
            self._told[claim.uid] = _Told(claim, said, at + _REFUSED, again=True, recent=recent)
        elif said:
            next_at = recent[0] + _WINDOW if len(recent) == _BURST else at
            self._told[claim.uid] = _Told(claim, said, next_at, recent=recent)
        else:
            self._told.pop(claim.uid, None)
        self._pause(_PACE)

    def _tell(
        self,
        claim: ClaimReference,
        wanted: tuple[DeviceStatus, ...],
        before: tuple[DeviceStatus, ...] | None,
    ) -> tuple[tuple[DeviceStatus, ...], bool]:
        """Returns what is said of the claim now, and whether the API server refused to store it.

        Raises:
            ApiError: the claim cannot be read, or it is to be tried again.
        """
        found = self._read(claim)
        if found is None:
            return completed(wanted, ()), False
        if (pod := _only_pod(found)) is not None:
            self._claims.made_for(claim.uid, pod)
        present = read_statuses(found.status.devices, self._driver)
        allocated = _allocated(found, self._driver)
        said = completed((status for status in wanted if status.key in allocated), present)
        stored = _by_key(said) == _by_key(present) or self._apply(claim, said, found)
        noticed = notices(present if before is None else before, said)
        if noticed:
            self._reporter.health_changed(claim, found.status.reserved_for, noticed)
        return completed(wanted, said), not stored

    def _read(self, claim: ClaimReference) -> ResourceClaim | None:
        """Returns the claim; None if it does not exist any more.

        Raises:
            ApiError: it cannot be read.
        """
        try:
            found = decode(ResourceClaim, self._api.read(claim))
        except NotFound:
            return None
        except DecodeError as error:
            _log.warning("a claim cannot be read", extra={"claim": claim.key, "why": str(error)})
            return None
        return found if found.metadata.uid == claim.uid else None

    def _apply(
        self, claim: ClaimReference, said: Sequence[DeviceStatus], found: ResourceClaim
    ) -> bool:
        """Writes the status of a claim; returns whether the API server stored it.

        Raises:
            ApiError: it is to be tried again.
        """
        devices = rendered(said, self._driver, found.status.devices, timestamp(self._now()))
        body = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": devices} if devices else {},
        }
        try:
            self._api.apply_status(claim, ApplyPatch(body, self._driver))
        except NotFound:
            return True  # and what does not exist says nothing
        except ApiError as error:
            if error.retriable or isinstance(error, Conflict):
                raise
            self._reporter.status_not_written(claim, error)
            return False
        self._reporter.status_written()
        return True


def _only_pod(claim: ResourceClaim) -> str | None:
    """Returns the name of the pod that alone can use the claim, since the claim was made for it.

    Such a claim is owned by its pod, and reserved for it: one of a template (KEP-3063), and one for
    extended resources (KEP-5004). Other claims may get further pods at any time.
    """
    owners = {owner.uid for owner in claim.metadata.owner_references if owner.kind == "Pod"}
    match claim.status.reserved_for:
        case [ConsumerReference(api_group="", resource="pods") as pod] if pod.uid in owners:
            return pod.name
        case _:
            return None


def _allocated(claim: ResourceClaim, driver: str) -> frozenset[tuple[str, str, str | None]]:
    """Returns what identifies the driver's devices that the claim has; others are refused."""
    allocation = claim.status.allocation
    results = () if allocation is None else allocation.devices.results
    return frozenset(
        (result.pool, result.device, result.share_id)
        for result in results
        if result.driver == driver
    )


def _by_key(statuses: Iterable[DeviceStatus]) -> Mapping[object, DeviceStatus]:
    return {status.key: status for status in statuses}

"""Leader election with a Lease: of several processes, at most one leads at any time.

These rules keep two processes from leading at once:
- Clocks of different machines are never compared. A lease has expired when its record has not
  changed for its duration, measured on the observer's own monotonic clock.
- A leader leads until `renew_deadline` after the start of its last successful renewal. A failed
  attempt, for whatever reason, does not change this, and no attempt lasts beyond the deadline.
- `renew_deadline` is shorter than the duration of the lease by the time that the work has to stop,
  so it has stopped before another process may lead.
- Every write has the version that was read, so if two processes write, one fails.
- Work that asks `leading` before each write writes nothing after a pause beyond the deadline, if it
  was not paused right after the question. The versions of what it writes are no protection: another
  leader may have changed other objects. So unless the lease `was_released`, the work has to see to
  it that no earlier write can be carried out any more.

A leader that stops in an orderly way clears the holder, so that the next one need not wait.
https://kubernetes.io/docs/concepts/architecture/leases/
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from carina_dra.kube.api_resource import LEASES
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import TIMEOUT, Client
from carina_dra.kube.errors import ApiError, Conflict, NotFound
from carina_dra.kube.timestamp import micro_time

_RELEASE_TIMEOUT = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """In seconds: how long a lease is valid, when a leader gives up, how often it tries.

    Raises:
        ValueError: there is no time for a retry, or none for the work to stop.
    """

    duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise ValueError(f"{self}: 0 < retry_period < renew_deadline < duration must hold")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease. Its times are by the holder's clock, for people to read."""

    holder: str
    duration: int
    acquired_at: str
    renewed_at: str
    transitions: int

    @classmethod
    def of(cls, body: Body) -> "LeaseRecord":
        """The record of a Lease; the holder may be empty."""
        spec = body.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration=spec.get("leaseDurationSeconds") or 0,
            acquired_at=spec.get("acquireTime") or "",
            renewed_at=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
        )

    def held_by(self, identity: str, timing: LeaseTiming, now: float) -> "LeaseRecord":
        """The record after `identity` has taken or renewed the lease."""
        time_now = micro_time(now)
        if identity == self.holder:
            return replace(self, duration=timing.duration, renewed_at=time_now)
        return LeaseRecord(identity, timing.duration, time_now, time_now, self.transitions + 1)

    def released(self, now: float) -> "LeaseRecord":
        """The record after its holder has released it. One second is the shortest duration."""
        return replace(self, holder="", duration=1, renewed_at=micro_time(now))

    def spec(self) -> Body:
        """The record as the spec of a Lease."""
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration,
            "acquireTime": self.acquired_at,
            "renewTime": self.renewed_at,
            "leaseTransitions": self.transitions,
        }


NO_RECORD = LeaseRecord(holder="", duration=0, acquired_at="", renewed_at="", transitions=-1)
"""The record before the first holder."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A Lease, its record, and the monotonic time since which the record has not changed."""

    body: Body
    record: LeaseRecord
    since: float

    def free_for(self, identity: str, now: float) -> bool:
        """Whether `identity` may take the lease: it has no holder, is its own, or has expired."""
        return self.record.holder in ("", identity) or now >= self.since + self.record.duration


def observe(body: Body, previous: Observation | None, now: float) -> Observation:
    """The observation after the Lease was read at the time `now`."""
    record = LeaseRecord.of(body)
    if previous is not None and previous.record == record:
        return Observation(body, record, previous.since)
    return Observation(body, record, now)


class LeadershipEnd(Enum):
    """Why `LeaderElector.run` has ended."""

    STOPPED = "stopped"
    LOST = "lost"


class WorkNotStopped(RuntimeError):  # noqa: N818 - names the state
    """The work continues although the lease is lost. End the process: another may lead now."""


class LeaderElector:
    """Leads while it holds a Lease. `identity` must be unique among the candidates."""

    def __init__(
        self,
        client: Client,
        lease: ObjectKey,
        identity: str,
        *,
        timing: LeaseTiming = LeaseTiming(),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._lease = lease
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._now = now
        self._draw = draw
        self._observation: Observation | None = None
        self._leads_until = -math.inf
        self._was_released = False
        self.releases = True
        """Whether the lease is released at an orderly end. The work sets it: a lease that expires
        tells the next leader that something of this one may still be carried out."""

    @property
    def was_released(self) -> bool:
        """Whether the last leader has released the lease, so that none of its work goes on.

        False if the lease has expired, and if there was none: it may have been deleted.
        """
        return self._was_released

    @property
    def leading(self) -> bool:
        """Whether this process leads now. Any thread may ask, best right before each write.

        False as soon as a process continues that was paused beyond its deadline, although its work
        has not been stopped yet.
        """
        return self._clock() < self._leads_until

    def run(
        self, work: Callable[[threading.Event], None], stopping: threading.Event
    ) -> LeadershipEnd:
        """Waits for the lease, then calls `work` and renews the lease until the work ends.

        `work` runs in a thread of its own. It must return soon after the event that it gets is
        set. An exception that it raises is raised here, after the lease was released, if it
        `releases`.

        Raises:
            WorkNotStopped: the lease is lost, and `work` has not returned in time.
        """
        while (renewed_at := self._attempt(deadline=None)) is None:
            # Random, so that the candidates do not all try at once.
            if stopping.wait(self._timing.retry_period * (1 + self._draw())):
                return LeadershipEnd.STOPPED
        _log.info("leading", extra={"lease": str(self._lease), "identity": self._identity})
        self._leads_until = renewed_at + self._timing.renew_deadline
        try:
            return self._lead(_Work(work), stopping)
        finally:
            self._leads_until = -math.inf

    def _lead(self, work: "_Work", stopping: threading.Event) -> LeadershipEnd:
        timing = self._timing
        time_to_stop = timing.duration - timing.renew_deadline
        while not work.ended:
            deadline = self._leads_until
            remaining = deadline - self._clock()
            if remaining <= 0 or self._held_by_another():
                _log.warning(
                    "leadership lost", extra={"lease": str(self._lease), "identity": self._identity}
                )
                work.stop(timeout=deadline + time_to_stop - self._clock())
                return LeadershipEnd.LOST
            if stopping.wait(min(timing.retry_period, remaining)):
                break
            renewed_at = self._attempt(deadline=deadline)
            if renewed_at is not None:
                self._leads_until = renewed_at + timing.renew_deadline
        try:
            work.stop(timeout=self._leads_until + time_to_stop - self._clock())
        finally:
            if work.ended and self.releases:
                self._release()
        return LeadershipEnd.STOPPED

    def _held_by_another(self) -> bool:
        seen = self._observation
        return seen is not None and seen.record.holder not in ("", self._identity)

    def _attempt(self, *, deadline: float | None) -> float | None:
        """Takes or renews the lease. Returns when the attempt began; None if it failed.

        Who was paused beyond the deadline does not try: its work has to stop first.
        """
        began = self._clock()
        if deadline is not None and began >= deadline:
            return None
        try:
            taken = self._take(deadline)
        except ApiError as error:
            _log.warning("lease not taken or renewed", extra={"error": str(error)})
            return None
        return began if taken else None

    def _take(self, deadline: float | None) -> bool:
        """Reads the Lease unless it is known to be ours, and writes it if it is free."""
        if self._observation is None or self._observation.record.holder != self._identity:
            try:
                body = self._client.get(
                    LEASES,
                    self._lease.name,
                    namespace=self._lease.namespace,
                    timeout=self._timeout(deadline),
                )
            except NotFound:
                self._write(self._client.create, self._new_lease(), NO_RECORD, deadline)
                self._was_released = False
                return True
            self._observation = observe(body, self._observation, self._clock())
        seen = self._observation
        if not seen.free_for(self._identity, self._clock()):
            return False
        try:
            self._write(self._client.replace, seen.body, seen.record, deadline)
        except (Conflict, NotFound):
            self._observation = None  # another candidate was faster: read it again next time
            raise
        if seen.record.holder != self._identity:
            self._was_released = not seen.record.holder
        return True

    def _write(
        self,
        write: Callable[..., Body],
        body: Body,
        record: LeaseRecord,
        deadline: float | None,
    ) -> None:
        record = record.held_by(self._identity, self._timing, self._now())
        spec = (body.get("spec") or {}) | record.spec()
        stored = write(LEASES, body | {"spec": spec}, timeout=self._timeout(deadline))
        self._observation = observe(stored, self._observation, self._clock())

    def _timeout(self, deadline: float | None) -> float:
        """Half of the time to the deadline: a timeout applies to connect and to answer each."""
        return TIMEOUT if deadline is None else max((deadline - self._clock()) / 2, 0.01)

    def _new_lease(self) -> Body:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"namespace": self._lease.namespace, "name": self._lease.name},
        }

    def _release(self) -> None:
        seen, self._observation = self._observation, None
        if seen is None or seen.record.holder != self._identity:
            return
        spec = seen.body["spec"] | seen.record.released(self._now()).spec()
        try:
            self._client.replace(LEASES, seen.body | {"spec": spec}, timeout=_RELEASE_TIMEOUT)
        except ApiError as error:
            _log.warning("lease not released; it will expire", extra={"error": str(error)})


class _Work:
    """The leader's work, in a thread of its own."""

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self._work = work
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self, *, timeout: float) -> None:
        """Stops the work within `timeout` seconds; raises what it raised, or WorkNotStopped."""
        self._stop.set()
        self._thread.join(max(timeout, 0))
        if not self.ended:
            raise WorkNotStopped(
                "the leader's work continues after its lease was lost: end this process"
            )
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again by `stop`
            self._error = error

"""Prepares and unprepares claims: the state machine behind the kubelet's calls.

A claim is either recorded in the checkpoint or not. Each call changes that durably:

    prepare:    read the claim  ->  record it  ->  create what it needs  ->  respond
    unprepare:  remove what it needed  ->  remove its record  ->  respond

What a recorded claim needs is created again if it is missing, and what no recorded claim needs is
removed: by the next call for the claim, and by `repair`, which runs at the start and periodically.
Therefore a call can be repeated, can be killed at any point, and can follow a reboot of the node.

A call holds the locks of its claim's GPUs from its decision to its end, and the node's lock only
while it decides and records. So a slow GPU delays only the claims on that GPU.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, assert_never

from carina_dra.kube.errors import ApiError, NotFound
from kubelet_plugin.claims.allocation import (
    AllocatedHere,
    AllocationState,
    InvalidAllocation,
    NotAllocatedHere,
    UnknownAllocation,
    read_allocation,
)
from kubelet_plugin.claims.call import Call
from kubelet_plugin.claims.checkpoint import Checkpoint, CheckpointError, conflicting
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.failure import (
    ApiUnavailable,
    CallerGone,
    CheckpointUnusable,
    ClaimError,
    ClaimFailure,
    ClaimGone,
    DeviceHeld,
    LockUnavailable,
)
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.lock import FileLock, GpuLocks, LockError

_LOCK_PATIENCE = 10.0
"""Seconds for which one attempt of a call waits for locks."""
_READ_PATIENCE = 5.0
"""Seconds to wait for the API server if the claim is recorded, or if no call is waiting."""
_FORGOTTEN_DELAY = 600.0
"""Seconds that the kubelet's record must lack a claim before it is read from the API server."""
_READ_INTERVAL = 300.0
"""Seconds between two such reads of a claim, plus up to half of it as jitter."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A resource on the node that possibly no claim needs."""

    kind: str
    name: str
    gpu: str
    """The GPU whose lock protects it; empty if the node's lock does."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class NodePreparer(Protocol):
    """Creates and removes what claims need on the node. Every method is idempotent."""

    def reconcile(self, concerned: Sequence[NodeClaim], live: Collection[NodeClaim]) -> None:
        """Creates or removes what the concerned claims need, so that the node agrees with `live`.

        What a live claim needs and lacks is created. What a claim needed that is not live is
        removed, unless a live claim needs it. Raises ClaimError.
        """

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        """Returns the resources on the node that no live claim needs; raises ClaimError."""

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        """Returns whether a live claim needs the resource."""

    def remove(self, leftover: Leftover) -> None:
        """Removes the resource; raises ClaimError."""

    def owners(self) -> tuple[ClaimReference, ...]:
        """Returns the claims that have a resource on the node; raises ClaimError."""

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        """Returns the devices of a prepared claim, as the kubelet receives them."""


class ClaimReporter(Protocol):
    """Reports what operators should know about claims."""

    def checkpoint_rebuilt(self, kept: str, reason: str, rebuilt: int) -> None:
        """Reports an unreadable checkpoint, kept as `kept`, and how many claims were restored."""

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        """Reports that a prepared claim lacks something that could not be created."""

    def leftover_not_removed(self, leftover: str, failure: ClaimFailure) -> None:
        """Reports, once per reason, that a resource that no claim needs could not be removed."""

    def kubelet_record_unusable(self, reason: str) -> None:
        """Reports, once per reason, that the kubelet's record cannot be read."""

    def claim_abandoned(self, claim: NodeClaim) -> None:
        """Reports that a claim was unprepared without a call from the kubelet."""

    def prepared_claims(self, count: int) -> None:
        """Reports the number of recorded claims."""


class ClaimLifecycle:
    """The claims prepared on this node."""

    def __init__(
        self,
        *,
        driver: str,
        pool: str,
        boot_id: str,
        read_claim: Callable[[ClaimReference, float], Mapping[str, object]],
        read_kubelet_record: Callable[[], KubeletRecord | UnreadableRecord],
        checkpoint: CheckpointFile,
        node_lock: FileLock,
        gpu_locks: GpuLocks,
        preparer: NodePreparer,
        reporter: ClaimReporter,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        """`read_claim` reads a ResourceClaim within a number of seconds; it raises ApiError.

        `clock` is monotonic, in seconds; `random` returns numbers from 0 to 1.
        """
        self._driver = driver
        self._pool = pool
        self._boot_id = boot_id
        self._read_claim = read_claim
        self._read_kubelet_record = read_kubelet_record
        self._file = checkpoint
        self._node_lock = node_lock
        self._gpu_locks = gpu_locks
        self._preparer = preparer
        self._reporter = reporter
        self._clock = clock
        self._random = random
        self._latest_claims: Mapping[str, NodeClaim] = {}
        self._forgotten_since: dict[str, float] = {}
        self._next_read: dict[str, float] = {}
        self._not_removed: dict[Leftover, str] = {}
        self._record_problem = ""

    def prepare(self, reference: ClaimReference, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepares a claim. If it is prepared already, restores what is missing.

        Raises:
            ClaimError: the claim cannot be prepared.
        """
        claim = self._read_for(call, reference)
        while True:
            with self._gpus(reference.uid, claim.gpus, call.deadline) as waited:
                if waited:  # the claim may have changed meanwhile
                    current = self._read_for(call, reference)
                    if current != claim:
                        claim = current
                        continue
                return self._prepare(claim, call)

    def unprepare(self, reference: ClaimReference, call: Call) -> None:
        """Unprepares a claim, if it is prepared. The claim need not exist in the API any more.

        Raises:
            ClaimError: the claim cannot be unprepared.
        """
        with self._gpus(reference.uid, frozenset(), call.deadline):
            with self._checkpoint() as checkpoint:
                _refuse_abandoned_call(reference, call)
            self._undo(checkpoint, reference)
        self._forgotten_since.pop(reference.uid, None)

    def repair(self) -> None:
        """Makes the node agree with the checkpoint, and the checkpoint with kubelet and API server.

        A failure is reported, does not affect the other claims, and is retried by the next repair.
        Raises nothing.
        """
        try:
            live = self._after_reboot()
        except ClaimError as error:
            _log.warning(
                "prepared claims cannot be checked; retrying later", extra={"reason": str(error)}
            )
            return
        for claim in live:
            try:
                self._repair_claim(claim)
            except ClaimError as error:
                self._reporter.repair_failed(claim, error.failure)
        self._remove_leftovers(live)
        self._unprepare_abandoned(live)

    # --- one call ---

    def _prepare(self, claim: NodeClaim, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepares a claim. The caller holds the locks of its GPUs."""
        with self._checkpoint() as checkpoint:
            _refuse_abandoned_call(claim.reference, call)
            _refuse_conflict(checkpoint, claim)
            before = checkpoint.claims.get(claim.uid)
            if before is None:
                self._store(checkpoint.with_claim(claim))
        if before is not None and before != claim:
            self._replace(checkpoint, before, claim)
        live = checkpoint.with_claim(claim)
        try:
            self._preparer.reconcile((claim,), tuple(live.claims.values()))
        except ClaimError:
            if before is None:
                self._roll_back(live, claim.reference)
            raise
        return self._preparer.prepared_devices(claim)

    def _replace(self, checkpoint: Checkpoint, old: NodeClaim, new: NodeClaim) -> None:
        """Removes what a replaced allocation needed, then replaces its record."""
        others = checkpoint.without(old.uid)
        self._preparer.reconcile((old,), tuple(others.claims.values()))
        with self._checkpoint() as current:
            self._store(current.with_claim(new))

    def _roll_back(self, checkpoint: Checkpoint, reference: ClaimReference) -> None:
        try:
            self._undo(checkpoint, reference)
        except ClaimError as error:
            # The claim is still recorded, so the next call or the next repair continues.
            _log.warning(
                "a failed prepare could not be rolled back; retrying later",
                extra={"claim": reference.key, "reason": str(error)},
            )

    def _undo(self, checkpoint: Checkpoint, reference: ClaimReference) -> None:
        """Removes what a claim needed, then its record. The caller holds the locks of its GPUs."""
        claim = checkpoint.claims.get(reference.uid) or NodeClaim.unknown(reference)
        others = tuple(checkpoint.without(claim.uid).claims.values())
        self._preparer.reconcile((claim,), others)
        if claim.uid in checkpoint.claims:
            with self._checkpoint() as current:
                self._store(current.without(claim.uid))

    def _read_for(self, call: Call, reference: ClaimReference) -> NodeClaim:
        """Reads the claim to prepare; from its record if the API server does not respond.

        The record is as good, because the allocation of a claim that is in use does not change.
        """
        left = call.deadline - self._clock()
        recorded = reference.uid in self._latest_claims
        # Half of the remaining time leaves room for a second attempt if a response is lost.
        patience = _READ_PATIENCE if recorded else max(left / 2, _READ_PATIENCE)
        reading = self._read(reference, max(1.0, min(patience, left)))
        match reading:
            case AllocatedHere(claim):
                return claim
            case NotAllocatedHere(failure) | InvalidAllocation(failure):
                raise ClaimError(failure)
            case UnknownAllocation(failure):
                _log.warning(
                    "a claim cannot be read from the API server; looking for its record",
                    extra={"reason": str(failure)},
                )
                with self._checkpoint() as checkpoint:
                    claim_recorded = checkpoint.claims.get(reference.uid)
                if claim_recorded is None:
                    raise ClaimError(failure)
                return claim_recorded
        assert_never(reading)

    def _read(self, reference: ClaimReference, patience: float) -> AllocationState:
        """Reads the claim's allocation from the API server, waiting at most `patience` seconds."""
        try:
            body = self._read_claim(reference, patience)
        except NotFound:
            return NotAllocatedHere(
                ClaimGone(reference, f"ResourceClaim {reference.key} does not exist")
            )
        except ApiError as error:
            return UnknownAllocation(ApiUnavailable(reference, str(error), error.retriable))
        return read_allocation(body, reference, driver=self._driver, pool=self._pool)

    # --- repairing ---

    def _after_reboot(self) -> tuple[NodeClaim, ...]:
        with self._checkpoint() as checkpoint:
            claims = checkpoint.claims
            if checkpoint.boot_id != self._boot_id:
                _log.info("the node was rebooted", extra={"claims": len(claims)})
                self._store(Checkpoint(self._boot_id, claims))
            self._reporter.prepared_claims(len(claims))
            return tuple(claims.values())

    def _repair_claim(self, claim: NodeClaim) -> None:
        with self._gpus(claim.uid, claim.gpus, self._clock() + _LOCK_PATIENCE):
            with self._checkpoint() as checkpoint:
                if checkpoint.claims.get(claim.uid) != claim:
                    return  # unprepared or replaced meanwhile
            self._preparer.reconcile((claim,), tuple(checkpoint.claims.values()))

    def _remove_leftovers(self, live: Collection[NodeClaim]) -> None:
        try:
            leftovers = self._preparer.leftovers(live)
        except ClaimError as error:
            _log.warning(
                "the node's resources cannot be read; retrying later", extra={"reason": str(error)}
            )
            return
        failures = {}
        for leftover in leftovers:
            try:
                self._remove_leftover(leftover)
            except ClaimError as error:
                failures[leftover] = str(error)
                if self._not_removed.get(leftover) != str(error):
                    self._reporter.leftover_not_removed(str(leftover), error.failure)
        self._not_removed = failures

    def _remove_leftover(self, leftover: Leftover) -> None:
        """Removes a leftover, unless a call that came meanwhile needs it."""
        gpus = frozenset({leftover.gpu} - {""})
        with self._locked_gpus(gpus, self._clock() + _LOCK_PATIENCE):
            with self._checkpoint() as checkpoint:
                if self._preparer.is_needed(leftover, tuple(checkpoint.claims.values())):
                    return
                _log.info(
                    "removing a node resource that no claim needs",
                    extra={"leftover": str(leftover)},
                )
                if not leftover.gpu:
                    self._preparer.remove(leftover)
                    return
            self._preparer.remove(leftover)

    def _unprepare_abandoned(self, live: Collection[NodeClaim]) -> None:
        """Unprepares claims that neither the kubelet nor the API server holds any longer.

        Only the kubelet knows when the last container has ended; it then asks to unprepare the
        claim. So this considers only claims that the kubelet's record has lacked for a while, and
        does nothing while that record cannot be read.
        """
        record = self._read_kubelet_record()
        match record:
            case UnreadableRecord(reason):
                if self._record_problem != reason:
                    self._reporter.kubelet_record_unusable(reason)
                self._record_problem = reason
                self._forgotten_since.clear()
                return
            case KubeletRecord():
                self._record_problem = ""
        now = self._clock()
        forgotten = {claim.uid: claim for claim in live if not record.holds(claim.uid)}
        since = {uid: self._forgotten_since.get(uid, now) for uid in forgotten}
        self._forgotten_since = since
        self._next_read = {uid: at for uid, at in self._next_read.items() if uid in forgotten}
        for uid, claim in forgotten.items():
            if now - since[uid] < _FORGOTTEN_DELAY or now < self._next_read.get(uid, now):
                continue
            self._next_read[uid] = now + _READ_INTERVAL * (1 + self._random() / 2)
            if isinstance(self._read(claim.reference, _READ_PATIENCE), NotAllocatedHere):
                try:
                    self._unprepare_unless_held(claim)
                except ClaimError as error:
                    self._reporter.repair_failed(claim, error.failure)

    def _unprepare_unless_held(self, claim: NodeClaim) -> None:
        """Unprepares a claim, unless the kubelet holds it again."""
        with self._gpus(claim.uid, claim.gpus, self._clock() + _LOCK_PATIENCE):
            with self._checkpoint() as checkpoint:
                record = self._read_kubelet_record()
                held = isinstance(record, UnreadableRecord) or record.holds(claim.uid)
                if held or checkpoint.claims.get(claim.uid) != claim:
                    return
            self._undo(checkpoint, claim.reference)
        self._reporter.claim_abandoned(claim)

    # --- locks and record ---

    @contextmanager
    def _gpus(self, uid: str, gpus: frozenset[str], deadline: float) -> Iterator[bool]:
        """Holds the locks of these GPUs and of those in the claim's record.

        The value of the `with` block is whether it had to wait.
        """
        latest = self._latest_claims.get(uid)
        gpus |= frozenset() if latest is None else latest.gpus
        waited_before = False
        while True:
            with self._locked_gpus(gpus, deadline) as waited:
                with self._checkpoint() as checkpoint:
                    recorded = checkpoint.claims.get(uid)
                needed = gpus | (frozenset() if recorded is None else recorded.gpus)
                if needed == gpus:
                    yield waited or waited_before
                    return
            gpus, waited_before = needed, True

    @contextmanager
    def _locked_gpus(self, gpus: frozenset[str], deadline: float) -> Iterator[bool]:
        deadline = min(deadline, self._clock() + _LOCK_PATIENCE)
        try:
            with self._gpu_locks.held(gpus, deadline) as waited:
                yield waited
        except LockError as error:
            raise ClaimError(LockUnavailable(str(error))) from error

    @contextmanager
    def _checkpoint(self) -> Iterator[Checkpoint]:
        """Holds the node's lock; the value of the `with` block is the checkpoint."""
        try:
            with self._node_lock.held(self._clock() + _LOCK_PATIENCE):
                yield self._load()
        except LockError as error:
            raise ClaimError(LockUnavailable(str(error))) from error

    def _load(self) -> Checkpoint:
        try:
            known = self._file.load()
        except CheckpointError as error:
            return self._rebuild(str(error))
        except OSError as error:
            raise self._unusable(error) from error
        if known is None:
            return self._rebuild(None)
        self._latest_claims = known.claims
        return known

    def _rebuild(self, unreadable: str | None) -> Checkpoint:
        """Restores the checkpoint: resources on the node name claims, which are read from the API.

        An unreadable file stays in place until the new one replaces it, so that a crash loses
        nothing.
        """
        claims = {}
        for owner in self._preparer.owners():
            reading = self._read(owner, _READ_PATIENCE)
            match reading:
                case AllocatedHere(claim):
                    claims[claim.uid] = claim
                case NotAllocatedHere(failure) | InvalidAllocation(failure):
                    _log.warning(
                        "a claim is left out of the rebuilt checkpoint",
                        extra={"reason": str(failure)},
                    )
                case UnknownAllocation(failure):
                    raise ClaimError(
                        CheckpointUnusable(f"the checkpoint is being rebuilt: {failure}")
                    )
                case _:
                    assert_never(reading)
        try:
            kept = None if unreadable is None else self._file.keep_copy()
        except OSError as error:
            raise self._unusable(error) from error
        checkpoint = Checkpoint(self._boot_id, claims)
        self._store(checkpoint)
        if unreadable is not None:
            self._reporter.checkpoint_rebuilt(str(kept), unreadable, len(claims))
        return checkpoint

    def _store(self, checkpoint: Checkpoint) -> None:
        try:
            self._file.store(checkpoint)
        except OSError as error:
            raise self._unusable(error) from error
        self._latest_claims = checkpoint.claims
        self._reporter.prepared_claims(len(checkpoint.claims))

    def _unusable(self, error: OSError) -> ClaimError:
        return ClaimError(
            CheckpointUnusable(
                f"checkpoint {self._file.path} cannot be used: {error}; check its folder and disk"
            )
        )


def _refuse_abandoned_call(reference: ClaimReference, call: Call) -> None:
    """Refuses a call that the kubelet has cancelled."""
    if call.abandoned():
        raise ClaimError(CallerGone(reference))


def _refuse_conflict(checkpoint: Checkpoint, claim: NodeClaim) -> None:
    conflict = conflicting(checkpoint, claim)
    if conflict is not None:
        wanted, holder, held = conflict
        raise ClaimError(DeviceHeld(claim, str(wanted.device), holder, str(held.device)))

"""Prepares and unprepares claims: the state machine behind the kubelet's calls.

A claim is either recorded in the checkpoint or not. Each call changes that durably:

    prepare:    read the claim  ->  record it  ->  create what it needs  ->  respond
    unprepare:  remove what it needed  ->  remove its record  ->  respond

What a recorded claim needs is created again if it is missing, and what no recorded claim needs is
removed: by the next call for the claim, and by `repair`, which runs at the start and periodically.
Therefore a call can be repeated, can be killed at any point, and can follow a reboot of the node.

A call holds the locks of its claim's GPUs until it ends, and the node's lock only while it reads
and changes the record. So a slow GPU delays only the claims on that GPU.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from kubelet_plugin.claims.abandonment import Abandonment
from kubelet_plugin.claims.allocation import (
    ClaimMissing,
    ClaimRefused,
    Misconfigured,
    Unknown,
    Wanted,
)
from kubelet_plugin.claims.call import CallLimits
from kubelet_plugin.claims.checkpoint import Checkpoint, conflicting
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.claim_reader import ClaimReader
from kubelet_plugin.claims.drift import Drift, DriftNote, causes
from kubelet_plugin.claims.failure import (
    CallerGone,
    ClaimError,
    ClaimFailure,
    DeviceHeld,
    GpusNotRead,
    NodeReleased,
)
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.nvidia_claims import NvidiaClaims
from kubelet_plugin.claims.record import (
    LOCK_PATIENCE,
    READ_PATIENCE,
    ClaimRecord,
    LockedClaim,
    RecordReporter,
)
from kubelet_plugin.claims.repair_failure import FailedRepair

_FRESH = 1.0
"""Seconds for which a claim that was read may be used after waiting for locks."""

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

    def refuse_unfit(self, claim: NodeClaim) -> None:
        """Refuses a claim, not prepared yet, with a device for no new work; raises ClaimError."""

    def reconcile(
        self, concerned: Sequence[NodeClaim], live: Mapping[str, NodeClaim]
    ) -> Collection[DriftNote]:
        """Creates or removes what the concerned claims need, so that the node agrees with `live`.

        `live` has the live claims by UID. What a live claim needs and lacks is created. What a
        claim needed that is not live is removed, unless a live claim needs it. Returns what had to
        be created. Raises ClaimError.
        """

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        """Returns the resources on the node that no live claim needs; raises ClaimError."""

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        """Returns whether a live claim needs the resource."""

    def remove(self, leftover: Leftover) -> None:
        """Removes the resource; raises ClaimError."""

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        """Returns the devices of a prepared claim, as the kubelet receives them."""


class ClaimReporter(RecordReporter, Protocol):
    """Reports what operators should know about claims."""

    def drift_repaired(self, claim: NodeClaim, drift: Drift) -> None:
        """Reports that something of a prepared claim had changed, and was restored."""

    def repair_ended(self, failed: Collection[FailedRepair]) -> None:
        """Reports which prepared claims lack something after a repair, and why."""

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        """Reports that a prepared claim lacks something that could not be created."""

    def leftover_not_removed(self, leftover: str, failure: ClaimFailure) -> None:
        """Reports, once per reason, that a resource that no claim needs could not be removed."""

    def kubelet_record_unusable(self, reason: str) -> None:
        """Reports, once per reason, that the kubelet's record cannot be read."""

    def claim_abandoned(self, claim: NodeClaim) -> None:
        """Reports that a claim was unprepared without a call from the kubelet."""

    def partitions_of_nvidia_left(self, claim: ClaimReference, partitions: Sequence[str]) -> None:
        """Reports partitions of an unprepared claim that NVIDIA's DRA driver made."""


class ClaimLifecycle:
    """The claims prepared on this node."""

    def __init__(
        self,
        *,
        reader: ClaimReader,
        record: ClaimRecord,
        nvidia_claims: NvidiaClaims,
        read_kubelet_record: Callable[[], KubeletRecord | UnreadableRecord],
        preparer: NodePreparer,
        reporter: ClaimReporter,
        inventory_age: Callable[[], float],
        oldest_inventory: float,
        released: Callable[[], bool],
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        """`clock` is monotonic, in seconds; `random` returns numbers from 0 to 1.

        No claim is prepared if `inventory_age`, the seconds since the GPUs were read, is more than
        `oldest_inventory`. While `released`, which is asked under the node's lock, only claims that
        are recorded are prepared.
        """
        self._reader = reader
        self._record = record
        self._nvidia_claims = nvidia_claims
        self._read_kubelet_record = read_kubelet_record
        self._preparer = preparer
        self._reporter = reporter
        self._inventory_age = inventory_age
        self._oldest_inventory = oldest_inventory
        self._released = released
        self._clock = clock
        self._abandonment = Abandonment(clock=clock, random=random)
        self._not_removed: dict[Leftover, str] = {}
        self._record_problem = ""
        self._complete: set[str] = set()
        """UIDs of the claims that this process has seen with all that they need."""

    def prepare(self, reference: ClaimReference, call: CallLimits) -> tuple[PreparedDevice, ...]:
        """Prepares a claim. If it is prepared already, restores what is missing.

        Raises:
            ClaimError: the claim cannot be prepared.
        """
        age = self._inventory_age()
        if age > self._oldest_inventory:
            raise ClaimError(GpusNotRead(reference, age))
        replacing: NodeClaim | None = None
        while True:
            claim = self._read_for(call, reference)
            read_at = self._clock()
            with self._record.locked(reference.uid, claim.gpus, call.deadline) as locked:
                fresh = self._clock() - read_at <= _FRESH
                # A record that differs may be newer than what was read, unless it is read twice.
                if fresh and locked.recorded in (None, claim, replacing):
                    return self._prepare(claim, call, locked)
                replacing = locked.recorded
            # Read again, without the locks: other calls would wait for the API server, too.

    def unprepare(self, reference: ClaimReference, call: CallLimits) -> None:
        """Unprepares a claim, if it is prepared. The claim need not exist in the API any more.

        Raises:
            ClaimError: the claim cannot be unprepared.
        """
        with self._record.locked(reference.uid, frozenset(), call.deadline) as locked:
            _refuse_abandoned_call(reference, call)
            if locked.recorded is not None:
                locked.unlock_node()  # else a call that prepares the claim has to record it first
            self._undo(locked.checkpoint, reference)
            partitions = self._nvidia_claims.unprepare(reference)
            if partitions:
                self._reporter.partitions_of_nvidia_left(reference, partitions)
        self._abandonment.forget(reference.uid)

    def holders(self) -> tuple[str, ...]:
        """Returns the claims that have devices on this node, sorted.

        Raises:
            ClaimError: they cannot be read.
        """
        recorded = {claim.reference.key for claim in self._record.claims()}
        of_nvidia = {f"{device} by NVIDIA's driver" for device in self._nvidia_claims.devices()}
        return (*sorted(recorded), *sorted(of_nvidia))

    def repair(self) -> None:
        """Makes the node agree with the checkpoint, and the checkpoint with kubelet and API server.

        A failure is reported, does not affect the other claims, and is retried by the next repair.
        Raises nothing.
        """
        try:
            live = self._record.claims()
        except ClaimError as error:
            _log.warning(
                "prepared claims cannot be checked; retrying later", extra={"reason": str(error)}
            )
            return
        failed: list[FailedRepair] = []
        for claim in live:
            try:
                self._repair_claim(claim)
            except ClaimError as error:
                failed.append((claim, error.failure))
                self._reporter.repair_failed(claim, error.failure)
        self._reporter.repair_ended(failed)
        self._remove_leftovers(live)
        self._unprepare_abandoned(live)

    # --- one call ---

    def _prepare(
        self, claim: NodeClaim, call: CallLimits, locked: LockedClaim
    ) -> tuple[PreparedDevice, ...]:
        """Prepares a claim under its locks. Releases the node's lock once the claim is recorded."""
        checkpoint, before = locked.checkpoint, locked.recorded
        _refuse_abandoned_call(claim.reference, call)
        if before is None and self._released():
            raise ClaimError(NodeReleased(claim.reference))
        if before is None:
            self._preparer.refuse_unfit(claim)
        _refuse_conflict(checkpoint, claim)
        self._nvidia_claims.refuse_conflict(
            claim, recorded=checkpoint.claims, read_kubelet_record=self._read_kubelet_record
        )
        reallocated = before is not None and not before.holds_as(claim)
        if before != claim and not reallocated:
            # A plugin that did not know all names and settings of the claim may have recorded it.
            self._record.store(checkpoint.with_claim(claim))
        locked.unlock_node()
        if before is not None and reallocated:
            self._replace(checkpoint, before, claim)
        live = checkpoint.with_claim(claim)
        try:
            self._preparer.reconcile((claim,), live.claims)
        except ClaimError:
            if before is None:
                self._roll_back(live, claim.reference)
            raise
        self._complete.add(claim.uid)
        return self._preparer.prepared_devices(claim)

    def _replace(self, checkpoint: Checkpoint, old: NodeClaim, new: NodeClaim) -> None:
        """Removes what a replaced allocation needed, then replaces its record."""
        others = checkpoint.without(old.uid)
        self._preparer.reconcile((old,), others.claims)
        with self._record.checkpoint() as current:
            self._record.store(current.with_claim(new))

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
        self._complete.discard(reference.uid)
        claim = checkpoint.claims.get(reference.uid) or NodeClaim.unknown(reference)
        self._preparer.reconcile((claim,), checkpoint.without(claim.uid).claims)
        if claim.uid in checkpoint.claims:
            with self._record.checkpoint() as current:
                self._record.store(current.without(claim.uid))

    def _read_for(self, call: CallLimits, reference: ClaimReference) -> NodeClaim:
        """Reads the claim to prepare; from its record if the API server does not respond.

        The record is as good, because the allocation of a claim that is in use does not change.
        """
        left = call.deadline - self._clock()
        recorded = self._record.was_recorded(reference.uid)
        # Half of the remaining time leaves room for a second attempt if a response is lost.
        patience = READ_PATIENCE if recorded else max(left / 2, READ_PATIENCE)
        reading = self._reader.read(reference, max(1.0, min(patience, left)))
        match reading:
            case Wanted(claim):
                return claim
            case ClaimMissing(failure) | ClaimRefused(failure):
                raise ClaimError(failure)
            case Misconfigured(failure, claim):
                claim_recorded = self._recorded(reference.uid)
                # An earlier version accepted the configuration, unless the record was rebuilt.
                if (
                    claim_recorded is None
                    or claim_recorded.devices == claim.devices
                    or not claim_recorded.has_same_devices(claim)
                ):
                    raise ClaimError(failure)
                return claim_recorded
            case Unknown(failure):
                _log.warning(
                    "a claim cannot be read from the API server; looking for its record",
                    extra={"reason": str(failure)},
                )
                claim_recorded = self._recorded(reference.uid)
                if claim_recorded is None:
                    raise ClaimError(failure)
                return claim_recorded
        assert_never(reading)

    def _recorded(self, uid: str) -> NodeClaim | None:
        with self._record.checkpoint() as checkpoint:
            return checkpoint.claims.get(uid)

    # --- repairing ---

    def _repair_claim(self, claim: NodeClaim) -> None:
        deadline = self._clock() + LOCK_PATIENCE
        with self._record.locked(claim.uid, claim.gpus, deadline) as locked:
            if locked.recorded != claim:
                return  # unprepared or replaced meanwhile
            locked.unlock_node()
            drifts = self._preparer.reconcile((claim,), locked.checkpoint.claims)
        if claim.uid in self._complete:  # else, after a reboot or a kill, it was never as it is now
            for drift in causes(drifts):
                self._reporter.drift_repaired(claim, drift)
        self._complete.add(claim.uid)

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
        with self._record.gpus(gpus, self._clock() + LOCK_PATIENCE):
            with self._record.checkpoint() as checkpoint:
                if self._preparer.is_needed(leftover, tuple(checkpoint.claims.values())):
                    return
                if not leftover.gpu:
                    self._preparer.remove(leftover)
            if leftover.gpu:
                self._preparer.remove(leftover)
        _log.info("removed a resource that no claim needs", extra={"leftover": str(leftover)})

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
                self._abandonment.start_over()
                return
            case KubeletRecord():
                self._record_problem = ""
        for claim in self._abandonment.suspects(live, record):
            if isinstance(self._reader.read(claim.reference, READ_PATIENCE), ClaimMissing):
                try:
                    self._unprepare_unless_held(claim)
                except ClaimError as error:
                    self._reporter.repair_failed(claim, error.failure)

    def _unprepare_unless_held(self, claim: NodeClaim) -> None:
        """Unprepares a claim, unless the kubelet holds it again."""
        deadline = self._clock() + LOCK_PATIENCE
        with self._record.locked(claim.uid, claim.gpus, deadline) as locked:
            record = self._read_kubelet_record()
            held = isinstance(record, UnreadableRecord) or record.holds(claim.uid)
            if held or locked.recorded != claim:
                return
            locked.unlock_node()
            self._undo(locked.checkpoint, claim.reference)
        self._reporter.claim_abandoned(claim)


def _refuse_abandoned_call(reference: ClaimReference, call: CallLimits) -> None:
    """Refuses a call that the kubelet has cancelled."""
    if call.abandoned():
        raise ClaimError(CallerGone(reference))


def _refuse_conflict(checkpoint: Checkpoint, claim: NodeClaim) -> None:
    clash = conflicting(checkpoint, claim)
    if clash is not None:
        wanted, holder, held = clash
        raise ClaimError(DeviceHeld(claim, str(wanted.device), holder, str(held.device)))

"""Prepares and unprepares claims: the state machine behind the kubelet's calls.

A claim is either in the checkpoint or not, and each call moves it across durably:

    prepare:    read the claim  ->  record it  ->  make what it needs  ->  answer
    unprepare:  remove what it needed  ->  remove its record  ->  answer

What the checkpoint says exists is made again when it is missing, and what it does not say is
removed: by the next call for the claim, and by `repair`, at start and once a minute. So a call may
be repeated, may be killed at any line, and may meet a node that was rebooted meanwhile.

A call holds the locks of its claim's GPUs from deciding to its end, and the node's lock only while
it decides and records: a slow GPU delays nobody but those who want it.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, assert_never

from carina_dra.kube.errors import ApiError, NotFound
from kubelet_plugin.claims.allocation import (
    Gone,
    Reading,
    Refused,
    Unknown,
    Wanted,
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
from kubelet_plugin.claims.kubelet_record import KubeletRecord, Unreadable
from kubelet_plugin.claims.lock import FileLock, GpuLocks, LockError

_LOCK_PATIENCE = 10.0
"""Seconds for which one try of a call waits for locks."""
_READ_PATIENCE = 5.0
"""Seconds for the API server to answer, where there is a record to go on with, or no caller."""
_FRESH = 1.0
"""Seconds for which what was read of a claim may be used after waiting for locks."""
_FORGOTTEN_PATIENCE = 600.0
"""Seconds for which the kubelet must not know a claim before we ask whether it is gone."""
_ASK_AGAIN = 300.0
"""Seconds between two questions to the API server about such a claim, and half of it as jitter."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something on the node that may be needed by no claim."""

    kind: str
    name: str
    gpu: str
    """The GPU under whose lock it is made and removed; empty where it is done under the node's."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class NodePreparer(Protocol):
    """Makes and removes what claims need on the node. Every method is idempotent."""

    def reconcile(self, concerned: Sequence[NodeClaim], live: Mapping[str, NodeClaim]) -> None:
        """Makes the node hold, of all that the concerned claims need, what live claims need.

        `live` has the live claims by UID.

        A concerned claim that is live gets what is missing; of one that is not, everything that no
        live claim needs is removed. Raises ClaimError.
        """

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        """Gives what is on the node and no live claim needs; raises ClaimError."""

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        """Whether a live claim needs it now."""

    def remove(self, leftover: Leftover) -> None:
        """Removes it; raises ClaimError."""

    def owners(self) -> tuple[ClaimReference, ...]:
        """Gives the claims for which there is something on the node; raises ClaimError."""

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        """Gives the answer for a claim that has everything it needs."""


class ClaimObserver(Protocol):
    """Is told what an operator should know."""

    def checkpoint_set_aside(self, kept: str, reason: str, rebuilt: int) -> None:
        """The checkpoint was unreadable: kept as `kept`; `rebuilt` claims were found again."""

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        """A prepared claim lacks something that could not be made."""

    def leftover_stuck(self, leftover: str, failure: ClaimFailure) -> None:
        """Something that no claim needs could not be removed. Told once for each reason."""

    def kubelet_record_unusable(self, reason: str) -> None:
        """The kubelet's record cannot be read, so no claim is given up. Told once a reason."""

    def claim_abandoned(self, claim: NodeClaim) -> None:
        """A claim was unprepared unasked: the kubelet has forgotten it, and it is gone."""

    def prepared_claims(self, count: int) -> None:
        """The number of claims that are recorded now."""


class ClaimLifecycle:
    """The claims prepared on this node."""

    def __init__(
        self,
        *,
        driver: str,
        pool: str,
        boot_id: str,
        read_claim: Callable[[ClaimReference, float], Mapping[str, object]],
        read_kubelet_record: Callable[[], KubeletRecord | Unreadable],
        checkpoint: CheckpointFile,
        node_lock: FileLock,
        gpu_locks: GpuLocks,
        preparer: NodePreparer,
        observer: ClaimObserver,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        """`read_claim` gets a ResourceClaim within a number of seconds, raising ApiError.

        `clock` is monotonic, in seconds; `random` gives numbers from 0 to 1.
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
        self._observer = observer
        self._clock = clock
        self._random = random
        self._last_seen: Mapping[str, NodeClaim] = {}
        self._forgotten_since: dict[str, float] = {}
        self._ask_at: dict[str, float] = {}
        self._stuck: dict[Leftover, str] = {}
        self._record_unusable = ""

    def prepare(self, reference: ClaimReference, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepares a claim, or finds it prepared.

        Raises:
            ClaimError: with what is wrong.
        """
        while True:
            claim = self._read_for(call, reference)
            read_at = self._clock()
            with self._gpus(reference.uid, claim.gpus, call.deadline):
                if self._clock() - read_at <= _FRESH:
                    return self._prepare(claim, call)
            # Read again without the locks: others would wait for the API server, one by one.

    def unprepare(self, reference: ClaimReference, call: Call) -> None:
        """Unprepares a claim, or finds nothing to undo. The claim may be gone from the API.

        Raises:
            ClaimError: with what is wrong.
        """
        with self._gpus(reference.uid, frozenset(), call.deadline) as checkpoint:
            _refuse_without_caller(reference, call)
            self._undo(checkpoint, reference)
        self._forgotten_since.pop(reference.uid, None)

    def repair(self) -> None:
        """Makes the node agree with the checkpoint, then the checkpoint with kubelet and API.

        What fails is reported and tried again the next time, each thing by itself. Raises nothing.
        """
        try:
            live = self._after_reboot()
        except ClaimError as error:
            _log.warning("prepared claims cannot be checked now", extra={"reason": str(error)})
            return
        for claim in live:
            try:
                self._repair_claim(claim)
            except ClaimError as error:
                self._observer.repair_failed(claim, error.failure)
        self._remove_leftovers(live)
        self._give_up_abandoned(live)

    # --- one call ---

    def _prepare(self, claim: NodeClaim, call: Call) -> tuple[PreparedDevice, ...]:
        """Under the locks of the claim's GPUs."""
        with self._checkpoint() as checkpoint:
            _refuse_without_caller(claim.reference, call)
            _refuse_conflict(checkpoint, claim)
            before = checkpoint.claims.get(claim.uid)
            if before is None:
                self._store(checkpoint.with_claim(claim))
        if before is not None and before != claim:
            self._replace(checkpoint, before, claim)
        live = checkpoint.with_claim(claim)
        try:
            self._preparer.reconcile((claim,), live.claims)
        except ClaimError:
            if before is None:
                self._roll_back(live, claim.reference)
            raise
        return self._preparer.prepared_devices(claim)

    def _replace(self, checkpoint: Checkpoint, old: NodeClaim, new: NodeClaim) -> None:
        """Undoes an allocation that was replaced, before its record goes."""
        others = checkpoint.without(old.uid)
        self._preparer.reconcile((old,), others.claims)
        with self._checkpoint() as current:
            self._store(current.with_claim(new))

    def _roll_back(self, checkpoint: Checkpoint, reference: ClaimReference) -> None:
        try:
            self._undo(checkpoint, reference)
        except ClaimError as error:
            # Still recorded, so that the next call or the next repair goes on with it.
            _log.warning(
                "a failed prepare is not rolled back yet",
                extra={"claim": reference.key, "reason": str(error)},
            )

    def _undo(self, checkpoint: Checkpoint, reference: ClaimReference) -> None:
        """Removes what a claim needed, then its record. Under the locks of its GPUs."""
        claim = checkpoint.claims.get(reference.uid) or NodeClaim.unknown(reference)
        self._preparer.reconcile((claim,), checkpoint.without(claim.uid).claims)
        if claim.uid in checkpoint.claims:
            with self._checkpoint() as current:
                self._store(current.without(claim.uid))

    def _read_for(self, call: Call, reference: ClaimReference) -> NodeClaim:
        """What a call is to prepare. An allocation never changes, so a record will do."""
        left = call.deadline - self._clock()
        recorded = reference.uid in self._last_seen
        # Half of what is left leaves time for another try, in case the answer was lost.
        patience = _READ_PATIENCE if recorded else max(left / 2, _READ_PATIENCE)
        reading = self._read(reference, max(1.0, min(patience, left)))
        match reading:
            case Wanted(claim):
                return claim
            case Gone(failure) | Refused(failure):
                raise ClaimError(failure)
            case Unknown(failure):
                _log.warning("a claim cannot be read", extra={"reason": str(failure)})
                with self._checkpoint() as checkpoint:
                    claim_recorded = checkpoint.claims.get(reference.uid)
                if claim_recorded is None:
                    raise ClaimError(failure)
                return claim_recorded
        assert_never(reading)

    def _read(self, reference: ClaimReference, patience: float) -> Reading:
        """What the API says the claim holds here, waiting no longer than that many seconds."""
        try:
            body = self._read_claim(reference, patience)
        except NotFound:
            return Gone(ClaimGone(reference, f"ResourceClaim {reference.key} does not exist"))
        except ApiError as error:
            return Unknown(ApiUnavailable(reference, str(error), error.retriable))
        return read_allocation(body, reference, driver=self._driver, pool=self._pool)

    # --- repairing ---

    def _after_reboot(self) -> tuple[NodeClaim, ...]:
        with self._checkpoint() as checkpoint:
            claims = checkpoint.claims
            if checkpoint.boot_id != self._boot_id:
                _log.info("the node was rebooted", extra={"claims": len(claims)})
                self._store(Checkpoint(self._boot_id, claims))
            self._observer.prepared_claims(len(claims))
            return tuple(claims.values())

    def _repair_claim(self, claim: NodeClaim) -> None:
        deadline = self._clock() + _LOCK_PATIENCE
        with self._gpus(claim.uid, claim.gpus, deadline) as checkpoint:
            if checkpoint.claims.get(claim.uid) != claim:
                return  # unprepared or replaced meanwhile
            self._preparer.reconcile((claim,), checkpoint.claims)

    def _remove_leftovers(self, live: Collection[NodeClaim]) -> None:
        try:
            leftovers = self._preparer.leftovers(live)
        except ClaimError as error:
            _log.warning("the node cannot be observed now", extra={"reason": str(error)})
            return
        stuck = {}
        for leftover in leftovers:
            try:
                self._remove_leftover(leftover)
            except ClaimError as error:
                stuck[leftover] = str(error)
                if self._stuck.get(leftover) != str(error):
                    self._observer.leftover_stuck(str(leftover), error.failure)
        self._stuck = stuck

    def _remove_leftover(self, leftover: Leftover) -> None:
        """Decided again under the locks: a call may need it by now."""
        gpus = frozenset({leftover.gpu} - {""})
        with self._locked_gpus(gpus, self._clock() + _LOCK_PATIENCE):
            with self._checkpoint() as checkpoint:
                if self._preparer.is_needed(leftover, tuple(checkpoint.claims.values())):
                    return
                _log.info("removing what no claim needs", extra={"leftover": str(leftover)})
                if not leftover.gpu:
                    self._preparer.remove(leftover)
                    return
            self._preparer.remove(leftover)

    def _give_up_abandoned(self, live: Collection[NodeClaim]) -> None:
        """Unprepares claims that the kubelet has forgotten and that are gone from the API.

        The kubelet asks as soon as the last container has ended, and only it knows when that is.
        So the API server is asked only about claims that the kubelet's own record has not had for
        long, and nothing is given up while that record cannot be read.
        """
        record = self._read_kubelet_record()
        match record:
            case Unreadable(reason):
                if self._record_unusable != reason:
                    self._observer.kubelet_record_unusable(reason)
                self._record_unusable = reason
                self._forgotten_since.clear()
                return
            case KubeletRecord():
                self._record_unusable = ""
        now = self._clock()
        forgotten = {claim.uid: claim for claim in live if not record.holds(claim.uid)}
        since = {uid: self._forgotten_since.get(uid, now) for uid in forgotten}
        self._forgotten_since = since
        self._ask_at = {uid: at for uid, at in self._ask_at.items() if uid in forgotten}
        for uid, claim in forgotten.items():
            if now - since[uid] < _FORGOTTEN_PATIENCE or now < self._ask_at.get(uid, now):
                continue
            self._ask_at[uid] = now + _ASK_AGAIN * (1 + self._random() / 2)
            if isinstance(self._read(claim.reference, _READ_PATIENCE), Gone):
                try:
                    self._abandon(claim)
                except ClaimError as error:
                    self._observer.repair_failed(claim, error.failure)

    def _abandon(self, claim: NodeClaim) -> None:
        """Unprepares it, unless the kubelet has come back to it meanwhile."""
        with self._gpus(claim.uid, claim.gpus, self._clock() + _LOCK_PATIENCE):
            with self._checkpoint() as checkpoint:
                record = self._read_kubelet_record()
                held = isinstance(record, Unreadable) or record.holds(claim.uid)
                if held or checkpoint.claims.get(claim.uid) != claim:
                    return
            self._undo(checkpoint, claim.reference)
        self._observer.claim_abandoned(claim)

    # --- locks and record ---

    @contextmanager
    def _gpus(self, uid: str, gpus: frozenset[str], deadline: float) -> Iterator[Checkpoint]:
        """Holds the locks of these GPUs and of those that the claim is recorded with.

        Gives what is recorded. A record of the claim stays as it is inside the `with` block.
        """
        seen = self._last_seen.get(uid)
        gpus |= frozenset() if seen is None else seen.gpus
        while True:
            with self._locked_gpus(gpus, deadline):
                with self._checkpoint() as checkpoint:
                    recorded = checkpoint.claims.get(uid)
                needed = gpus | (frozenset() if recorded is None else recorded.gpus)
                if needed == gpus:
                    yield checkpoint
                    return
            gpus = needed

    @contextmanager
    def _locked_gpus(self, gpus: frozenset[str], deadline: float) -> Iterator[None]:
        deadline = min(deadline, self._clock() + _LOCK_PATIENCE)
        try:
            with self._gpu_locks.held(gpus, deadline):
                yield
        except LockError as error:
            raise ClaimError(LockUnavailable(str(error))) from error

    @contextmanager
    def _checkpoint(self) -> Iterator[Checkpoint]:
        """Holds the node's lock, and gives what is recorded."""
        try:
            with self._node_lock.held(self._clock() + _LOCK_PATIENCE):
                yield self._loaded()
        except LockError as error:
            raise ClaimError(LockUnavailable(str(error))) from error

    def _loaded(self) -> Checkpoint:
        try:
            known = self._file.load()
        except CheckpointError as error:
            return self._rebuilt(str(error))
        except OSError as error:
            raise self._unusable(error) from error
        if known is None:
            return self._rebuilt(None)
        self._last_seen = known.claims
        return known

    def _rebuilt(self, unreadable: str | None) -> Checkpoint:
        """Finds the claims again by what exists for them, asking the API what they hold.

        A file that is unreadable stays in its place until the new one replaces it, so that being
        killed in between loses nothing.
        """
        claims = {}
        for owner in self._preparer.owners():
            reading = self._read(owner, _READ_PATIENCE)
            match reading:
                case Wanted(claim):
                    claims[claim.uid] = claim
                case Gone(failure) | Refused(failure):
                    _log.warning("a claim is not recorded again", extra={"reason": str(failure)})
                case Unknown(failure):
                    raise ClaimError(
                        CheckpointUnusable(f"the checkpoint is being rebuilt, and {failure}")
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
            self._observer.checkpoint_set_aside(str(kept), unreadable, len(claims))
        return checkpoint

    def _store(self, checkpoint: Checkpoint) -> None:
        try:
            self._file.store(checkpoint)
        except OSError as error:
            raise self._unusable(error) from error
        self._last_seen = checkpoint.claims
        self._observer.prepared_claims(len(checkpoint.claims))

    def _unusable(self, error: OSError) -> ClaimError:
        return ClaimError(
            CheckpointUnusable(
                f"checkpoint {self._file.path} cannot be used: {error}; check its folder and disk"
            )
        )


def _refuse_without_caller(reference: ClaimReference, call: Call) -> None:
    """Nothing is begun for a caller that has gone: what it asks for by now is another call."""
    if call.abandoned():
        raise ClaimError(CallerGone(reference))


def _refuse_conflict(checkpoint: Checkpoint, claim: NodeClaim) -> None:
    found = conflicting(checkpoint, claim)
    if found is not None:
        wanted, holder, held = found
        raise ClaimError(DeviceHeld(claim, str(wanted.device), holder, str(held.device)))

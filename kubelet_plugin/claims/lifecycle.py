"""Prepares and unprepares claims: the state machine behind the kubelet's calls.

A claim is either in the checkpoint or not, and each call moves it across durably:

    prepare:    read the claim  ->  record it  ->  make what it needs  ->  answer
    unprepare:  unmake what it had  ->  strike it out  ->  answer

Whatever the checkpoint says exists is made again when it is missing, and what it does not say is
removed: by the next call for the claim, and by `repair`, at start and once a minute. So a call may
be repeated, may be killed at any line, and may meet a node that has been rebooted meanwhile. All
of it happens under the node's lock, but for reading the claim from the API server.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from carina_dra.config.device import DeviceConfigError
from carina_dra.kube.errors import ApiError, NotFound
from carina_dra.resource import DecodeError
from kubelet_plugin.claims.allocation import AllocationError, NotAllocatedError, prepared_claim
from kubelet_plugin.claims.checkpoint import Checkpoint, CheckpointError, overlap
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimError, ClaimReference, GrantedDevice, PreparedClaim
from kubelet_plugin.claims.lock import LockError, NodeLock

_LOCK_PATIENCE = 10.0
"""Seconds for which one try of a call waits for the lock."""
_GONE_PATIENCE = 600.0
"""Seconds for which a claim must be gone from the API before we unprepare it unasked: the kubelet
asks as soon as the last container has ended, and it alone knows when that is."""

_log = logging.getLogger(__name__)


class ClaimNeeds(Protocol):
    """Makes and unmakes what prepared claims need on the node. All of it is idempotent."""

    def make(self, claim: PreparedClaim) -> None:
        """Makes what is missing for the claim; raises ClaimError."""

    def unmake(self, uid: str) -> None:
        """Removes whatever exists for the claim; raises ClaimError."""

    def found(self) -> Mapping[str, ClaimReference]:
        """Gives the claims, by UID, for which something exists; nameless if it cannot be told."""

    def grants(self, claim: PreparedClaim) -> tuple[GrantedDevice, ...]:
        """Gives the answer for a claim that has all it needs."""


class Reporter(Protocol):
    """Hears of what an operator should know."""

    def checkpoint_set_aside(self, kept: str, reason: str, rebuilt: int) -> None:
        """The checkpoint was unreadable: kept as `kept`; so many claims were found again."""

    def repair_failed(self, claim: PreparedClaim, reason: str) -> None:
        """A prepared claim lacks something that could not be made."""

    def claim_abandoned(self, claim: PreparedClaim) -> None:
        """A claim was unprepared unasked, because it has long been gone from the API."""

    def prepared_claims(self, count: int) -> None:
        """So many claims are prepared now."""


class Claims:
    """The claims prepared on this node."""

    def __init__(
        self,
        *,
        driver: str,
        pool: str,
        boot_id: str,
        read_claim: Callable[[ClaimReference], Mapping[str, object]],
        checkpoint: CheckpointFile,
        lock: NodeLock,
        needs: ClaimNeeds,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        """`read_claim` gets a ResourceClaim, raising ApiError; `clock` is monotonic, in seconds."""
        self._driver = driver
        self._pool = pool
        self._boot_id = boot_id
        self._read_claim = read_claim
        self._file = checkpoint
        self._lock = lock
        self._needs = needs
        self._reporter = reporter
        self._clock = clock
        self._gone_since: dict[str, float] = {}

    def prepare(self, claim: ClaimReference) -> tuple[GrantedDevice, ...]:
        """Prepares a claim, or finds it prepared.

        Raises:
            ClaimError: with what is wrong, and whether it may pass.
        """
        wanted = self._wanted(claim) or self._recorded(claim)
        with self._locked():
            checkpoint = self._checkpoint()
            self._refuse_overlap(checkpoint, wanted)
            before = checkpoint.claims.get(wanted.uid)
            if before != wanted:
                self._store(checkpoint.with_claim(wanted))
            try:
                self._needs.make(wanted)
            except ClaimError:
                if before is None:
                    self._needs.unmake(wanted.uid)
                    self._store(checkpoint)
                raise
            return self._needs.grants(wanted)

    def unprepare(self, claim: ClaimReference) -> None:
        """Unprepares a claim, or finds nothing to undo. The claim may be gone from the API.

        Raises:
            ClaimError: with what is wrong, and whether it may pass.
        """
        with self._locked():
            checkpoint = self._checkpoint()
            self._needs.unmake(claim.uid)
            if claim.uid in checkpoint.claims:
                self._store(checkpoint.without(claim.uid))
        self._gone_since.pop(claim.uid, None)

    def repair(self) -> None:
        """Makes the node agree with the checkpoint, and the checkpoint with the API.

        Never raises ClaimError: what fails is reported, and tried again the next time.
        """
        try:
            claims = self._repair_orphans()
        except ClaimError as error:
            _log.warning("prepared claims cannot be checked now", extra={"reason": str(error)})
            return
        for claim in claims:
            try:
                self._repair_claim(claim)
            except ClaimError as error:
                self._reporter.repair_failed(claim, str(error))

    def _repair_orphans(self) -> tuple[PreparedClaim, ...]:
        with self._locked():
            checkpoint = self._checkpoint()
            if checkpoint.boot_id != self._boot_id:
                _log.info(
                    "the node was rebooted: rebuilding", extra={"claims": len(checkpoint.claims)}
                )
                checkpoint = Checkpoint(self._boot_id, checkpoint.claims)
                self._store(checkpoint)
            for uid in self._needs.found().keys() - checkpoint.claims.keys():
                _log.info("removing what a claim left behind", extra={"uid": uid})
                self._needs.unmake(uid)
            self._reporter.prepared_claims(len(checkpoint.claims))
            return tuple(checkpoint.claims.values())

    def _repair_claim(self, claim: PreparedClaim) -> None:
        if self._is_abandoned(claim):
            self.unprepare(ClaimReference(claim.uid, claim.namespace, claim.name))
            self._reporter.claim_abandoned(claim)
            return
        with self._locked():
            if self._checkpoint().claims.get(claim.uid) == claim:
                self._needs.make(claim)

    def _is_abandoned(self, claim: PreparedClaim) -> bool:
        try:
            self._wanted(ClaimReference(claim.uid, claim.namespace, claim.name))
        except _GoneError:
            since = self._gone_since.setdefault(claim.uid, self._clock())
            return self._clock() - since >= _GONE_PATIENCE
        except ClaimError as error:
            _log.debug(
                "a prepared claim reads otherwise now",
                extra={"claim": claim.key, "reason": str(error)},
            )
        self._gone_since.pop(claim.uid, None)
        return False

    def _wanted(self, claim: ClaimReference) -> PreparedClaim | None:
        """What the API says the claim holds here; None when the API server cannot be asked now."""
        try:
            body = self._read_claim(claim)
            return prepared_claim(body, claim.uid, driver=self._driver, pool=self._pool)
        except NotFound as error:
            raise _GoneError(f"ResourceClaim {claim.key} does not exist", may_pass=False) from error
        except NotAllocatedError as error:
            raise _GoneError(str(error), may_pass=False) from error
        except (DecodeError, DeviceConfigError, AllocationError) as error:
            raise ClaimError(str(error), may_pass=False) from error
        except ApiError as error:
            if not error.retriable:
                raise ClaimError(str(error), may_pass=False) from error
            _log.warning(
                "the API server cannot be asked", extra={"claim": claim.key, "reason": str(error)}
            )
            return None

    def _recorded(self, claim: ClaimReference) -> PreparedClaim:
        """What the checkpoint says of a claim that cannot be read: an allocation never changes."""
        with self._locked():
            recorded = self._checkpoint().claims.get(claim.uid)
        if recorded is None:
            raise ClaimError(
                f"ResourceClaim {claim.key} cannot be read: the API server does not answer",
                may_pass=True,
            )
        return recorded

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock.held(self._clock() + _LOCK_PATIENCE):
                yield
        except LockError as error:
            raise ClaimError(str(error), may_pass=True) from error

    def _checkpoint(self) -> Checkpoint:
        try:
            known = self._file.load()
        except CheckpointError as error:
            return self._rebuilt(str(error))
        except OSError as error:
            raise self._unwritable(error) from error
        return known if known is not None else self._rebuilt(None)

    def _rebuilt(self, unreadable: str | None) -> Checkpoint:
        """Finds the claims again by what exists for them, asking the API what they hold.

        A file that is unreadable stays in its place until the new one replaces it, so that being
        killed in between loses nothing.
        """
        found = [self._wanted_again(claim) for claim in self._needs.found().values() if claim.name]
        claims = {claim.uid: claim for claim in found if claim is not None}
        kept = None if unreadable is None else self._file.keep_copy()
        checkpoint = Checkpoint(self._boot_id, claims)
        self._store(checkpoint)
        if unreadable is not None:
            self._reporter.checkpoint_set_aside(str(kept), unreadable, len(claims))
        return checkpoint

    def _wanted_again(self, claim: ClaimReference) -> PreparedClaim | None:
        """What a claim found on the node holds; None where it is gone or means nothing to us."""
        try:
            wanted = self._wanted(claim)
        except ClaimError as error:
            if isinstance(error.__cause__, ApiError) and not isinstance(error, _GoneError):
                wanted = None  # refused: that says nothing of the claim
            else:
                _log.warning(
                    "a claim cannot be found again",
                    extra={"claim": claim.key, "reason": str(error)},
                )
                return None
        if wanted is None:
            raise ClaimError(
                f"the checkpoint is being rebuilt, and ResourceClaim {claim.key} cannot be read "
                "from the API server now",
                may_pass=True,
            )
        return wanted

    def _store(self, checkpoint: Checkpoint) -> None:
        try:
            self._file.store(checkpoint)
        except OSError as error:
            raise self._unwritable(error) from error
        self._reporter.prepared_claims(len(checkpoint.claims))

    def _unwritable(self, error: OSError) -> ClaimError:
        return ClaimError(f"checkpoint {self._file.path} cannot be written: {error}", may_pass=True)

    def _refuse_overlap(self, checkpoint: Checkpoint, wanted: PreparedClaim) -> None:
        clash = overlap(checkpoint, wanted)
        if clash is not None:
            device, other = clash
            raise ClaimError(
                f"device {device} of ResourceClaim {wanted.key} (UID {wanted.uid}) is still held "
                f"on this node by ResourceClaim {other.key} (UID {other.uid}); it is free once the "
                "last pod using that claim has ended here",
                may_pass=True,
            )


class _GoneError(ClaimError):
    """The claim, or its allocation to this node, is no more."""

"""The record of claims on this node, under its locks.

It joins the checkpoint's file with the locks that protect it. A damaged file is set aside and
rebuilt from what is on the node and what the API server says. A file of another form stays as it
is, and fails every call.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from kubelet_plugin.claims.allocation import (
    ClaimMissing,
    ClaimRefused,
    Misconfigured,
    Unknown,
    Wanted,
)
from kubelet_plugin.claims.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointFormError,
)
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.claim_reader import ClaimReader
from kubelet_plugin.claims.failure import CheckpointUnusable, ClaimError, LockBusy, LockUnavailable
from kubelet_plugin.claims.lock import FileLock, GpuLocks, LockBusyError, LockError

LOCK_PATIENCE = 10.0
"""Seconds for which one attempt of a call waits for locks."""
READ_PATIENCE = 5.0
"""Seconds to wait for the API server if the claim is recorded, or if no call is waiting."""

_log = logging.getLogger(__name__)


class RecordReporter(Protocol):
    """Reports what operators should know about the record."""

    def checkpoint_rebuilt(self, kept: str, reason: str, rebuilt: int) -> None:
        """The checkpoint was unreadable; a copy is `kept`, and `rebuilt` claims were restored."""

    def prepared_claims(self, count: int) -> None:
        """Reports the number of recorded claims: when it is first known, and when it changes."""


@dataclass(frozen=True, slots=True)
class LockedClaim:
    """The record of a claim, under the locks of all its GPUs and under the node's lock."""

    checkpoint: Checkpoint
    recorded: NodeClaim | None
    """The claim, if it is recorded."""
    unlock_node: Callable[[], None]
    """Releases the node's lock. The claim's record cannot change while its GPUs are locked."""


class ClaimRecord:
    """The claims recorded on this node."""

    def __init__(
        self,
        checkpoint: CheckpointFile,
        *,
        boot_id: str,
        node_lock: FileLock,
        gpu_locks: GpuLocks,
        reader: ClaimReader,
        owners: Callable[[], tuple[ClaimReference, ...]],
        on_change: Callable[[Collection[NodeClaim]], None],
        reporter: RecordReporter,
        clock: Callable[[], float],
    ) -> None:
        """`owners` returns the claims that have a resource on the node; it raises ClaimError.

        `on_change` receives the recorded claims when they are first known, and when they change. It
        is called under the node's lock, and must return at once. A change by another process is
        noticed when this one next uses the record.
        `clock` is monotonic, in seconds.
        """
        self._file = checkpoint
        self._boot_id = boot_id
        self._node_lock = node_lock
        self._gpu_locks = gpu_locks
        self._reader = reader
        self._owners = owners
        self._on_change = on_change
        self._reporter = reporter
        self._clock = clock
        self._latest: Mapping[str, NodeClaim] = {}
        self._reported: int | None = None

    def was_recorded(self, uid: str) -> bool:
        """Returns whether the claim was recorded when this process last looked. Takes no lock."""
        return uid in self._latest

    @contextmanager
    def locked(self, uid: str, gpus: frozenset[str], deadline: float) -> Iterator[LockedClaim]:
        """Holds the locks of these GPUs and of those in the claim's record, and the node's lock.

        Raises:
            ClaimError: they are not free by `deadline`, a reading of the clock.
        """
        latest = self._latest.get(uid)
        gpus |= frozenset() if latest is None else latest.gpus
        while True:
            with self.gpus(gpus, deadline), ExitStack() as node:
                checkpoint = node.enter_context(self.checkpoint())
                recorded = checkpoint.claims.get(uid)
                if recorded is None or recorded.gpus <= gpus:
                    yield LockedClaim(checkpoint, recorded, node.close)
                    return
            gpus |= recorded.gpus

    @contextmanager
    def gpus(self, gpus: frozenset[str], deadline: float) -> Iterator[None]:
        """Holds the locks of these GPUs.

        Raises:
            ClaimError: they are not free by `deadline`, a reading of the clock.
        """
        try:
            deadline = min(deadline, self._clock() + LOCK_PATIENCE)
            with self._gpu_locks.held(gpus, deadline):
                yield
        except LockError as error:
            raise _not_locked(error) from error

    @contextmanager
    def checkpoint(self) -> Iterator[Checkpoint]:
        """Holds the node's lock; the value is the checkpoint.

        Raises:
            ClaimError: the lock is not free, or the checkpoint cannot be read or rebuilt.
        """
        try:
            with self._node_lock.held(self._clock() + LOCK_PATIENCE):
                yield self._load()
        except LockError as error:
            raise _not_locked(error) from error

    def store(self, checkpoint: Checkpoint) -> None:
        """Makes it the checkpoint, durably. The caller holds the node's lock.

        Raises:
            ClaimError: it cannot be written.
        """
        try:
            self._file.store(checkpoint)
        except OSError as error:
            raise self._unusable(error) from error
        self._remember(checkpoint)

    def claims(self) -> tuple[NodeClaim, ...]:
        """Returns the recorded claims. After a reboot of the node, records the new boot.

        Raises:
            ClaimError: the record cannot be used.
        """
        with self.checkpoint() as checkpoint:
            claims = checkpoint.claims
            if checkpoint.boot_id != self._boot_id:
                _log.info("the node was rebooted", extra={"claims": len(claims)})
                self.store(Checkpoint(self._boot_id, claims))
            return tuple(claims.values())

    def _load(self) -> Checkpoint:
        try:
            known = self._file.load()
        except CheckpointError as error:
            return self._rebuild(str(error))
        except CheckpointFormError as error:
            raise ClaimError(CheckpointUnusable(str(error))) from error
        except OSError as error:
            raise self._unusable(error) from error
        if known is None:
            return self._rebuild(None)
        self._remember(known)  # another plugin process may have changed it
        return known

    def _rebuild(self, unreadable: str | None) -> Checkpoint:
        """Restores the checkpoint: resources on the node name claims, which are read from the API.

        An unreadable file stays in place until the new one replaces it, so that a crash loses
        nothing.
        """
        claims = {}
        for owner in self._owners():
            reading = self._reader.read(owner, READ_PATIENCE)
            match reading:
                case Wanted(claim) | Misconfigured(claim=claim):
                    # Also if its configuration is refused: another version has prepared the claim,
                    # and containers may be using its devices.
                    claims[claim.uid] = replace(claim, pods=None)
                case ClaimMissing(failure) | ClaimRefused(failure):
                    _log.warning(
                        "a claim is left out of the rebuilt checkpoint",
                        extra={"reason": str(failure)},
                    )
                case Unknown(failure):
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
        self.store(checkpoint)
        if unreadable is not None:
            self._reporter.checkpoint_rebuilt(str(kept), unreadable, len(claims))
        return checkpoint

    def _remember(self, checkpoint: Checkpoint) -> None:
        changed = self._reported is None or self._latest != checkpoint.claims
        self._latest = checkpoint.claims
        if changed:
            self._on_change(checkpoint.claims.values())
        if self._reported != len(checkpoint.claims):
            self._reported = len(checkpoint.claims)
            self._reporter.prepared_claims(self._reported)

    def _unusable(self, error: OSError) -> ClaimError:
        return ClaimError(
            CheckpointUnusable(
                f"checkpoint {self._file.path} cannot be used: {error}; check its folder and disk"
            )
        )


def _not_locked(error: LockError) -> ClaimError:
    kind = LockBusy if isinstance(error, LockBusyError) else LockUnavailable
    return ClaimError(kind(str(error)))

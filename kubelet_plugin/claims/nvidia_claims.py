"""What NVIDIA's DRA driver has left of the claims that it prepared, when Carina takes its place.

A claim that the driver prepared has a CDI spec, which a container needs whenever it is started
again. The driver removes the spec when it unprepares the claim; now Carina does so. Which devices
the claim has is in the driver's checkpoint. Carina leaves the checkpoint, and what the driver made
on the GPUs: nothing says that it may be removed.

Both files may be damaged or deleted while pods run. So a spec alone is enough to leave its claim
alone, and a claim whose devices are not known may hold any.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Final, assert_never

from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import (
    CheckpointUnusable,
    ClaimError,
    HeldByNvidia,
    NodeResourceFailed,
    PreparedByNvidia,
)
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.nvidia_checkpoint import (
    FILE_NAME,
    NvidiaCheckpoint,
    NvidiaCheckpointError,
    UnreadableCheckpoint,
    parse_nvidia_checkpoint,
)
from kubelet_plugin.claims.resource_failure import file_failure
from kubelet_plugin.devices.conflict import DeviceHold, first_conflict
from kubelet_plugin.devices.name import PartitionName

_LARGEST: Final = 4 * 2**20
"""Bytes of the largest checkpoint that is read. A claim takes some thousand; parsed, they take up
to twenty times the memory."""
_SPEC_SUFFIX: Final = ".yaml"
_SHOWN: Final = 5
"""Claims that one message names."""

_log = logging.getLogger(__name__)


class NvidiaClaims:
    """The claims on this node that NVIDIA's driver prepared."""

    def __init__(
        self, *, plugin_directory: Path, cdi_directory: Path, driver: str, boot_id: str | None
    ) -> None:
        """`driver` is the name that both drivers have; `boot_id` is None if it is not known."""
        self._path = plugin_directory / FILE_NAME
        self._cdi_directory = cdi_directory
        self._driver = driver
        self._spec_prefix = f"k8s.{driver}-claim_"
        self._boot_id = boot_id

    def refuse_conflict(
        self,
        claim: NodeClaim,
        *,
        recorded: Collection[str],
        read_kubelet_record: Callable[[], KubeletRecord | UnreadableRecord],
    ) -> None:
        """Refuses a claim that NVIDIA's driver prepared, or whose devices such a claim may hold.

        `recorded` are the UIDs of Carina's claims, whatever NVIDIA's driver has left of them. That
        driver may also have left files of claims that have ended, which the kubelet does not hold.

        Raises:
            ClaimError: the claim is refused.
        """
        try:
            left = self._left().difference(recorded)
        except OSError as error:
            raise ClaimError(
                NodeResourceFailed(
                    claim.reference,
                    file_failure(
                        f"CDI specs in {self._cdi_directory}",
                        "listed",
                        error,
                        "check that the folder exists and is readable",
                    ),
                )
            ) from error
        if not left:
            return
        checkpoint = self._read()
        if claim.uid in left and not _is_unprepared(claim.uid, checkpoint):
            raise ClaimError(PreparedByNvidia(claim.reference))
        if not claim.holds:
            return
        record = read_kubelet_record()
        others = {
            uid
            for uid in left - {claim.uid}
            if isinstance(record, UnreadableRecord) or record.holds(uid)
        }
        match checkpoint:
            case NvidiaCheckpoint(prepared, unprepared):
                _refuse_held(claim, {uid: prepared[uid] for uid in others & prepared.keys()})
                self._refuse_unknown(others - prepared.keys() - unprepared, "does not have them")
            case UnreadableCheckpoint(reason):
                self._refuse_unknown(others, f"cannot be read: {reason}")
            case _:
                assert_never(checkpoint)

    def unprepare(self, reference: ClaimReference) -> tuple[str, ...]:
        """Removes the claim's CDI spec, if NVIDIA's driver has prepared the claim.

        Returns the partitions that are left of it, as far as the checkpoint can be read.

        Raises:
            ClaimError: the spec cannot be removed.
        """
        spec = self._spec(reference.uid)
        try:
            os.stat(spec)  # noqa: PTH116 - a string already
        except (FileNotFoundError, NotADirectoryError):
            return ()
        checkpoint = self._read()
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(spec)  # noqa: PTH108 - a string already
        except OSError as error:
            raise ClaimError(
                NodeResourceFailed(
                    reference,
                    file_failure(
                        f"the CDI spec {spec} of NVIDIA's DRA driver",
                        "removed",
                        error,
                        "delete the file manually",
                    ),
                )
            ) from error
        match checkpoint:
            case NvidiaCheckpoint(prepared):
                names = (hold.device for hold in prepared.get(reference.uid, ()))
                return tuple(str(name) for name in names if isinstance(name, PartitionName))
            case UnreadableCheckpoint(reason):
                _log.warning(
                    "it is not known which partitions NVIDIA's DRA driver has left of a claim",
                    extra={"claim": reference.key, "reason": f"{self._path}: {reason}"},
                )
                return ()
        assert_never(checkpoint)

    def devices(self) -> frozenset[str]:
        """Returns the names of the devices of the claims, as far as the checkpoint can be read."""
        left = self._left()
        if not left:
            return frozenset()
        checkpoint = self._read()
        match checkpoint:
            case NvidiaCheckpoint(prepared):
                holds = (hold for uid in left & prepared.keys() for hold in prepared[uid])
                return frozenset(str(hold.device) for hold in holds)
            case UnreadableCheckpoint():
                return frozenset()
        assert_never(checkpoint)

    def _refuse_unknown(self, claims: Collection[str], problem: str) -> None:
        """Refuses a claim, because any of these claims may hold its devices.

        Raises:
            ClaimError: there are such claims.
        """
        if claims:
            raise ClaimError(
                CheckpointUnusable(
                    "the devices of claims that NVIDIA's DRA driver prepared on this node are not "
                    f"known, because its checkpoint {self._path} {problem}; delete all pods on "
                    f"this node that use the claims with these UIDs: {_some(claims)}"
                )
            )

    def _left(self) -> set[str]:
        """Returns the UIDs of the claims that have a CDI spec of NVIDIA's driver."""
        try:
            files = os.listdir(self._cdi_directory)  # three times as fast as a pattern
        except FileNotFoundError:
            return set()
        before, after = self._spec_prefix, _SPEC_SUFFIX
        return {
            file.removeprefix(before).removesuffix(after)
            for file in files
            if file.startswith(before) and file.endswith(after)
        }

    def _read(self) -> NvidiaCheckpoint | UnreadableCheckpoint:
        try:
            status = self._path.stat()
            if not S_ISREG(status.st_mode):
                return UnreadableCheckpoint("it is not a regular file")
            if status.st_size > _LARGEST:
                return UnreadableCheckpoint(f"it is larger than {_LARGEST} bytes")
            content = self._path.read_bytes()
            return parse_nvidia_checkpoint(content, driver=self._driver, boot_id=self._boot_id)
        except (OSError, NvidiaCheckpointError) as error:
            return UnreadableCheckpoint(str(error))

    def _spec(self, uid: str) -> str:
        # Not a Path: pathlib would intern the name of every claim that is unprepared.
        return f"{self._cdi_directory}/{self._spec_prefix}{uid}{_SPEC_SUFFIX}"


def _is_unprepared(uid: str, checkpoint: NvidiaCheckpoint | UnreadableCheckpoint) -> bool:
    return isinstance(checkpoint, NvidiaCheckpoint) and uid in checkpoint.unprepared


def _refuse_held(claim: NodeClaim, prepared: Mapping[str, Iterable[DeviceHold]]) -> None:
    for uid, holds in sorted(prepared.items()):
        clash = first_conflict(claim.holds, holds)
        if clash is not None:
            wanted, held = clash
            raise ClaimError(HeldByNvidia(claim, str(wanted.device), uid, str(held.device)))


def _some(claims: Collection[str]) -> str:
    shown = ", ".join(sorted(claims)[:_SHOWN])
    return shown if len(claims) <= _SHOWN else f"{shown} and {len(claims) - _SHOWN} more"

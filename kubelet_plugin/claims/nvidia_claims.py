"""What NVIDIA's DRA driver has left of the claims that it prepared, when Carina takes its place.

A claim is still prepared by that driver while two things are there: its entry in the driver's
checkpoint, and its CDI spec, which a container needs whenever it is started again. The driver
removes both when it unprepares a claim. Carina removes the spec in its place. It leaves the
checkpoint, and what the driver made on the GPUs: nothing says that it may be removed.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import (
    CheckpointUnusable,
    ClaimError,
    HeldByNvidia,
    NodeResourceFailed,
    PreparedByNvidia,
)
from kubelet_plugin.claims.nvidia_checkpoint import (
    FILE_NAME,
    NvidiaCheckpointError,
    NvidiaClaim,
    parse_nvidia_checkpoint,
)
from kubelet_plugin.devices.conflict import first_conflict
from kubelet_plugin.devices.name import PartitionName

_log = logging.getLogger(__name__)


class NvidiaClaims:
    """The claims on this node that NVIDIA's driver prepared."""

    def __init__(
        self, *, plugin_directory: Path, cdi_directory: Path, driver: str, boot_id: str | None
    ) -> None:
        """`driver` is the name that both drivers have; `boot_id` is None if it is not known."""
        self._checkpoint = plugin_directory / FILE_NAME
        self._cdi_directory = cdi_directory
        self._driver = driver
        self._boot_id = boot_id

    def refuse_conflict(
        self, claim: NodeClaim, *, recorded: bool, may_be_held: Callable[[str], bool]
    ) -> None:
        """Refuses a claim that NVIDIA's driver prepared, or whose devices such a claim holds.

        `recorded` says whether Carina has prepared it; `may_be_held` whether the kubelet may hold
        the claim with a UID. That driver may have left files of a claim that has ended.

        Raises:
            ClaimError: the claim is refused, or the checkpoint cannot be read although there are
                CDI specs of the driver.
        """
        for other in self._prepared():
            if other.uid == claim.uid:
                if not recorded:
                    raise ClaimError(PreparedByNvidia(claim.reference))
                continue
            clash = first_conflict(claim.holds, other.holds)
            if clash is not None and may_be_held(other.uid):
                wanted, held = clash
                raise ClaimError(
                    HeldByNvidia(claim, str(wanted.device), other.uid, str(held.device))
                )

    def _prepared(self) -> tuple[NvidiaClaim, ...]:
        """Returns the claims that were not unprepared since."""
        try:
            return tuple(claim for claim in self._listed() if self._spec(claim.uid).exists())
        except (OSError, NvidiaCheckpointError) as error:
            if not any(self._cdi_directory.glob(self._spec("*").name)):
                return ()
            raise ClaimError(
                CheckpointUnusable(
                    f"the checkpoint {self._checkpoint} of NVIDIA's DRA driver cannot be read, so "
                    f"the devices that it prepared are not known: {error}; delete the file when no "
                    "pod on this node uses a claim that NVIDIA's driver prepared"
                )
            ) from error

    def unprepare(self, reference: ClaimReference) -> tuple[str, ...]:
        """Removes the claim's CDI spec, if NVIDIA's driver has prepared the claim.

        Returns the partitions that are left of it, as far as the checkpoint can be read.

        Raises:
            ClaimError: the spec cannot be removed.
        """
        spec = self._spec(reference.uid)
        try:
            spec.unlink()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ClaimError(
                NodeResourceFailed(
                    reference,
                    f"the CDI spec {spec} of NVIDIA's DRA driver cannot be removed: {error}; "
                    "delete the file manually",
                    retriable=True,
                )
            ) from error
        try:
            listed = {claim.uid: claim for claim in self._listed()}
        except (OSError, NvidiaCheckpointError) as error:
            _log.warning(
                "the devices of a claim that NVIDIA's DRA driver prepared are not known",
                extra={"claim": reference.key, "reason": f"{self._checkpoint}: {error}"},
            )
            listed = {}
        claim = listed.get(reference.uid, NvidiaClaim(reference.uid, ()))
        names = [hold.device for hold in claim.holds]
        return tuple(str(name) for name in names if isinstance(name, PartitionName))

    def _listed(self) -> tuple[NvidiaClaim, ...]:
        try:
            content = self._checkpoint.read_bytes()
        except FileNotFoundError:
            return ()
        return parse_nvidia_checkpoint(content, driver=self._driver, boot_id=self._boot_id)

    def _spec(self, uid: str) -> Path:
        return self._cdi_directory / f"k8s.{self._driver}-claim_{uid}.yaml"

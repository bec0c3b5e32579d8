"""Which GPUs are not to be allocated, because what claims on them need could not be restored.

A further claim would wait for the same thing. So what keeps a GPU, or the whole node, from being
prepared is a taint until a repair has succeeded. Other failures concern the claim alone, or have a
taint already: a problem of the GPU, and MIG mode that is held. Room that an administrator's MIG
instance takes is in what is published.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.failure import ClaimFailure, NodeResourceFailed
from kubelet_plugin.claims.resource_failure import (
    DeviceNodeUnusable,
    DiskFull,
    DriverFileUnreadable,
    DriverLibraryMissing,
    DriverModuleMissing,
    FileUnusable,
    ResourceFailure,
)


class Extent(Enum):
    """What a failure prevents."""

    GPU = "gpu"
    """Claims on the same GPU."""
    NODE = "node"
    """All claims on the node."""


PREVENTS: Final[Mapping[type[ResourceFailure], Extent]] = {
    DeviceNodeUnusable: Extent.GPU,
    DriverModuleMissing: Extent.NODE,
    DriverLibraryMissing: Extent.NODE,
    DriverFileUnreadable: Extent.NODE,
    DiskFull: Extent.NODE,
    FileUnusable: Extent.NODE,
}
"""The failures that prevent further claims."""

FailedRepair: TypeAlias = tuple[NodeClaim, ClaimFailure]
_NODE: Final = ""
"""Stands for all GPUs where a GPU is named."""


def prevented(failed: Iterable[FailedRepair]) -> Mapping[str, str]:
    """Returns the reasons of failures that prevent claims, by GPU (`gpu-<minor>`).

    Of several reasons, the first in the alphabet counts, so that it does not change with the order.
    """
    reasons: dict[str, set[str]] = {}
    for claim, failure in failed:
        if not isinstance(failure, NodeResourceFailed):
            continue
        match PREVENTS.get(type(failure.cause)):
            case Extent.NODE:
                reasons.setdefault(_NODE, set()).add(failure.reason)
            case Extent.GPU:
                for gpu in claim.gpus:
                    reasons.setdefault(gpu, set()).add(failure.reason)
            case None:
                pass
    return {gpu: min(found) for gpu, found in reasons.items()}


class FailedRepairs:
    """What the last repair could not restore. Several threads use it."""

    def __init__(self, *, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called after each change, and returns at once."""
        self._changed = changed
        self._lock = threading.Lock()
        self._prevented: Mapping[str, str] = {}

    def of(self, minor: int) -> str | None:
        """Returns why claims on this GPU cannot be prepared, in a word."""
        return self._prevented.get(_NODE) or self._prevented.get(f"gpu-{minor}")

    def repaired(self, failed: Collection[FailedRepair]) -> None:
        """A repair has ended."""
        now = prevented(failed)
        with self._lock:
            before, self._prevented = self._prevented, now
        if before != now:
            self._changed()

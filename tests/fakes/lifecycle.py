"""A claims' lifecycle with its real locks, record and checkpoint, on a folder."""

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.claim_reader import ClaimReader
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.lifecycle import ClaimLifecycle, ClaimReporter, NodePreparer
from kubelet_plugin.claims.lock import FileLock, GpuLocks
from kubelet_plugin.claims.nvidia_claims import NvidiaClaims
from kubelet_plugin.claims.record import ClaimRecord

CHECKPOINT, LOCK = "checkpoint.jsonl", "serialize.lock"


class _Preparer(NodePreparer, Protocol):
    def owners(self) -> tuple[ClaimReference, ...]: ...


def lifecycle(
    folder: Path,
    *,
    driver: str,
    pool: str,
    boot_id: str,
    read_claim: Callable[[ClaimReference, float], Mapping[str, object]],
    read_kubelet_record: Callable[[], KubeletRecord | UnreadableRecord],
    preparer: _Preparer,
    reporter: ClaimReporter,
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = lambda: 0.0,
    node_lock: FileLock | None = None,
    pause: Callable[[float], object] = time.sleep,
    on_change: Callable[[Collection[NodeClaim]], None] = lambda _: None,
    inventory_age: Callable[[], float] = lambda: 0.0,
    released: Callable[[], bool] = lambda: False,
) -> ClaimLifecycle:
    """The lifecycle of a plugin that has just started; `pause` waits for the lock of a GPU."""
    reader = ClaimReader(read_claim, driver=driver, pool=pool)
    record = ClaimRecord(
        CheckpointFile(folder / CHECKPOINT),
        boot_id=boot_id,
        node_lock=node_lock or FileLock(folder / LOCK, clock=time.monotonic, pause=time.sleep),
        gpu_locks=GpuLocks(folder, clock=clock, pause=pause),
        reader=reader,
        owners=preparer.owners,
        on_change=on_change,
        reporter=reporter,
        clock=clock,
    )
    return ClaimLifecycle(
        reader=reader,
        record=record,
        nvidia_claims=NvidiaClaims(
            plugin_directory=folder, cdi_directory=folder / "cdi", driver=driver, boot_id=boot_id
        ),
        read_kubelet_record=read_kubelet_record,
        preparer=preparer,
        reporter=reporter,
        inventory_age=inventory_age,
        oldest_inventory=60.0,
        released=released,
        clock=clock,
        random=random,
    )

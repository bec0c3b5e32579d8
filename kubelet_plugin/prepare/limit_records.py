"""The files that record which limits of memory Carina sets for pods, one for each claim and GPU.

A file is changed under the lock of its GPU, and before the limit is set. It is removed after the
limit is. Cgroups end with the node's boot, so a file of an earlier boot records nothing; neither
does one that cannot be read. Both are still there to be removed with their claim.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubelet_plugin.prepare.record_folder import DamagedRecordError, RecordFolder

_VERSION: Final = 1

_DAMAGED: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """What one claim adds to the limits of its pods on one GPU."""

    gpu: str
    """The UUID."""
    pci_bus_id: str
    pods: tuple[str, ...]
    """UIDs of the pods for which the claim was reserved."""
    mib: int


_Parts: TypeAlias = Mapping[str, Mapping[str, int]]
"""By pod: what claims add to the limit on a GPU, in MiB, by the name of the file."""


class LimitRecords:
    """The recorded limits of a node. Methods raise ResourceError if the folder is unusable."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = RecordFolder(
            folder,
            lambda content: _parsed(content, boot_id),
            subject="the record of memory limits",
            damage="a record of a memory limit cannot be read, and counts as none",
        )
        self._boot_id = boot_id
        self._parts: dict[str, tuple[Mapping[str, LimitRecord], _Parts]] = {}
        """By GPU: the records that it was last asked about, and what follows from them."""

    def names(self) -> frozenset[str]:
        """Returns the names of all files, `<claim>.gpu-<minor>`, also of damaged ones."""
        return self._folder.names()

    def read(self, name: str) -> LimitRecord | None:
        """Returns what a file records; None if nothing."""
        return self._folder.read(name)

    def has_damaged(self, gpu: str) -> bool:
        """Returns whether a file of `gpu-<minor>` cannot be read, so that no total is certain."""
        return bool(self._folder.damaged(f".{gpu}"))

    def total_mib(self, pod: str, gpu: str, *, without: str = "") -> int:
        """Returns what all claims together add to the limit of a pod on `gpu-<minor>`.

        `without` is the name of a file that is not counted.
        """
        records = self._folder.all(f".{gpu}")
        before, parts = self._parts.get(gpu, (None, {}))
        if records is not before:
            parts = _parts_of(records)
            self._parts[gpu] = records, parts
        return sum(mib for name, mib in parts.get(pod, {}).items() if name != without)

    def store(self, name: str, record: LimitRecord) -> None:
        """Records it durably, in place of what the file recorded before."""
        self._folder.store(name, _rendered(record, self._boot_id))

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        self._folder.remove(name)


def _parts_of(records: Mapping[str, LimitRecord]) -> _Parts:
    parts: dict[str, dict[str, int]] = defaultdict(dict)
    for name, record in records.items():
        for pod in record.pods:
            parts[pod][name] = record.mib
    return parts


def _rendered(record: LimitRecord, boot_id: str) -> bytes:
    content = {
        "version": _VERSION,
        "bootID": boot_id,
        "gpu": record.gpu,
        "pciBusID": record.pci_bus_id,
        "pods": record.pods,
        "mib": record.mib,
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(content: bytes, boot_id: str) -> LimitRecord | None:
    try:
        read: dict[str, Any] = json.loads(content)
        if read["version"] != _VERSION:
            raise DamagedRecordError(f"has version {read['version']!r}, not {_VERSION}")
        pods = tuple(str(pod) for pod in read["pods"])
        record = LimitRecord(str(read["gpu"]), str(read["pciBusID"]), pods, int(read["mib"]))
        return record if read["bootID"] == boot_id else None
    except _DAMAGED as error:
        raise DamagedRecordError(f"is damaged: {error!r}") from error

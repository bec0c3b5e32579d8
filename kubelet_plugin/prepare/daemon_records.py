"""The files that record which MPS daemons claims need, one for each claim.

carina-sharing is told what is recorded, by whichever plugin is connected to it. So a file is
written before a daemon is waited for, and removed before its end is. It also says whether the
daemon has been ready since the node booted. A file that cannot be read records nothing, and is
still there to be removed with its claim.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from carina_dra.sharing.message import WantedDaemon
from kubelet_plugin.prepare.record_folder import DamagedRecordError, RecordFolder

_VERSION: Final = 1
_DAMAGED: Final = (ValueError, KeyError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class DaemonRecord:
    """The MPS daemon of a claim."""

    wanted: WantedDaemon
    ready: bool = False
    """Whether it has been ready since the node booted, with these limits."""


class DaemonRecords:
    """The recorded daemons of a node. Methods raise ResourceError if the folder is unusable."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = RecordFolder(
            folder,
            lambda content: _parsed(content, boot_id),
            subject="the record of MPS daemons",
            damage="a record of an MPS daemon cannot be read, and counts as none",
        )
        self._boot_id = boot_id

    def claims(self) -> frozenset[str]:
        """Returns the UIDs of all claims with a file, also with a damaged one."""
        return self._folder.names()

    def wanted(self) -> tuple[WantedDaemon, ...]:
        """Returns all daemons that are recorded, sorted by the UIDs of their claims."""
        records = self._folder.all().items()
        return tuple(record.wanted for claim, record in records if record.wanted.claim.uid == claim)

    def read(self, claim: str) -> DaemonRecord | None:
        """Returns what is recorded for a claim; None if nothing."""
        return self._folder.read(claim)

    def store(self, record: DaemonRecord) -> None:
        """Records it durably, in place of what was recorded for the claim before."""
        self._folder.store(record.wanted.claim.uid, _rendered(record, self._boot_id))

    def remove(self, claim: str) -> bool:
        """Removes the file of a claim, if it exists; returns whether it did."""
        there = claim in self.claims()
        if there:
            self._folder.remove(claim)
        return there


def _rendered(record: DaemonRecord, boot_id: str) -> bytes:
    content = {
        "version": _VERSION,
        "readyInBoot": boot_id if record.ready else None,
        "wanted": record.wanted.model_dump(mode="json"),
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(content: bytes, boot_id: str) -> DaemonRecord:
    try:
        read: dict[str, Any] = json.loads(content)
        if read["version"] != _VERSION:
            raise DamagedRecordError(f"has version {read['version']!r}, not {_VERSION}")
        wanted = WantedDaemon.model_validate_json(json.dumps(read["wanted"]))
        return DaemonRecord(wanted, ready=read["readyInBoot"] == boot_id)
    except _DAMAGED as error:
        raise DamagedRecordError(f"is damaged: {error!r}") from error

"""The files that record which limits of memory Carina sets for pods, one for each claim and GPU.

A file is changed under the lock of its GPU, durably and before the limit is set. It is removed
after the limit is. Cgroups end with the node's boot, so a file of an earlier boot records nothing;
neither does one that cannot be read. Both are still there to be removed with their claim.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from carina_dra.durable_file import replace_file, sync_folder
from kubelet_plugin.claims.resource_failure import file_failure
from kubelet_plugin.prepare.resource import ResourceError

_VERSION: Final = 1
_SUFFIX: Final = ".json"
_TEMPORARY: Final = ".new"

_DAMAGED: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """What one claim adds to the limits of its pods on one GPU."""

    gpu: str
    """The UUID."""
    pci_bus_id: str
    pods: tuple[str, ...]
    """UIDs of the pods for which the claim was reserved."""
    mib: int


class LimitRecords:
    """The recorded limits of a node. Methods raise ResourceError if the folder is unusable."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def names(self) -> frozenset[str]:
        """Returns the names of all files, `<claim>.gpu-<minor>`, also of damaged ones."""
        with self._usable():
            return frozenset(
                name.removesuffix(_TEMPORARY).removesuffix(_SUFFIX)
                for name in self._entries()
                if name.removesuffix(_TEMPORARY).endswith(_SUFFIX)
            )

    def read(self, name: str) -> LimitRecord | None:
        """Returns what a file records; None if nothing."""
        with self._usable():
            try:
                content = self._file(name).read_bytes()
            except FileNotFoundError:
                return None
        try:
            return _parsed(content, self._boot_id)
        except _DAMAGED as error:
            _log.warning(
                "a record of a memory limit cannot be read, and counts as none",
                extra={"file": str(self._file(name)), "error": repr(error)},
            )
            return None

    def has_damaged(self, gpu: str) -> bool:
        """Returns whether a file of `gpu-<minor>` cannot be read, so that no total is certain."""
        return any(self._is_damaged(name) for name in self.names() if name.endswith(f".{gpu}"))

    def total_mib(self, pod: str, gpu: str, *, without: str = "") -> int:
        """Returns what all claims together add to the limit of a pod on `gpu-<minor>`.

        `without` is the name of a file that is not counted.
        """
        names = [name for name in self.names() if name.endswith(f".{gpu}") and name != without]
        records = [self.read(name) for name in sorted(names)]
        return sum(record.mib for record in records if record and pod in record.pods)

    def _is_damaged(self, name: str) -> bool:
        with self._usable():
            try:
                content = self._file(name).read_bytes()
            except FileNotFoundError:
                return False
        try:
            _parsed(content, self._boot_id)
        except _DAMAGED:
            return True
        return False

    def store(self, name: str, record: LimitRecord) -> None:
        """Records it durably, in place of what the file recorded before."""
        file = str(self._file(name))
        with self._usable():
            replace_file(file, _rendered(record, self._boot_id), temporary=file + _TEMPORARY)

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        file = self._file(name)
        with self._usable():
            for path in (file.with_name(file.name + _TEMPORARY), file):
                path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                sync_folder(self._folder)

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(
                file_failure(
                    f"the record of memory limits in {self._folder}",
                    "used",
                    error,
                    "check the folder and its disk",
                )
            ) from error


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
    read: dict[str, Any] = json.loads(content)
    if read["version"] != _VERSION:
        raise ValueError(f"version {read['version']!r} is not {_VERSION}")
    pods = tuple(str(pod) for pod in read["pods"])
    record = LimitRecord(str(read["gpu"]), str(read["pciBusID"]), pods, int(read["mib"]))
    return record if read["bootID"] == boot_id else None

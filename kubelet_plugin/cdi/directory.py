"""The folder from which container runtimes read CDI specs, with one file for each claim.

Files are replaced atomically: a temporary file is written, synced and renamed. The name of the
temporary file ends in `.new`, so that runtimes do not read it. It contains the claim's UID and
counts as a file of the claim, so that one left by a killed process is observed and removed like any
other. A claim's file is changed under the locks of its GPUs, or under the node's lock while the
claim is not recorded.

Paths are strings, because pathlib interns each part of a path and would keep the name of every
claim in memory.
"""

import contextlib
import os
from pathlib import Path

from carina_dra.durable_file import replace_file, sync_folder

_SUFFIX = ".json"
_TEMPORARY = ".new"


class CdiDirectory:
    """The specs of one driver's claims. Methods raise OSError if the folder cannot be used."""

    def __init__(self, path: Path, driver: str) -> None:
        self._path = path
        # The CDI specification's name of a transient spec: vendor-class_id.
        self._prefix = f"{driver}-claim_"

    @property
    def path(self) -> Path:
        """Path of the folder."""
        return self._path

    def write(self, uid: str, content: bytes) -> bytes | None:
        """Writes the claim's spec, unless the file already has this content.

        Returns what it had before; None if it did not exist.
        """
        before = self.read(uid)
        if before == content:
            sync_folder(self._path)  # its writer may have been killed before the fsync
        else:
            file = self.file(uid)
            replace_file(file, content, temporary=file + _TEMPORARY)
        return before

    def remove(self, uid: str) -> None:
        """Removes the claim's spec, if it exists."""
        for suffix in ("", _TEMPORARY):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.file(uid) + suffix)
        # Even if nothing was removed: another process may have been killed before its fsync.
        with contextlib.suppress(FileNotFoundError):
            sync_folder(self._path)

    def read(self, uid: str) -> bytes | None:
        """Returns the claim's spec; None if it does not exist."""
        try:
            with open(self.file(uid), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def uids(self) -> frozenset[str]:
        """Returns the UIDs of all claims with a file, including temporary files."""
        try:
            names = [entry.name.removesuffix(_TEMPORARY) for entry in self._path.iterdir()]
        except FileNotFoundError:
            return frozenset()
        return frozenset(
            name[len(self._prefix) : -len(_SUFFIX)]
            for name in names
            if name.startswith(self._prefix) and name.endswith(_SUFFIX)
        )

    def file(self, uid: str) -> str:
        """Returns the path of the claim's spec."""
        return f"{self._path}/{self._prefix}{uid}{_SUFFIX}"

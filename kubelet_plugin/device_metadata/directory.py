"""The folder of the files with device metadata, with one file for each request of a claim.

The name of a file is `<claim UID>_<request>.json`: a claim that is created again under its name has
files of its own. Files are replaced atomically and durably. The name of a temporary file ends in
`.new`, and it counts as a file of the claim. A claim's files are changed under the locks of its
GPUs, or under the node's lock while the claim is not recorded.

Paths are strings, because pathlib interns each part of a path and would keep the name of every
claim in memory.
"""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from carina_dra.durable_file import replace_file, sync_folder

_SUFFIX = ".json"
_TEMPORARY = ".new"


class MetadataDirectory:
    """The metadata of one driver's claims. Methods raise OSError if the folder cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """Path of the folder."""
        return self._path

    def file(self, uid: str, request: str) -> str:
        """Returns the path of the file of a claim's request."""
        return f"{self._path}/{uid}_{request}{_SUFFIX}"

    def write(self, uid: str, request: str, content: bytes) -> None:
        """Writes the metadata of a request, unless the file already has this content."""
        if self.read(uid, request) == content:
            sync_folder(self._path)  # its writer may have been killed before the fsync
            return
        file = self.file(uid, request)
        replace_file(file, content, temporary=file + _TEMPORARY)

    def read(self, uid: str, request: str) -> bytes | None:
        """Returns the metadata of a request; None if the file does not exist."""
        try:
            with open(self.file(uid, request), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def remove(self, uid: str, *, keep: Collection[str] = ()) -> None:
        """Removes the claim's files, except those of the requests to keep."""
        kept = {self.file(uid, request) for request in keep}
        for name in self._names():
            path = f"{self._path}/{name}"
            if _uid(name) == uid and path not in kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        # Even if nothing was removed: another process may have been killed before its fsync.
        with contextlib.suppress(FileNotFoundError):
            sync_folder(self._path)

    def uids(self) -> frozenset[str]:
        """Returns the UIDs of all claims with a file, including temporary files."""
        return frozenset(uid for name in self._names() if (uid := _uid(name)))

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._path)
        except FileNotFoundError:
            return []


def _uid(name: str) -> str:
    """Returns the UID in the name of a file; "" if the file is not ours."""
    uid, separator, rest = name.removesuffix(_TEMPORARY).partition("_")
    return uid if separator and rest.endswith(_SUFFIX) else ""

"""The folder from which container runtimes read CDI specs: one file of ours for each claim.

Files are replaced as a whole: written beside under a name that ends in `.new`, which runtimes do
not read, put on disk, renamed. That name follows from the claim's UID and counts as a file of the
claim, so that what a killed process left is found, and removed, like any other. A claim's file is
changed under the locks of its GPUs, or under the node's while the claim is not recorded.

Files are named by text: pathlib interns each part of a path, and the names of claims never end.
"""

import contextlib
import os
from pathlib import Path

from kubelet_plugin.claims.checkpoint_file import sync_folder

_SUFFIX = ".json"
_TEMPORARY = ".new"
_TEMPORARY_BEFORE = ".tmp"
"""As version 0.1.0 writes, which may run beside this one: not to be written by both at once."""


class CdiDirectory:
    """The specs of one driver's claims. Methods raise OSError where the folder cannot be used."""

    def __init__(self, path: Path, driver: str) -> None:
        self._path = path
        # The CDI specification's name of a transient spec: vendor-class_id.
        self._prefix = f"{driver}-claim_"

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def write(self, uid: str, content: bytes) -> None:
        """Makes `content` the claim's spec. Nothing happens if it is already."""
        if self.read(uid) == content:
            sync_folder(self._path)  # whoever wrote it may have been killed before its fsync
            return
        self._make_folder()
        file = self._file(uid)
        temporary = file + _TEMPORARY
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as stream:
                stream.write(content)
            os.fchmod(descriptor, 0o644)  # whatever the umask
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, file)
        sync_folder(self._path)

    def remove(self, uid: str) -> None:
        """Removes the claim's spec, if there is one."""
        for suffix in ("", _TEMPORARY, _TEMPORARY_BEFORE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file(uid) + suffix)
        # Also where nothing was left to remove: a process may have been killed before its fsync.
        with contextlib.suppress(FileNotFoundError):
            sync_folder(self._path)

    def read(self, uid: str) -> bytes | None:
        """Gives the claim's spec, None if there is none."""
        try:
            with open(self._file(uid), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def uids(self) -> frozenset[str]:
        """Gives the UIDs of the claims of which there is a file, a temporary one included."""
        try:
            names = [
                entry.name.removesuffix(_TEMPORARY).removesuffix(_TEMPORARY_BEFORE)
                for entry in self._path.iterdir()
            ]
        except FileNotFoundError:
            return frozenset()
        return frozenset(
            name[len(self._prefix) : -len(_SUFFIX)]
            for name in names
            if name.startswith(self._prefix) and name.endswith(_SUFFIX)
        )

    def _file(self, uid: str) -> str:
        return f"{self._path}/{self._prefix}{uid}{_SUFFIX}"

    def _make_folder(self) -> None:
        missing = [folder for folder in (self._path, *self._path.parents) if not folder.exists()]
        self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
        for folder in reversed(missing):
            sync_folder(folder.parent)

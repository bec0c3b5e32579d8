"""Paths below a root folder, resolved as if the root were "/".

The driver's root is often the "/" of another file system, the host's or a driver container's. An
absolute symbolic link in it is relative to that "/", but the kernel would resolve it in this
process's file system.
"""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MAX_LINKS = 40  # as the kernel: path_resolution(7)


class RootedPaths:
    """Resolves paths as chroot(2) into the root would.

    The status of each file and link is read once; use a new instance to detect changes.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root).rstrip("/")
        self._statuses: dict[str, os.stat_result | None] = {}

    def resolve(self, absolute: str) -> str:
        """Returns the path below the root without links. A missing entry is treated as a folder.

        Raises:
            OSError: ELOOP, naming the path, if there are too many links.
        """
        path, pending, followed = "", absolute.split("/")[::-1], 0
        while pending:
            part = pending.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                path = path.rpartition("/")[0]
                continue
            folder, path = path, f"{path}/{part}"
            if not self._is_link(path, folder):
                continue
            followed += 1
            if followed > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), f"{self._root}{absolute}")
            target = os.readlink(f"{self._root}{path}")  # noqa: PTH115 - a string already
            path = "" if target.startswith("/") else folder
            pending += target.split("/")[::-1]
        return path or "/"

    def locate(self, absolute: str) -> str:
        """Returns the path of a file below the root in this process.

        Raises:
            OSError: as `resolve`.
        """
        return f"{self._root}{self.resolve(absolute)}"

    @property
    def visited(self) -> Mapping[str, os.stat_result | None]:
        """The status of every file, folder and link that `resolve` read; None if it does not exist.

        While none of them changes, the same paths resolve to the same files.
        """
        return {f"{self._root}{path}": status for path, status in self._statuses.items()}

    def _is_link(self, path: str, folder: str) -> bool:
        """Returns whether a path in a resolved folder is a link."""
        if folder and self._statuses.get(folder) is None:
            return False  # the folder does not exist
        if path not in self._statuses:
            self._statuses[path] = _status(f"{self._root}{path}")
        status = self._statuses[path]
        return status is not None and stat.S_ISLNK(status.st_mode)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class RootedPath:
    """A path below a root, which is resolved at each use."""

    root: Path
    absolute: str

    def __str__(self) -> str:
        return str(self.root / self.absolute.lstrip("/"))

    def locate(self) -> Path:
        """Returns the current path of the file in this process.

        Raises:
            OSError: ELOOP, naming the path, if there are too many links.
        """
        return Path(RootedPaths(self.root).locate(self.absolute))

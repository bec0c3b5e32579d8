"""Finds the files of the installed NVIDIA driver that a container needs, below the driver's root.

The path of this root can differ between this process and the container runtime: files are searched
below the former, and returned with the latter. Links are resolved within the root.

A search lists about twenty folders and takes 2.4 ms on a Debian node, six times as long as the rest
of a prepare. Therefore its result is cached; checking the cache for changes takes 0.05 ms.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from carina_dra.nvidia.driver_location import DriverLocation
from carina_dra.nvidia.driver_search import BINARY_FOLDERS, LIBRARY_FOLDERS, DriverSearch
from carina_dra.nvidia.rooted_path import RootedPaths
from kubelet_plugin.cdi.driver_files import DriverFile, DriverFiles, Library
from kubelet_plugin.claims.resource_failure import DriverFileUnreadable, DriverLibraryMissing

_HOOK_FOLDERS = (*BINARY_FOLDERS, "/usr/local/nvidia/toolkit")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_HOOK = "nvidia-cdi-hook"
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")
_FIRMWARE_FOLDERS = ("/lib/firmware/nvidia", "/usr/lib/firmware/nvidia")
_REQUIRED = ("libcuda", "libnvidia-ml")
"""Libraries that every container needs. Their SONAMEs end in `.so.1` in all releases."""
_LINK = re.compile(r"(?P<stem>lib.+)\.so(\.\d+)?")


class DriverFilesError(Exception):
    """The driver's files are missing or cannot be read; names the root, the path and the remedy."""

    def __init__(self, failure: DriverLibraryMissing | DriverFileUnreadable) -> None:
        super().__init__(str(failure))
        self.failure = failure


_Stamp: TypeAlias = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class _Watched:
    """The state of a folder or link before a search."""

    path: str
    searched: bool
    """Whether a change of its entries counts, or only a replacement of the folder."""
    stamp: _Stamp

    def changed(self) -> bool:
        try:
            return _stamp(os.lstat(self.path), searched=self.searched) != self.stamp
        except OSError:
            return self.stamp is not None


class DriverRoot:
    """The root of an installed driver."""

    def __init__(self, search: DriverSearch, hook: Path | None = None) -> None:
        """`hook` is the container runtime's path of `nvidia-cdi-hook`; None to search for it."""
        self._search = search
        self._hook = hook
        self._known: tuple[DriverLocation, tuple[_Watched, ...], DriverFiles] | None = None

    def files(self, version: str) -> DriverFiles:
        """Returns the files of the driver with this version ("550.163.01").

        Raises:
            DriverFilesError: a library that every container needs is missing, or a file or folder
                cannot be read.
        """
        location = self._search.location()
        if location is None:
            names = tuple(f"{stem}.so.{version}" for stem in _REQUIRED)
            raise _libraries_missing(names, self._search.roots, version)
        if self._known is not None:
            place, watched, files = self._known
            if (
                place == location
                and files.version == version
                and not any(folder.changed() for folder in watched)
            ):
                return files
        # Status is read before content, so that the next call detects a change in between.
        paths = RootedPaths(location.path)
        searched = frozenset(_located(paths, _folders(version)))
        files = _Search(location, self._hook, paths).files(version)
        self._known = location, tuple(_watched(paths, searched)), files
        return files


class _Search:
    """One search below the root."""

    def __init__(self, location: DriverLocation, hook: Path | None, paths: RootedPaths) -> None:
        self._root = location.path
        self._host_root = location.host_path
        self._hook = hook
        self._paths = paths

    def files(self, version: str) -> DriverFiles:
        libraries = tuple(self._libraries(version))
        names = {library.container_path.rpartition("/")[2] for library in libraries}
        missing = {f"{stem}.so.{version}" for stem in _REQUIRED} - names
        if missing:
            raise _libraries_missing(tuple(sorted(missing)), str(self._root), version)
        hook = str(self._hook) if self._hook is not None else self._found_hook()
        sockets = (self._named(path) for path in _SOCKETS if self._is(path, stat.S_ISSOCK))
        return DriverFiles(
            version=version,
            libraries=libraries,
            binaries=tuple(self._binaries()),
            sockets=tuple(sockets),
            firmware=tuple(self._firmware(version)),
            hook=hook,
        )

    def _libraries(self, version: str) -> Iterator[Library]:
        seen: set[str] = set()
        libraries: list[Library] = []
        for folder, names in self._listed(LIBRARY_FOLDERS):
            links = _links(names)
            for name in names:
                stem = name.removesuffix(f".so.{version}")
                if stem == name or not stem.startswith("lib") or name in seen:
                    continue
                path = f"{folder}/{name}"
                if not self._is(path, stat.S_ISREG):
                    continue
                seen.add(name)
                names_of = links.get(stem, set()) - {name}
                if stem in _REQUIRED:
                    names_of |= {f"{stem}.so.1"}
                file = self._named(path)
                libraries.append(
                    Library(file.host_path, file.container_path, tuple(sorted(names_of)))
                )
        yield from sorted(libraries, key=lambda library: library.container_path)

    def _binaries(self) -> Iterator[DriverFile]:
        for name in sorted(_BINARIES):
            paths = (f"{folder}/{name}" for folder in BINARY_FOLDERS)
            path = next((path for path in paths if self._is(path, stat.S_ISREG)), None)
            if path is not None:
                yield self._named(path)

    def _firmware(self, version: str) -> Iterator[DriverFile]:
        for folder, names in self._listed(f"{top}/{version}" for top in _FIRMWARE_FOLDERS):
            yield from (
                self._named(f"{folder}/{name}")
                for name in names
                if name.startswith("gsp") and name.endswith(".bin")
            )

    def _found_hook(self) -> str | None:
        for folder in _HOOK_FOLDERS:
            path = f"{folder}/{_HOOK}"
            if self._is(path, lambda mode: stat.S_ISREG(mode) and bool(mode & 0o111)):
                return self._named(path).host_path
        return None

    def _listed(self, folders: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Lists the folders that exist. A folder with two paths is listed once."""
        seen: set[str] = set()
        for folder in folders:
            with self._reading(folder):
                path = self._paths.locate(folder)
                try:
                    names = tuple(sorted(os.listdir(path)))
                except (FileNotFoundError, NotADirectoryError):
                    continue
            if path not in seen:
                seen.add(path)
                yield folder, names

    def _named(self, path: str) -> DriverFile:
        """Returns the file. Its host path has no links, which the host would resolve from "/"."""
        with self._reading(path):
            resolved = self._paths.resolve(path)
        return DriverFile(str(self._host_root / resolved.lstrip("/")), path)

    def _is(self, path: str, kind: Callable[[int], bool]) -> bool:
        with self._reading(path):
            try:
                return kind(os.stat(self._paths.locate(path)).st_mode)  # noqa: PTH116 - the same
            except (FileNotFoundError, NotADirectoryError):
                return False

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DriverFilesError(
                DriverFileUnreadable(path, str(self._root), str(error))
            ) from error


def _libraries_missing(names: tuple[str, ...], root: str, version: str) -> DriverFilesError:
    return DriverFilesError(DriverLibraryMissing(names, root, LIBRARY_FOLDERS, version))


def _folders(version: str) -> tuple[str, ...]:
    """Returns all folders that a search reads."""
    firmware = (f"{folder}/{version}" for folder in _FIRMWARE_FOLDERS)
    sockets = (socket.rpartition("/")[0] for socket in _SOCKETS)
    return (*LIBRARY_FOLDERS, *_HOOK_FOLDERS, *firmware, *sockets)


def _located(paths: RootedPaths, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        with suppress(OSError):  # a loop of links, which the search reports
            yield paths.locate(folder)


def _watched(paths: RootedPaths, searched: frozenset[str]) -> Iterator[_Watched]:
    """Returns the searched folders, and all links and folders on the paths that were resolved.

    A missing entry of a searched folder is left out, because adding it changes the folder.
    """
    for path, status in paths.visited.items():
        if status is None:
            if path.rpartition("/")[0] not in searched:
                yield _Watched(path, searched=path in searched, stamp=None)
        elif stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode):
            listed = path in searched
            yield _Watched(path, searched=listed, stamp=_stamp(status, searched=listed))


def _stamp(status: os.stat_result, *, searched: bool) -> _Stamp:
    """Returns a stamp that changes with the entries of a folder or the target of a link."""
    timed = searched or stat.S_ISLNK(status.st_mode)
    return status.st_dev, status.st_ino, status.st_mtime_ns if timed else 0


def _links(names: Iterable[str]) -> dict[str, set[str]]:
    """Returns the names `libX.so` and `libX.so.N`, by `libX`.

    The driver's installer creates these links for the loader. Their targets do not matter here.
    """
    links: dict[str, set[str]] = {}
    for name in names:
        match = _LINK.fullmatch(name)
        if match:
            links.setdefault(match["stem"], set()).add(name)
    return links

"""The files of the installed NVIDIA driver that a container needs, found below the driver's root.

The driver is installed at the host's "/", or below another root when it runs in a container. This
process may see that root elsewhere than the container runtime does: files are looked for below the
first and named by the second.

A search lists about twenty folders, so its result is kept until one of them changes. What matters
of a folder is which names it holds: that is in its modification time.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from kubelet_plugin.cdi.driver_files import DriverFile, DriverFiles, Library

__all__ = ["DriverFilesError", "DriverRoot", "nvml_libraries"]

_LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/lib",
)
_BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/opt/bin")
_HOOK_FOLDERS = (*_BINARY_FOLDERS, "/usr/local/nvidia/toolkit")
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
"""Without these no container can use a GPU. Their SONAMEs end in `.so.1` in every release."""
_LINK = re.compile(r"(?P<stem>lib.+)\.so(\.\d+)?")


class DriverFilesError(Exception):
    """The driver's libraries are not where they should be: names root, folders and remedy."""


def nvml_libraries(root: Path) -> tuple[Path, ...]:
    """Where NVML may lie below a driver root; at the host's own root the loader knows best."""
    if root == Path("/"):
        return ()
    return tuple(root / f"{folder[1:]}/libnvidia-ml.so.1" for folder in _LIBRARY_FOLDERS)


_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class DriverRoot:
    """The root of an installed driver."""

    def __init__(self, root: Path, host_root: Path, hook: Path | None = None) -> None:
        """`root` and `host_root` are the same folder, to this process and to the container runtime.

        `hook` is `nvidia-cdi-hook` to the container runtime; None to look for it.
        """
        self._root = root
        self._host_root = PurePosixPath(host_root)
        self._hook = hook
        self._known: tuple[_Stamp, DriverFiles] | None = None
        self._watched: tuple[str, tuple[str, ...]] | None = None

    def files(self, version: str) -> DriverFiles:
        """Gives the files of the driver of that version ("550.163.01").

        Raises:
            DriverFilesError: a library that every container needs is missing.
        """
        stamp = self._stamp(version)
        if self._known is None or self._known[0] != stamp or self._known[1].version != version:
            # Stamped before the search: what changes meanwhile is found the next time.
            self._known = stamp, self._find(version)
        return self._known[1]

    def _find(self, version: str) -> DriverFiles:
        libraries = tuple(self._libraries(version))
        missing = [
            f"{stem}.so.{version}"
            for stem in _REQUIRED
            if not any(library.host_path.endswith(f"/{stem}.so.{version}") for library in libraries)
        ]
        if missing:
            raise DriverFilesError(
                f"{' and '.join(missing)} not found below the driver root {self._root}, in "
                f"{', '.join(_LIBRARY_FOLDERS)}; install the libraries of driver {version} there, "
                "or set driver_root (and host_driver_root) to where the driver is installed"
            )
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
        found: list[Library] = []
        for folder, names in self._listed(_LIBRARY_FOLDERS):
            links = _links(names)
            for name in names:
                stem = name.removesuffix(f".so.{version}")
                if stem == name or not stem.startswith("lib") or name in seen:
                    continue
                seen.add(name)
                names_of = links.get(stem, set()) - {name}
                if stem in _REQUIRED:
                    names_of |= {f"{stem}.so.1"}
                file = self._named(f"{folder}/{name}")
                found.append(Library(file.host_path, file.container_path, tuple(sorted(names_of))))
        yield from sorted(found, key=lambda library: library.container_path)

    def _binaries(self) -> Iterator[DriverFile]:
        for name in sorted(_BINARIES):
            paths = (f"{folder}/{name}" for folder in _BINARY_FOLDERS)
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
            path = self._path(f"{folder}/{_HOOK}")
            if path.is_file() and os.access(path, os.X_OK):
                return self._named(f"{folder}/{_HOOK}").host_path
        return None

    def _listed(self, folders: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The folders that there are, with the names in them; one with two names only once."""
        seen: set[tuple[int, int]] = set()
        for folder in folders:
            path = self._path(folder)
            try:
                status = path.stat()
                names = tuple(sorted(entry.name for entry in path.iterdir()))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise DriverFilesError(
                    f"{path}, below the driver root {self._root}, cannot be read: {error}; "
                    "the plugin needs to see the driver's files"
                ) from error
            identity = status.st_dev, status.st_ino
            if identity not in seen:
                seen.add(identity)
                yield folder, names

    def _stamp(self, version: str) -> _Stamp:
        if self._watched is None or self._watched[0] != version:
            folders = {
                *_LIBRARY_FOLDERS,
                *_HOOK_FOLDERS,
                *(f"{folder}/{version}" for folder in _FIRMWARE_FOLDERS),
                *(socket.rpartition("/")[0] for socket in _SOCKETS),
            }
            self._watched = version, tuple(str(self._path(folder)) for folder in sorted(folders))
        return tuple(_folder_stamp(folder) for folder in self._watched[1])

    def _named(self, path: str) -> DriverFile:
        return DriverFile(str(self._host_root / path.lstrip("/")), path)

    def _path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _is(self, path: str, kind: Callable[[int], bool]) -> bool:
        try:
            return kind(self._path(path).stat().st_mode)
        except OSError:
            return False


def _folder_stamp(folder: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116 - a Path for each of many would take longer
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _links(names: Iterable[str]) -> dict[str, set[str]]:
    """Names `libX.so` and `libX.so.N`, by `libX`.

    Whoever installs the driver makes them for the loader, and they can be told by their names
    alone: where they point to may be a path that means something else to this process.
    """
    links: dict[str, set[str]] = {}
    for name in names:
        match = _LINK.fullmatch(name)
        if match:
            links.setdefault(match["stem"], set()).add(name)
    return links

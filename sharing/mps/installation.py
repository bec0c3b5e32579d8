"""The programs of the installed driver that MPS needs, or why this node has no MPS."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from carina_dra.nvidia.driver_search import LIBRARY_FOLDERS, DriverSearch, programs
from carina_dra.nvidia.rooted_path import RootedPath
from carina_dra.sharing.files import MPS
from sharing.mps import mounts
from sharing.mps.cgroups import Hierarchies, NoHierarchyError
from sharing.mps.folder import DaemonFolder

_CONTROL: Final = "nvidia-cuda-mps-control"
_SERVER: Final = "nvidia-cuda-mps-server"
_OLDEST: Final = 550
"""Of the drivers whose MPS is used."""
_VERSION: Final = re.compile(r"\s(?P<version>(?P<major>\d+)\.\d+(\.\d+)?)\s")
_KNOWN_FOR: Final = 5.0
"""Seconds after which the driver is looked for again."""
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


class NoMpsError(Exception):
    """There is no MPS on this node: says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class MpsInstallation:
    """What a daemon and its clients need of the node."""

    control: Path
    """The program."""
    environment: Mapping[str, str]
    """That of the driver's programs."""
    hierarchies: Hierarchies


class MpsSearch:
    """Finds it, and finds it again when another driver was installed. Several threads use it."""

    def __init__(
        self,
        search: DriverSearch,
        *,
        host_root: Path,
        cgroup_root: Path,
        plugin_directory: Path,
        links: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`links` is the path of a folder with links to the driver's files, which this makes.

        A daemon's libraries must not come from the folders of the driver's root: they may have a
        libc of another version than the loader of this process's image.
        """
        self._search = search
        self._host_root = host_root
        self._cgroup_root = cgroup_root
        self._plugin_directory = plugin_directory
        self._links = links
        self._clock = clock
        self._state = threading.Lock()
        self._known: tuple[float, MpsInstallation | NoMpsError] | None = None

    def problem(self) -> str | None:
        """Returns why this node has no MPS; None if it has."""
        try:
            self.installation()
        except NoMpsError as error:
            return str(error)
        return None

    def installation(self) -> MpsInstallation:
        """Returns what is installed, as of a few seconds ago at most.

        Raises:
            NoMpsError: this node has no MPS.
        """
        now = self._clock()
        with self._state:
            if self._known is None or now - self._known[0] >= _KNOWN_FOR:
                try:
                    self._known = now, self._find()
                except NoMpsError as error:
                    self._known = now, error
                except OSError as error:
                    self._known = now, NoMpsError(f"the NVIDIA driver cannot be searched: {error}")
            found = self._known[1]
        if isinstance(found, NoMpsError):
            raise NoMpsError(str(found))
        return found

    def _find(self) -> MpsInstallation:
        version = self._loaded()
        location = self._search.location()
        if location is None:
            raise NoMpsError(f"no NVIDIA driver is installed at {self._search.roots}")
        root = location.path
        found = {name: _located(programs(root, name)) for name in (_CONTROL, _SERVER)}
        for name, program in found.items():
            if program is None:
                raise NoMpsError(f"the driver's program {name} is missing below {root}")
        libraries = dict(_libraries(root, version))
        if f"libcuda.so.{version}" not in libraries:
            raise NoMpsError(
                f"the driver {version} is loaded, and its libcuda is missing below {root}"
            )
        try:
            hierarchies = Hierarchies.find(self._cgroup_root)
        except NoHierarchyError as error:
            raise NoMpsError(str(error)) from error
        if (problem := mounts.problem(self._plugin_directory)) is not None:
            raise NoMpsError(problem)
        longest = DaemonFolder(self._plugin_directory / MPS, str(UUID(int=0)))
        if (problem := longest.problem()) is not None:
            raise NoMpsError(problem)
        binaries = {name: program for name, program in found.items() if program is not None}
        _link(self._links / "bin", binaries)
        _link(self._links / "lib", libraries)
        return MpsInstallation(
            control=self._links / "bin" / _CONTROL,
            environment={
                "PATH": f"{self._links / 'bin'}:{_PATH}",
                "LD_LIBRARY_PATH": str(self._links / "lib"),
            },
            hierarchies=hierarchies,
        )

    def _loaded(self) -> str:
        """The version of the loaded driver."""
        try:
            text = (self._host_root / "proc/driver/nvidia/version").read_text()
        except FileNotFoundError:
            raise NoMpsError("no NVIDIA driver is loaded") from None
        first = text.partition("\n")[0]
        said = _VERSION.search(first)
        if said is None:
            raise NoMpsError(f"the version of the NVIDIA driver cannot be read: {first[:100]!r}")
        if int(said["major"]) < _OLDEST:
            raise NoMpsError(
                f"the NVIDIA driver is {said['version']}; limits of MPS need {_OLDEST} or later"
            )
        return said["version"]


def _libraries(root: Path, version: str) -> Iterator[tuple[str, Path]]:
    """Yields the names that the driver's libraries have, and the files."""
    for folder in reversed(LIBRARY_FOLDERS):
        try:
            names = os.listdir(RootedPath(root, folder).locate())
        except (FileNotFoundError, NotADirectoryError):
            continue
        suffix = f".so.{version}"
        stems = {name.removesuffix(suffix) for name in names if name.endswith(suffix)}
        for name in names:
            if name.partition(".so")[0] in stems:
                yield name, Path(RootedPath(root, f"{folder}/{name}").locate())


def _located(paths: Iterable[RootedPath]) -> Path | None:
    for path in paths:
        with suppress(OSError):  # a loop of links
            located = Path(path.locate())
            if located.is_file():
                return located
    return None


def _link(folder: Path, targets: Mapping[str, Path]) -> None:
    """Makes a folder hold these links and nothing else, each in place at any time."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in targets:
            path.unlink()
    for name, target in targets.items():
        path, new = folder / name, folder / f".{name}.new"
        if not path.is_symlink() or path.readlink() != target:
            new.unlink(missing_ok=True)
            new.symlink_to(target)
            new.replace(path)

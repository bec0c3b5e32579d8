"""The files of the NVIDIA driver that containers need: where they are, here and on the host.

They lie below a *driver root*: `/` where the driver is installed on the host, another folder where
it comes in a container of its own. It is looked through again whenever one of its folders has
changed, so a driver that appears late, or is replaced, is seen; otherwise what was found stands.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
)
_BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/opt/bin")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")
_DATA = (
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
)
_HOOKS = (
    "/usr/bin/nvidia-cdi-hook",
    "/usr/local/bin/nvidia-cdi-hook",
    "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
    "/opt/nvidia/toolkit/nvidia-cdi-hook",
)
_NEEDED = ("libnvidia-ml.so", "libcuda.so")


class DriverFilesError(Exception):
    """The driver's files are not where they should be: names the folders and the remedy."""


@dataclass(frozen=True, slots=True, order=True)
class DriverFile:
    """A file of the driver: its path in a container, as below the root, and on the host."""

    path: str
    host_path: str

    @property
    def folder(self) -> str:
        """In the container."""
        return self.path.rpartition("/")[0]

    @property
    def file_name(self) -> str:
        """Without its folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, order=True)
class DriverLibrary(DriverFile):
    """A shared library, and the name by which programs ask for it."""

    soname: str


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """All of them, sorted."""

    version: str
    libraries: tuple[DriverLibrary, ...]
    others: tuple[DriverFile, ...]
    hook: str | None
    """nvidia-cdi-hook, on the host; None where there is none."""

    @property
    def library_folders(self) -> tuple[str, ...]:
        """Folders with libraries, each once."""
        return tuple(dict.fromkeys(library.folder for library in self.libraries))


class DriverRoot:
    """A driver root, as this process and as the host sees it."""

    def __init__(self, root: Path, host_root: Path, hook: Path | None) -> None:
        """`hook`: where nvidia-cdi-hook is on the host, if the operator says so."""
        self._root = root
        self._host_root = host_root
        self._hook = hook
        self._found: tuple[object, DriverFiles] | None = None

    def files(self, version: str) -> DriverFiles:
        """Gives the files of the driver of that version.

        Raises:
            DriverFilesError: there are none, or NVML or CUDA is missing among them.
        """
        stamp = version, tuple(self._stamp(folder) for folder in self._folders())
        if self._found is None or self._found[0] != stamp:
            self._found = stamp, self._look(version)
        return self._found[1]

    def _look(self, version: str) -> DriverFiles:
        libraries = tuple(self._libraries(version))
        names = {library.file_name for library in libraries}
        missing = [f"{name}.{version}" for name in _NEEDED if f"{name}.{version}" not in names]
        if missing:
            raise DriverFilesError(
                f"{' and '.join(missing)} of the NVIDIA driver not found in "
                f"{', '.join(LIBRARY_FOLDERS)} below the driver root {self._root}; install the "
                "driver's libraries there, or set driver_root to where they are"
            )
        others = [*self._first(_BINARY_FOLDERS, _BINARIES), *_SOCKETS, *_DATA]
        others += [f"/lib/firmware/nvidia/{version}"]
        return DriverFiles(
            version,
            libraries,
            tuple(sorted(self._file(path) for path in others if self._at(path).exists())),
            self._find_hook(),
        )

    def _libraries(self, version: str) -> Iterator[DriverLibrary]:
        """Each library once, by its real file: folders are often links to one another."""
        seen: set[Path] = set()
        for folder in LIBRARY_FOLDERS:
            for path in sorted(self._at(folder).glob(f"lib*.so.{version}")):
                real = path.resolve()
                if real not in seen and path.is_file():
                    seen.add(real)
                    inside = f"{folder}/{path.name}"
                    yield DriverLibrary(inside, self._host(inside), _soname(path, version))

    def _first(self, folders: Iterable[str], names: Iterable[str]) -> Iterator[str]:
        for name in names:
            paths = (f"{folder}/{name}" for folder in folders)
            found = next((path for path in paths if self._at(path).is_file()), None)
            if found is not None:
                yield found

    def _find_hook(self) -> str | None:
        if self._hook is not None:
            return str(self._hook)
        found = next((path for path in _HOOKS if self._at(path).is_file()), None)
        return None if found is None else self._host(found)

    def _folders(self) -> tuple[str, ...]:
        hooks = tuple(path.rpartition("/")[0] for path in _HOOKS)
        return (*LIBRARY_FOLDERS, *_BINARY_FOLDERS, *dict.fromkeys(hooks))

    def _stamp(self, folder: str) -> int:
        try:
            return self._at(folder).stat().st_mtime_ns
        except OSError:
            return 0

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _host(self, path: str) -> str:
        return str(self._host_root / path.lstrip("/"))

    def _file(self, path: str) -> DriverFile:
        return DriverFile(path, self._host(path))


def _soname(path: Path, version: str) -> str:
    """The shortest link to a library with a major version, by which programs are linked to it."""
    stem = path.name.removesuffix(f".{version}")
    links = [
        link.name
        for link in path.parent.glob(f"{stem}.*")
        if link.is_symlink()
        and re.fullmatch(rf"{re.escape(stem)}\.\d+", link.name)
        and link.resolve() == path.resolve()
    ]
    return min(links, default=path.name)

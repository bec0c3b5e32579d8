"""The files of an installed NVIDIA driver that containers need, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A file, with its path for the container runtime and its path in the container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library of the driver."""

    host_path: str
    container_path: str
    links: tuple[str, ...]
    """Other names under which it is loaded (its SONAME, such as `libcuda.so.1`), sorted."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of one driver, each kind sorted by path."""

    version: str
    libraries: tuple[Library, ...]
    binaries: tuple[DriverFile, ...]
    sockets: tuple[DriverFile, ...]
    firmware: tuple[DriverFile, ...]
    hook: str | None
    """The container runtime's path of `nvidia-cdi-hook`; None if it is not installed."""

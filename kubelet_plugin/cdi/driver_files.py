"""The files of an installed NVIDIA driver that containers need, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A file, by the names that the container runtime and the container have for it."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library of the driver."""

    host_path: str
    container_path: str
    links: tuple[str, ...]
    """Other names it is loaded by (its SONAME, such as `libcuda.so.1`), sorted."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """What there is of a driver, each kind sorted by path."""

    version: str
    libraries: tuple[Library, ...]
    binaries: tuple[DriverFile, ...]
    sockets: tuple[DriverFile, ...]
    firmware: tuple[DriverFile, ...]
    hook: str | None
    """Where the container runtime finds `nvidia-cdi-hook`."""

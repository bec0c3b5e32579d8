"""Installed drivers."""

from pathlib import Path, PurePosixPath

from carina_dra.nvidia.driver_location import DriverLocation
from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.nvidia.rooted_path import RootedPath


def installed_at(root: Path, host_root: Path | None = None) -> DriverSearch:
    """A driver whose root is known, with its path on the host, by default the same."""
    return DriverSearch([DriverLocation(root, PurePosixPath(host_root or root))])


def nvml_libraries(root: Path) -> list[RootedPath]:
    """The possible paths of NVML below a root."""
    return list(installed_at(root).nvml_libraries())

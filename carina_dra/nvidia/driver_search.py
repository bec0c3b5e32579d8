"""Finds the root of the installed driver among the known locations.

The location in use is kept while it has the library, so that containers get the files of the driver
that NVML was loaded from. When the library is gone, or while there is none, each use searches
again: a driver may be installed, and its container may start, after this process.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from carina_dra.nvidia.driver_location import DriverLocation, LocationChoice, choose
from carina_dra.nvidia.rooted_path import RootedPath

LIBRARY_FOLDERS: Final = (
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
"""Folders below a driver's root that can have its libraries, in the order of preference."""
BINARY_FOLDERS: Final = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/opt/bin")
"""Folders below a driver's root that can have its programs, in the order of preference."""
_LIBRARY: Final = "libnvidia-ml.so.1"

_log = logging.getLogger(__name__)


def programs(root: Path, name: str) -> tuple[RootedPath, ...]:
    """Returns the possible paths of a program of the driver below a root."""
    return tuple(RootedPath(root, f"{folder}/{name}") for folder in BINARY_FOLDERS)


class DriverSearch:
    """The search of a process. Several threads use it."""

    def __init__(self, known: Sequence[DriverLocation]) -> None:
        """`known` are the possible locations; a single one is used whatever it has."""
        self._known = tuple(known)
        self._state = threading.Lock()
        self._last: LocationChoice | None = None

    @property
    def roots(self) -> str:
        """Names the roots that are searched, as this process sees them, for messages."""
        return " or ".join(str(location.path) for location in self._known)

    def location(self) -> DriverLocation | None:
        """Returns the location in use; None if no location has a driver."""
        if len(self._known) == 1:
            return self._known[0]
        with self._state:
            used = None if self._last is None else self._last.chosen
            if used is not None and _has_library(used):
                return used
            found = choose(self._known, {known for known in self._known if _has_library(known)})
            if found != self._last:
                _report(found)
            self._last = found
            return found.chosen

    def nvml_libraries(self) -> Iterator[RootedPath]:
        """Yields the possible paths of NVML.

        None are below "/", where the loader finds it, and none if no location has a driver.
        """
        location = self.location()
        if location is not None and location.path != Path("/"):
            yield from _libraries(location)


def _libraries(location: DriverLocation) -> Iterator[RootedPath]:
    for folder in LIBRARY_FOLDERS:
        yield RootedPath(location.path, f"{folder}/{_LIBRARY}")


def _has_library(location: DriverLocation) -> bool:
    return any(_exists(path) for path in _libraries(location))


def _exists(path: RootedPath) -> bool:
    try:
        return path.locate().exists()
    except OSError:  # a loop of links, or a folder that cannot be read
        return False


def _report(choice: LocationChoice) -> None:
    missing = {str(at.host_path): f"has no {_LIBRARY}" for at in choice.without_driver}
    if choice.chosen is None:
        _log.info("no NVIDIA driver was found", extra={"searched": missing})
        return
    others = {str(at.host_path): "comes later in the order" for at in choice.not_used}
    _log.info(
        "found the NVIDIA driver",
        extra={"driver_root": str(choice.chosen.host_path), "not_used": missing | others},
    )

"""Where the driver of a node is installed, as far as products are known to install it.

A driver belongs to the host's own system, to a container, or to a folder of the distribution. Each
place is a root: below it are the folders that the driver has below "/" elsewhere.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

PLACES: Final = (
    "/",
    "/run/nvidia/driver",
    "/home/kubernetes/bin/nvidia",
    "/usr/local/glibc",
    "/usr/local",
)
"""Roots on the host, in the order of preference: the host's own driver (also k3s and RKE2), the
container of NVIDIA's GPU Operator, GKE, and Talos, now and formerly. The paths are those of the
products: the default of the Operator's `hostPaths.driverInstallDir`; GKE's installer; and
siderolabs/extensions, nvidia-gpu."""


@dataclass(frozen=True, slots=True)
class DriverLocation:
    """A root folder below which a driver can be installed."""

    path: Path
    """As this process sees it."""
    host_path: PurePosixPath
    """As the container runtime sees it."""


@dataclass(frozen=True, slots=True)
class LocationChoice:
    """The location that is used, and what the others have."""

    chosen: DriverLocation | None
    """None if no location has a driver."""
    without_driver: tuple[DriverLocation, ...]
    not_used: tuple[DriverLocation, ...]
    """Locations with a driver that another one takes precedence over."""


def locations(host_filesystem: Path) -> tuple[DriverLocation, ...]:
    """Returns all known locations on a host whose "/" is a folder of this process."""
    return tuple(below(host_filesystem, PurePosixPath(place)) for place in PLACES)


def below(host_filesystem: Path, host_path: PurePosixPath) -> DriverLocation:
    """Returns a location by its path on the host."""
    return DriverLocation(host_filesystem / host_path.relative_to("/"), host_path)


def choose(
    known: Sequence[DriverLocation], with_driver: Collection[DriverLocation]
) -> LocationChoice:
    """Chooses the first of the known locations that has a driver."""
    found = [location for location in known if location in with_driver]
    without = tuple(location for location in known if location not in with_driver)
    return LocationChoice(found[0] if found else None, without, tuple(found[1:]))

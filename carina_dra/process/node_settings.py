"""The settings that every process of a node has: its folders, and where its driver is."""

from pathlib import Path, PurePosixPath
from typing import Final, Self

from pydantic import Field, model_validator

from carina_dra.nvidia.driver_location import DriverLocation, below, locations
from carina_dra.process.settings import AbsolutePath, ProcessSettings

SOCKET_PATH_BYTES: Final = 107
"""The length of a socket's path that Linux allows."""


def plugin_directory(kubelet_root: Path, driver_name: str) -> Path:
    """Returns the folder of a driver's plugin below the kubelet's."""
    return kubelet_root / "plugins" / driver_name


def fits_socket(socket: Path) -> bool:
    """Returns whether Linux allows a socket at this path."""
    return len(str(socket).encode()) <= SOCKET_PATH_BYTES


class NodeProcessSettings(ProcessSettings):
    """The settings that every process of a node has."""

    kubelet_root: AbsolutePath = Field(
        Path("/var/lib/kubelet"),
        description="the kubelet's --root-dir; its folders plugins and plugins_registry must have "
        "the same path in this process as on the host",
    )
    host_filesystem: AbsolutePath = Field(
        Path("/"),
        description="the host's root folder, as this process sees it; below it, the driver is "
        "searched where host, GPU Operator, GKE and Talos have it",
    )
    driver_root: AbsolutePath | None = Field(
        None,
        description="root folder of the installed NVIDIA driver, as this process sees it; default: "
        "host_driver_root below host_filesystem, or else the driver is searched",
    )
    host_driver_root: AbsolutePath | None = Field(
        None,
        description="the same folder, as the container runtime sees it; default: by driver_root",
    )
    host_root: AbsolutePath = Field(
        Path("/"),
        description="folder with the host's dev, sys and proc; must have the same path in this "
        "process as on the host",
    )

    cgroup_root: AbsolutePath = Field(
        Path("/sys/fs/cgroup"),
        description="the host's cgroup file system, as this process sees it; must be writable for "
        "the driver to limit the memory of pods with a share of a GPU, and for MPS daemons",
    )

    @model_validator(mode="after")
    def _driver_root_is_the_hosts(self) -> Self:
        if (
            self.driver_root is not None
            and self.host_driver_root is None
            and not self.driver_root.is_relative_to(self.host_filesystem)
        ):
            raise ValueError(
                f"driver_root {self.driver_root} is not below host_filesystem "
                f"{self.host_filesystem}; set host_driver_root to its path on the host"
            )
        return self

    @property
    def driver_locations(self) -> tuple[DriverLocation, ...]:
        """Where the driver may be installed: one location if it is set."""
        if self.driver_root is None and self.host_driver_root is None:
            return locations(self.host_filesystem)
        if self.driver_root is None:
            return (below(self.host_filesystem, PurePosixPath(str(self.host_driver_root))),)
        on_host = self.host_driver_root or "/" / self.driver_root.relative_to(self.host_filesystem)
        return (DriverLocation(self.driver_root, PurePosixPath(on_host)),)

    @property
    def plugin_directory(self) -> Path:
        """The folder of the DRA socket and the checkpoint."""
        return plugin_directory(self.kubelet_root, self.driver_name)

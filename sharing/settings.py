"""The settings of carina-sharing."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from carina_dra.process.node_settings import (
    SOCKET_PATH_BYTES,
    NodeProcessSettings,
    fits_socket,
)
from carina_dra.process.settings import AbsolutePath
from carina_dra.sharing.files import NEW_SOCKET, SOCKET


class SharingSettings(NodeProcessSettings):
    """The settings of carina-sharing."""

    DESCRIPTION = "Watches what processes use of the GPUs that this node shares."

    kubepods: AbsolutePath | None = Field(
        None,
        description="path of the cgroup that has those of all pods, below the root of its "
        "hierarchy; default: that of the own pod, or else /kubepods or /kubepods.slice",
    )

    watchdog: Literal["warn", "kill"] = Field(
        "warn",
        description="what happens when pods use more memory of a shared GPU than given: `warn` "
        "reports it; `kill` also ends the process of them that has the most",
    )

    @model_validator(mode="after")
    def _socket_fits(self) -> Self:
        if not fits_socket(self.socket):
            raise ValueError(
                f"kubelet_root and driver_name make the socket path {self.socket}, longer than the "
                f"{SOCKET_PATH_BYTES} bytes that Linux allows; shorten one of them"
            )
        return self

    @property
    def socket(self) -> Path:
        """The socket that the kubelet plugin connects to."""
        return self.plugin_directory / SOCKET

    @property
    def new_socket(self) -> Path:
        """The socket before it takes the place of an older one."""
        return self.plugin_directory / NEW_SOCKET

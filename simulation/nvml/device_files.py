"""Device nodes for a process that may not make any.

Their files are links to /dev/null. The plugin compares the numbers of device nodes, so the process
that runs it sees such a link as the node that it stands for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kubelet_plugin.host import CharacterDevice, HostPaths, Permissions
from simulation.nvml.host_tree import (
    CAPABILITY_MODE,
    STAND_IN,
    device_numbers,
    is_capability,
)

__all__ = ["links_seen_as_nodes"]


@contextmanager
def links_seen_as_nodes() -> Iterator[None]:
    """Lets `HostPaths` see links to /dev/null as NVIDIA's nodes for the length of a block."""
    original = HostPaths.character_device

    def character_device(host: HostPaths, absolute: str) -> CharacterDevice | None:
        path = host.path(absolute)
        if path.is_symlink() and path.readlink() == STAND_IN:
            mode = CAPABILITY_MODE if is_capability(path.name) else Permissions().mode
            return CharacterDevice(*device_numbers(path.name), Permissions(mode))
        return original(host, absolute)

    with patch.object(HostPaths, "character_device", character_device):
        yield

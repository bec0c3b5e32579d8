"""The NVIDIA device nodes in the host's /dev.

The NVIDIA modules do not register their nodes with devtmpfs: `nvidia-modprobe` or a udev rule makes
them, often only when the first program uses a GPU, and nothing removes them when a module is
unloaded. A node can therefore be missing, or left over from a module that was loaded with another
major number. The nodes that a container needs are compared with the numbers that the kernel
reports, and made or replaced as nvidia-modprobe would (`mknod_helper`).
"""

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubelet_plugin.host import CharacterDevice, DeviceFileParameters, HostPaths
from kubelet_plugin.inventory.gpu import Gpu

__all__ = ["DeviceNodeError", "ensure_control_nodes", "ensure_gpu_nodes"]

_NVIDIA = ("nvidia", "nvidia-frontend", "nvidiactl")
"""Names of the NVIDIA module in /proc/devices: the first since driver 550, the second before."""
_UVM = ("nvidia-uvm",)
_MODESET = ("nvidia-modeset", "nvidia-frontend")
_ATTEMPTS = 10
"""An attempt fails without an error only if another process makes the same node meanwhile."""


class DeviceNodeError(Exception):
    """A device node is missing or wrong and cannot be made. Names the path and the remedy."""


@dataclass(frozen=True, slots=True)
class _Node:
    path: str
    drivers: tuple[str, ...]
    """Names in /proc/devices under which the node's driver may be listed, by preference."""
    minor: int
    load: str
    """How to load the driver."""

    def major(self, majors: Mapping[str, int]) -> int | None:
        return next((majors[driver] for driver in self.drivers if driver in majors), None)


_LOAD_NVIDIA = "load the nvidia module (`nvidia-modprobe`)"
_LOAD_UVM = "load the nvidia-uvm module (`nvidia-modprobe -u`)"
_LOAD_MODESET = "load the nvidia-modeset module (`nvidia-modprobe -m`)"
_CONTROL_NODE = _Node("/dev/nvidiactl", _NVIDIA, 255, _LOAD_NVIDIA)
_UVM_NODES = (
    _Node("/dev/nvidia-uvm", _UVM, 0, _LOAD_UVM),
    _Node("/dev/nvidia-uvm-tools", _UVM, 1, _LOAD_UVM),
)
_MODESET_NODE = _Node("/dev/nvidia-modeset", _MODESET, 254, _LOAD_MODESET)


def ensure_control_nodes(host: HostPaths) -> tuple[str, ...]:
    """Gives the host's nodes that every container with a GPU needs, made or replaced as needed.

    `nvidia-modeset`, which only graphics needs, is among them if it exists and its module is
    loaded.

    Raises:
        DeviceNodeError: a node is missing or wrong and cannot be made.
    """
    majors, parameters = host.device_majors(), host.device_file_parameters()
    _ensure(host, _CONTROL_NODE, majors, parameters)
    # The parameters are those of the nvidia module. nvidia-modprobe does not apply them to UVM's
    # nodes: two rules for one node would have each program undo the other's.
    uvm = DeviceFileParameters(modifiable=parameters.modifiable)
    for node in _UVM_NODES:
        _ensure(host, node, majors, uvm)
    needed = (_CONTROL_NODE.path, *(node.path for node in _UVM_NODES))
    loaded = _MODESET_NODE.major(majors) is not None
    if not loaded or not host.path(_MODESET_NODE.path).exists():
        return needed
    _ensure(host, _MODESET_NODE, majors, parameters)
    return (*needed, _MODESET_NODE.path)


def ensure_gpu_nodes(host: HostPaths, gpu: Gpu) -> tuple[str, ...]:
    """Gives the host's nodes of a GPU: /dev/nvidia<minor>, made or replaced as needed, and DRM's.

    DRM nodes are the kernel's own (devtmpfs): those that are missing, or have other numbers than
    sysfs reports, are left out.

    Raises:
        DeviceNodeError: /dev/nvidia<minor> is missing or wrong and cannot be made.
    """
    node = _Node(f"/dev/nvidia{gpu.minor}", _NVIDIA, gpu.minor, _LOAD_NVIDIA)
    _ensure(host, node, host.device_majors(), host.device_file_parameters())
    return (node.path, *_drm_nodes(host, gpu))


def _drm_nodes(host: HostPaths, gpu: Gpu) -> tuple[str, ...]:
    """`/dev/dri/card<N>` and `renderD<N>`."""
    paths = {
        f"/dev/dri/{name}": numbers
        for name, numbers in host.drm_devices(gpu.pci_bus_id).items()
        if name.startswith(("card", "renderD"))
    }
    found = {path: host.character_device(path) for path in paths}
    return tuple(
        path
        for path, device in found.items()
        if device is not None and (device.major, device.minor) == paths[path]
    )


def _ensure(
    host: HostPaths, node: _Node, majors: Mapping[str, int], parameters: DeviceFileParameters
) -> None:
    path = host.path(node.path)
    major = node.major(majors)
    if major is None:
        raise DeviceNodeError(
            f"the numbers of device node {path} are not known: {host.path('/proc/devices')} does "
            f"not list {node.drivers[0]}; {node.load}"
        )
    wanted = CharacterDevice(major, node.minor, parameters.permissions)
    for _ in range(_ATTEMPTS):
        found = host.character_device(node.path)
        if found == wanted:
            return
        if not parameters.modifiable:
            _check_unmodifiable(host, node, found, wanted)
            return
        if found is None and _is_of_another_kind(path):
            raise DeviceNodeError(f"{path} is not a character device; remove it")
        _replace(host, node.path, wanted)
    raise DeviceNodeError(
        f"device node {path} was replaced {_ATTEMPTS} times and is still not {_words(wanted)}; "
        "another program changes it: stop that program"
    )


def _is_of_another_kind(path: Path) -> bool:
    """Looks again: another process may have made the node since it was found missing."""
    try:
        return not stat.S_ISCHR(path.stat().st_mode)
    except OSError:  # missing, or a link to nothing, which is replaced
        return False


def _check_unmodifiable(
    host: HostPaths, node: _Node, found: CharacterDevice | None, wanted: CharacterDevice
) -> None:
    """Only the numbers count: permissions are the administrator's."""
    if found is not None and (found.major, found.minor) == (wanted.major, wanted.minor):
        return
    state = "missing" if found is None else f"{found.major}:{found.minor}"
    raise DeviceNodeError(
        f"device node {host.path(node.path)} is {state} and must be "
        f"{wanted.major}:{wanted.minor}, but is not made, because "
        f"{host.path('/proc/driver/nvidia/params')} has ModifyDeviceFiles: 0; "
        f"{_by_hand(host, node.path, wanted)}, or load the nvidia module with "
        "NVreg_ModifyDeviceFiles=1"
    )


def _replace(host: HostPaths, node: str, wanted: CharacterDevice) -> None:
    """Makes the node under a name of its own and renames it, so that only whole nodes are found.

    Then removes what killed processes have left under such names. If that takes another process's
    node from under it, that process looks again and finds this one.
    """
    path, permissions = host.path(node), wanted.permissions
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        os.mknod(new, stat.S_IFCHR | 0o600, os.makedev(wanted.major, wanted.minor))
        os.chown(new, permissions.uid, permissions.gid)
        new.chmod(permissions.mode)  # mknod is subject to the umask, and chown clears bits
        new.rename(path)
        for left in path.parent.glob(f".{path.name}.*.new"):
            left.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            return  # another process has removed it, and so has made the node
        new.unlink(missing_ok=True)
        raise DeviceNodeError(
            f"device node {path} is missing or wrong and cannot be made: {error}; "
            f"{_by_hand(host, node, wanted)}, or run the plugin with the right to"
        ) from error


def _by_hand(host: HostPaths, node: str, wanted: CharacterDevice) -> str:
    path, permissions = host.path(node), wanted.permissions
    return (
        f"make it with `rm -f {path}; mknod -m {permissions.mode:o} {path} c {wanted.major} "
        f"{wanted.minor}; chown {permissions.uid}:{permissions.gid} {path}`"
    )


def _words(device: CharacterDevice) -> str:
    permissions = device.permissions
    return (
        f"{device.major}:{device.minor} with mode {permissions.mode:o} and owner "
        f"{permissions.uid}:{permissions.gid}"
    )

"""The NVIDIA device nodes in the host's /dev.

The NVIDIA module makes no nodes through devtmpfs: `nvidia-modprobe` or udev does, at times only
when the first program asks for a GPU. What a container needs and is missing is made here, with the
major number that the kernel tells in /proc/devices and the minor number that is always the same.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import Gpu

__all__ = ["DeviceNodeError", "ensure_control_nodes", "ensure_gpu_nodes"]

_NVIDIA = ("nvidia", "nvidia-frontend", "nvidiactl")
"""What /proc/devices calls the NVIDIA module: the first since driver 550, the second before."""
_UVM = ("nvidia-uvm",)


class DeviceNodeError(Exception):
    """A device node that a container needs is missing and cannot be made: names path and remedy."""


@dataclass(frozen=True, slots=True)
class _Node:
    path: str
    drivers: tuple[str, ...]
    """Names in /proc/devices that tell the major number, the first that is there."""
    minor: int
    remedy: str


_LOAD_NVIDIA = "load the nvidia module (`nvidia-modprobe`)"
_LOAD_UVM = "load the nvidia-uvm module (`nvidia-modprobe -u`)"
_CONTROL_NODES = (
    _Node("/dev/nvidiactl", _NVIDIA, 255, _LOAD_NVIDIA),
    _Node("/dev/nvidia-uvm", _UVM, 0, _LOAD_UVM),
    _Node("/dev/nvidia-uvm-tools", _UVM, 1, _LOAD_UVM),
)
_MODESET = "/dev/nvidia-modeset"


def ensure_control_nodes(host: HostPaths) -> tuple[str, ...]:
    """Gives the host's nodes that every container with a GPU needs; makes those that are missing.

    `nvidia-modeset`, which only graphics needs, is among them where it is there already.

    Raises:
        DeviceNodeError: naming the node and the remedy.
    """
    for node in _CONTROL_NODES:
        _ensure(host, node)
    modeset = (_MODESET,) if host.device_numbers(_MODESET) else ()
    return (*(node.path for node in _CONTROL_NODES), *modeset)


def ensure_gpu_nodes(host: HostPaths, gpu: Gpu) -> tuple[str, ...]:
    """Gives the host's nodes of a GPU: /dev/nvidia<minor>, made if missing, and DRM's if there are.

    Raises:
        DeviceNodeError: naming the node and the remedy.
    """
    node = _Node(f"/dev/nvidia{gpu.minor}", _NVIDIA, gpu.minor, _LOAD_NVIDIA)
    _ensure(host, node)
    return (node.path, *_drm_nodes(host, gpu))


def _drm_nodes(host: HostPaths, gpu: Gpu) -> tuple[str, ...]:
    """`/dev/dri/card<N>` and `renderD<N>`, where nvidia-drm is loaded."""
    try:
        folder = host.path(f"/sys/bus/pci/devices/{gpu.pci_bus_id}/drm")
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()
    paths = (f"/dev/dri/{name}" for name in names if name.startswith(("card", "renderD")))
    return tuple(path for path in paths if host.device_numbers(path))


def _ensure(host: HostPaths, node: _Node) -> None:
    if host.device_numbers(node.path) is not None:
        return
    path = host.path(node.path)
    if path.exists():
        raise DeviceNodeError(f"{path} is not a character device; remove it")
    majors = (host.device_major(driver) for driver in node.drivers)
    major = next((number for number in majors if number is not None), None)
    if major is None:
        raise DeviceNodeError(
            f"device node {path} is missing, and {host.path('/proc/devices')} does not list "
            f"{node.drivers[0]}: {node.remedy}"
        )
    _make(path, major, node.minor)
    if host.device_numbers(node.path) is None:
        raise DeviceNodeError(f"{path} is not a character device; remove it")


def _make(path: Path, major: int, minor: int) -> None:
    """Makes the node under another name first, so that nobody meets it with too few rights."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        os.mknod(new, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        new.chmod(0o666)  # as the NVIDIA module asks for; mknod is subject to the umask
        new.rename(path)
    except OSError as error:
        raise DeviceNodeError(
            f"device node {path} is missing and cannot be made: {error}; make it with "
            f"`mknod -m 666 {path} c {major} {minor}`, or run the plugin with the right to"
        ) from error

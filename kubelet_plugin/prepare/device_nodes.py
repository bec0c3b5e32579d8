"""The NVIDIA device nodes in the host's /dev.

The NVIDIA modules do not register their nodes with devtmpfs. `nvidia-modprobe` or a udev rule
creates them, often only when the first program uses a GPU, and nothing removes them when a module
is unloaded. A node can therefore be missing, or have the major number of a module that was loaded
before. This module compares the nodes that a container needs with the numbers that the kernel
reports, and creates or replaces nodes as nvidia-modprobe does (`mknod_helper`).
"""

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubelet_plugin.claims.drift import DeviceNodeDrift
from kubelet_plugin.claims.resource_failure import DeviceNodeUnusable, DriverModuleMissing
from kubelet_plugin.host import CharacterDevice, DeviceFileParameters, HostPaths
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.resource import MadeInstance, ResourceError

_NVIDIA = ("nvidia", "nvidia-frontend", "nvidiactl")
"""Names of the NVIDIA module in /proc/devices: the first since driver 550, the second before."""
_UVM = ("nvidia-uvm",)
_MODESET = ("nvidia-modeset", "nvidia-frontend")
_CAPS = ("nvidia-caps",)
_CAPABILITIES = "/dev/nvidia-caps"
_MONITOR = "mig/monitor"
"""The capability to see all MIG instances of the node."""
_ATTEMPTS = 10
"""An attempt fails without an error only if another process creates the same node."""


class DeviceNodeError(ResourceError):
    """A device node is missing or wrong, and cannot be created; names the path and the remedy."""

    @classmethod
    def of(cls, subject: str, problem: str, remedy: str) -> "DeviceNodeError":
        """Returns the error for a node, or for what it depends on."""
        return cls(DeviceNodeUnusable(subject, problem, remedy))


@dataclass(frozen=True, slots=True)
class _Node:
    path: str
    drivers: tuple[str, ...]
    """Names under which /proc/devices may list the node's driver, by preference."""
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


class NvidiaNodes:
    """The NVIDIA device nodes, with the numbers and permissions that the kernel reports now."""

    def __init__(self, host: HostPaths, notes: DriftNotes | None = None) -> None:
        """Reads both once; each claim needs a new object. `notes` learns of what is made."""
        self._host = host
        self._notes = notes or DriftNotes()
        self._majors = host.device_majors()
        self._parameters = host.device_file_parameters()

    def ensure_control(self) -> tuple[str, ...]:
        """Creates or replaces the nodes that every container with a GPU needs; returns their paths.

        They include `nvidia-modeset`, which only graphics needs, if it exists and its module is
        loaded.

        Raises:
            DeviceNodeError: a node is missing or wrong, and cannot be created.
        """
        self._ensure(_CONTROL_NODE, self._parameters)
        # nvidia-modprobe does not apply the nvidia module's parameters to UVM's nodes. With another
        # rule here, each of the two programs would replace the other's nodes.
        uvm = DeviceFileParameters(modifiable=self._parameters.modifiable)
        for node in _UVM_NODES:
            self._ensure(node, uvm)
        needed = (_CONTROL_NODE.path, *(node.path for node in _UVM_NODES))
        loaded = _MODESET_NODE.major(self._majors) is not None
        if not loaded or not self._host.path(_MODESET_NODE.path).exists():
            return needed
        self._ensure(_MODESET_NODE, self._parameters)
        return (*needed, _MODESET_NODE.path)

    def ensure_gpu(self, gpu: Gpu) -> tuple[str, ...]:
        """Creates or replaces /dev/nvidia<minor>; returns its path and those of the DRM nodes.

        The kernel creates DRM nodes (devtmpfs). A DRM node that is missing, or whose numbers are
        not those in sysfs, is left out.

        Raises:
            DeviceNodeError: /dev/nvidia<minor> is missing or wrong, and cannot be created.
        """
        node = _Node(f"/dev/nvidia{gpu.minor}", _NVIDIA, gpu.minor, _LOAD_NVIDIA)
        self._ensure(node, self._parameters)
        return (node.path, *_drm_nodes(self._host, gpu))

    def ensure_partition(self, gpu: Gpu, instance: MadeInstance) -> tuple[str, ...]:
        """Creates or replaces the nodes of a MIG instance; returns their paths.

        They are /dev/nvidia<minor> of its GPU and two capabilities, which are what gives access to
        this instance of the GPU and to no other. DRM nodes are not among them: they know no
        instances.

        Raises:
            DeviceNodeError: a node is missing or wrong, and cannot be created.
        """
        node = _Node(f"/dev/nvidia{gpu.minor}", _NVIDIA, gpu.minor, _LOAD_NVIDIA)
        self._ensure(node, self._parameters)
        folder = f"gpu{gpu.minor}/mig/gi{instance.gpu_instance}"
        names = f"{folder}/access", f"{folder}/ci{instance.compute_instance}/access"
        return (node.path, *map(self._ensure_capability, names))

    def ensure_monitor(self, gpu: Gpu) -> tuple[str, ...]:
        """Creates or replaces the nodes that show a GPU with all its MIG instances.

        Raises:
            DeviceNodeError: a node is missing or wrong, and cannot be created.
        """
        nodes = self.ensure_gpu(gpu)
        if self._host.capability(_MONITOR) is None:
            return nodes  # a driver without MIG
        return (*nodes, self._ensure_capability(_MONITOR))

    def _ensure_capability(self, name: str) -> str:
        capability = self._host.capability(name)
        if capability is None:
            raise DeviceNodeError.of(
                f"{self._host.path('/proc/driver/nvidia/capabilities')}/{name}",
                "is missing or damaged, so that the number of its device node is not known",
                "check that the nvidia module is loaded and that nvidia-smi shows the MIG instance",
            )
        node = _Node(
            f"{_CAPABILITIES}/nvidia-cap{capability.minor}", _CAPS, capability.minor, _LOAD_NVIDIA
        )
        if capability.device_file.modifiable:
            _make_folder(self._host.path(_CAPABILITIES))
        self._ensure(node, capability.device_file)
        return node.path

    def _ensure(self, node: _Node, parameters: DeviceFileParameters) -> None:
        host, path = self._host, self._host.path(node.path)
        major = node.major(self._majors)
        if major is None:
            listing = str(host.path("/proc/devices"))
            raise DeviceNodeError(
                DriverModuleMissing(str(path), listing, node.drivers[0], node.load)
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
                raise DeviceNodeError.of(str(path), "is not a character device", "remove it")
            state = "missing" if found is None else _words(found)
            self._notes.note(DeviceNodeDrift(node.path, state))
            _replace(host, node.path, wanted)
        raise DeviceNodeError.of(
            f"device node {path}",
            f"was replaced {_ATTEMPTS} times and still is not {_words(wanted)}, because another "
            "program changes it",
            "stop that program",
        )


def _make_folder(path: Path) -> None:
    """Creates the folder for everybody to read, unless it exists."""
    if path.is_dir():
        return
    try:
        path.mkdir(exist_ok=True)
        path.chmod(0o755)  # mkdir is subject to the umask
    except OSError as error:
        raise DeviceNodeError.of(
            f"folder {path}",
            f"cannot be created: {error}",
            f"create it with `mkdir -m 755 {path}`",
        ) from error


def _drm_nodes(host: HostPaths, gpu: Gpu) -> tuple[str, ...]:
    """Returns the paths `/dev/dri/card<N>` and `/dev/dri/renderD<N>` of the GPU."""
    paths = {
        f"/dev/dri/{name}": numbers
        for name, numbers in host.drm_devices(gpu.pci_bus_id).items()
        if name.startswith(("card", "renderD"))
    }
    existing = {path: host.character_device(path) for path in paths}
    return tuple(
        path
        for path, device in existing.items()
        if device is not None and (device.major, device.minor) == paths[path]
    )


def _is_of_another_kind(path: Path) -> bool:
    """Looks again, because another process may have created the node since the first look."""
    try:
        return not stat.S_ISCHR(path.stat().st_mode)
    except OSError:  # missing, or a link to nothing, which is replaced
        return False


def _check_unmodifiable(
    host: HostPaths, node: _Node, found: CharacterDevice | None, wanted: CharacterDevice
) -> None:
    """Checks the numbers only, because the administrator decides on the permissions."""
    if found is not None and (found.major, found.minor) == (wanted.major, wanted.minor):
        return
    state = "missing" if found is None else f"{found.major}:{found.minor}"
    raise DeviceNodeError.of(
        f"device node {host.path(node.path)}",
        f"is {state} and must be {wanted.major}:{wanted.minor}; the plugin does not create it, "
        f"because {host.path('/proc/driver/nvidia/params')} has ModifyDeviceFiles: 0",
        f"{_by_hand(host, node.path, wanted)}, or load the nvidia module with "
        "NVreg_ModifyDeviceFiles=1",
    )


def _replace(host: HostPaths, node: str, wanted: CharacterDevice) -> None:
    """Creates the node under a temporary name and renames it, so that it appears complete.

    Then removes temporary nodes that killed processes left behind. If this removes the temporary
    node of a running process, that process checks again and finds the node created here.
    """
    path, permissions = host.path(node), wanted.permissions
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        os.mknod(new, stat.S_IFCHR | 0o600, os.makedev(wanted.major, wanted.minor))
        os.chown(new, permissions.uid, permissions.gid)
        new.chmod(permissions.mode)  # mknod is subject to the umask, and chown clears bits
        new.rename(path)
        for leftover in path.parent.glob(f".{path.name}.*.new"):
            leftover.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            return  # another process has removed the temporary node, and has created the node
        new.unlink(missing_ok=True)
        raise DeviceNodeError.of(
            f"device node {path}",
            f"is missing or wrong and cannot be created: {error}",
            f"{_by_hand(host, node, wanted)}, or give the plugin's container the capability MKNOD",
        ) from error


def _by_hand(host: HostPaths, node: str, wanted: CharacterDevice) -> str:
    path, permissions = host.path(node), wanted.permissions
    return (
        f"create it with `rm -f {path}; mknod -m {permissions.mode:o} {path} c {wanted.major} "
        f"{wanted.minor}; chown {permissions.uid}:{permissions.gid} {path}`"
    )


def _words(device: CharacterDevice) -> str:
    permissions = device.permissions
    return (
        f"{device.major}:{device.minor} with mode {permissions.mode:o} and owner "
        f"{permissions.uid}:{permissions.gid}"
    )

"""What the kernel reports about a node's GPUs: sysfs, procfs and /dev below a root.

The root is "/" on a node, and another folder if the host's file system is mounted elsewhere, or in
tests. Reads never fail: a value that is absent, unreadable or malformed is `None`, or the kernel
module's default if there is one.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from carina_dra.nvidia import loaded_driver

_PCIE_ROOT = re.compile(r"(?:^|/)devices/(pci[0-9a-f]{4,8}:[0-9a-f]{2})(?:/|$)")
_PARAMETER = re.compile(r"(\w+): (\d+)")
UNKNOWN_BOOT = "unknown"
"""Stands for the ID of the current boot where the kernel reports none."""
_NVIDIA = "0x10de"
_DISPLAY = ("0x0300", "0x0302")
_DEVICE_NUMBERS = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permission bits and owner of a device node. The defaults are those of the NVIDIA module."""

    mode: int = 0o666
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class CharacterDevice:
    """A character device node."""

    major: int
    minor: int
    permissions: Permissions


@dataclass(frozen=True, slots=True)
class DeviceFileParameters:
    """The NVIDIA module's parameters for its device nodes (NVreg_DeviceFile*)."""

    permissions: Permissions = field(default_factory=Permissions)
    modifiable: bool = True
    """Whether programs may create or change nodes without the administrator."""


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability, which a program has if it can open a device node of `nvidia-caps`."""

    minor: int
    device_file: DeviceFileParameters


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The host's files as seen from `root`."""

    root: Path = Path("/")

    # A prepare uses 20 paths; creating a Path takes longer than reading the file's status.
    @lru_cache(maxsize=1024)  # noqa: B019 - there is one HostPaths in a process
    def path(self, absolute: str) -> Path:
        """Returns the path of the host's file `absolute` in this process."""
        return self.root / absolute.lstrip("/")

    def numa_node(self, pci_bus_id: str) -> int | None:
        """Returns the NUMA node of a PCI function; None if the kernel reports none (-1)."""
        text = self._read(f"/sys/bus/pci/devices/{pci_bus_id}/numa_node")
        node = _integer(text)
        return node if node is not None and node >= 0 else None

    def pcie_root(self, pci_bus_id: str) -> str | None:
        """Returns the PCIe root complex above a PCI function, as `pci<domain>:<bus>`.

        This is the first path component below /sys/devices of the function's link, which is how
        Kubernetes defines `resource.kubernetes.io/pcieRoot` (KEP-4381).
        """
        try:
            link = self.path(f"/sys/bus/pci/devices/{pci_bus_id}").readlink()
        except OSError:
            return None
        match = _PCIE_ROOT.search(str(link))
        return match[1] if match else None

    def gpu_addresses(self) -> frozenset[str] | None:
        """Returns what `loaded_driver.gpu_addresses` says of the host."""
        return loaded_driver.gpu_addresses(self.root)

    def has_gpu(self) -> bool:
        """Returns whether NVIDIA's module is loaded, or one of NVIDIA's GPUs is on the PCI bus.

        Also True if the bus cannot be read. The numbers are those of the PCI ID database: a display
        controller is of class 0300 (VGA) or 0302 (3D).
        """
        if self.path("/proc/driver/nvidia").exists():
            return True
        bus = "/sys/bus/pci/devices"
        try:
            functions = [function.name for function in self.path(bus).iterdir()]
        except OSError:
            return True
        return any(
            self._read(f"{bus}/{function}/vendor") == _NVIDIA
            and (self._read(f"{bus}/{function}/class") or "").startswith(_DISPLAY)
            for function in functions
        )

    def device_majors(self) -> Mapping[str, int]:
        """Returns the major numbers of the loaded character drivers by name ("nvidia-uvm")."""
        text = self._read("/proc/devices") or ""
        characters, _, _ = text.partition("Block devices:")
        lines = (line.strip().partition(" ") for line in characters.splitlines())
        return {name: int(number) for number, _, name in lines if number.isdecimal()}

    def device_file_parameters(self) -> DeviceFileParameters:
        """Returns the NVIDIA module's parameters for device nodes, or its defaults.

        Names, decimal values and defaults are those that nvidia-modprobe reads
        (`init_device_file_parameters`).
        """
        text = self._read("/proc/driver/nvidia/params") or ""
        matches = (_PARAMETER.fullmatch(line.strip()) for line in text.splitlines())
        values = {match[1]: int(match[2]) for match in matches if match}
        default = Permissions()
        return DeviceFileParameters(
            permissions=Permissions(
                mode=values.get("DeviceFileMode", default.mode) & 0o777,
                uid=values.get("DeviceFileUID", default.uid),
                gid=values.get("DeviceFileGID", default.gid),
            ),
            modifiable=values.get("ModifyDeviceFiles", 1) == 1,
        )

    def capability(self, name: str) -> Capability | None:
        """Returns a capability of the NVIDIA module; None if there is none.

        `name` is its file below /proc/driver/nvidia/capabilities, such as `gpu0/mig/gi7/access`.
        The names of the values are those that nvidia-modprobe reads (`nvidia_cap_get_device_file`).
        """
        text = self._read(f"/proc/driver/nvidia/capabilities/{name}") or ""
        matches = (_PARAMETER.fullmatch(line.strip()) for line in text.splitlines())
        values = {match[1]: int(match[2]) for match in matches if match}
        if "DeviceFileMinor" not in values:
            return None
        mode = values.get("DeviceFileMode", Permissions().mode) & 0o777
        return Capability(
            values["DeviceFileMinor"],
            DeviceFileParameters(
                Permissions(mode), modifiable=values.get("DeviceFileModify", 1) == 1
            ),
        )

    def mig_instances(self, minor: int) -> Mapping[str, tuple[int, int]] | None:
        """Returns the MIG instances of a GPU by name ("gi7", "gi7/ci0"); None if unreadable.

        The value is another one after an instance was destroyed and made again: the file of its
        capability is then another one, to which procfs gives the time when it is first seen
        (`proc_get_inode`, fs/proc/inode.c). It may also change while the instance stays.
        """
        capabilities = self.path("/proc/driver/nvidia/capabilities")
        folder = capabilities / f"gpu{minor}/mig"
        try:
            return {
                str(file.parent.relative_to(folder)): (status.st_ino, status.st_mtime_ns)
                for instance in folder.iterdir()
                for file in (instance / "access", *instance.glob("ci*/access"))
                for status in (file.stat(),)
            }
        except FileNotFoundError:
            # Without an instance, there may be no folder. Or an instance has gone meanwhile.
            return {} if capabilities.exists() and not folder.exists() else None
        except OSError:
            return None

    def drm_devices(self, pci_bus_id: str) -> Mapping[str, tuple[int, int]]:
        """Returns major and minor numbers of a GPU's DRM devices by name ("card1", "renderD128").

        Empty if nvidia-drm is not loaded.
        """
        return dict(self._drm_devices(f"/sys/bus/pci/devices/{pci_bus_id}/drm"))

    def _drm_devices(self, folder: str) -> Iterator[tuple[str, tuple[int, int]]]:
        try:
            names = sorted(entry.name for entry in self.path(folder).iterdir())
        except OSError:
            return
        for name in names:
            match = _DEVICE_NUMBERS.fullmatch(self._read(f"{folder}/{name}/dev") or "")
            if match:
                yield name, (int(match[1]), int(match[2]))

    def boot_id(self) -> str | None:
        """Returns the kernel's ID of the current boot."""
        return self._read("/proc/sys/kernel/random/boot_id")

    def binding(self, pci_bus_id: str) -> str:
        """Returns what is another one after a boot, or when the driver was bound to a GPU again.

        The kernel makes the driver's link to the GPU when it binds, with a new inode number.
        """
        link = self.path(f"/sys/bus/pci/drivers/nvidia/{pci_bus_id}")
        try:
            number = str(link.lstat().st_ino)
        except OSError:
            number = ""
        return f"{self.boot_id() or UNKNOWN_BOOT}/{number}"

    def character_device(self, absolute: str) -> CharacterDevice | None:
        """Returns the character device at a path; None if there is none."""
        try:
            status = self.path(absolute).stat()
        except OSError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        return CharacterDevice(
            os.major(status.st_rdev),
            os.minor(status.st_rdev),
            Permissions(status.st_mode & 0o777, status.st_uid, status.st_gid),
        )

    def _read(self, absolute: str) -> str | None:
        try:
            return self.path(absolute).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None

"""What the kernel says of the node's GPUs: sysfs, procfs and /dev below a root.

The root is "/" on a node, and another directory where the host is mounted elsewhere, or in tests.
Reading is total: whatever is absent, unreadable or not what the kernel writes is `None`.
"""

import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["HostPaths"]

_PCIE_ROOT = re.compile(r"(?:^|/)devices/(pci[0-9a-f]{4,8}:[0-9a-f]{2})(?:/|$)")


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The host's files as seen from `root`."""

    root: Path = Path("/")

    # A node has so many paths and no more, and all are asked for again every few seconds.
    @lru_cache(maxsize=1024)  # noqa: B019 - there is one HostPaths in a process
    def path(self, absolute: str) -> Path:
        """Where the host's file `absolute` is for this process."""
        return self.root / absolute.lstrip("/")

    def numa_node(self, pci_bus_id: str) -> int | None:
        """The NUMA node of a PCI function; the kernel's -1 ("none") is None."""
        text = self._read(f"/sys/bus/pci/devices/{pci_bus_id}/numa_node")
        node = _integer(text)
        return node if node is not None and node >= 0 else None

    def pcie_root(self, pci_bus_id: str) -> str | None:
        """`pci<domain>:<bus>` of the root complex above a PCI function.

        The first path component below /sys/devices of the function's link, as upstream's
        `resource.kubernetes.io/pcieRoot` (KEP-4381) has it.
        """
        try:
            link = self.path(f"/sys/bus/pci/devices/{pci_bus_id}").readlink()
        except OSError:
            return None
        match = _PCIE_ROOT.search(str(link))
        return match[1] if match else None

    def gpu_addresses(self) -> frozenset[str] | None:
        """PCI addresses of the GPUs that the NVIDIA kernel driver holds, None where it cannot say.

        Cheap, and current when GPUs come and go, which an NVML session is not.
        """
        try:
            return frozenset(gpu.name for gpu in self.path("/proc/driver/nvidia/gpus").iterdir())
        except OSError:
            return None

    def device_major(self, driver: str) -> int | None:
        """The major number that the kernel gave a character driver ("nvidia-uvm")."""
        text = self._read("/proc/devices")
        if text is None:
            return None
        characters, _, _ = text.partition("Block devices:")
        for line in characters.splitlines():
            number, _, name = line.strip().partition(" ")
            if name == driver:
                return _integer(number)
        return None

    def boot_id(self) -> str | None:
        """The kernel's identifier of this boot."""
        return self._read("/proc/sys/kernel/random/boot_id")

    def device_numbers(self, absolute: str) -> tuple[int, int] | None:
        """Major and minor of a character device; None if there is none at that path."""
        try:
            status = self.path(absolute).stat()
        except OSError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        return os.major(status.st_rdev), os.minor(status.st_rdev)

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

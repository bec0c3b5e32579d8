"""One observation of the node's GPUs: plain values, no I/O.

GPUs are sorted by minor number, so that the same node gives the same value. No GPU appears twice:
it was read at least once, and is among `gpus` with its problems, or it is not known yet.
"""

from dataclasses import dataclass
from typing import TypeAlias

from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import NvmlFailure


@dataclass(frozen=True, slots=True)
class UnknownGpu:
    """A GPU that NVML lists and that could never be read, so that nobody knows which it is."""

    index: int
    """NVML's index in this observation."""
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverReady:
    """The driver answers; these are the node's GPUs, perhaps none."""

    gpus: tuple[ObservedGpu, ...]
    unknown: tuple[UnknownGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverMissing:
    """No NVIDIA driver yet: the library is not found, or the kernel module is not loaded."""

    reason: str


@dataclass(frozen=True, slots=True)
class DriverUnusable:
    """There is a driver and it refuses: no permission, library and module differ in version, ..."""

    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverReplaced:
    """Another driver is installed than the one whose library this process has loaded."""

    library: str
    """The file of the other one's library."""


Inventory: TypeAlias = DriverReady | DriverMissing | DriverUnusable | DriverReplaced


def known_gpus(inventory: Inventory | None) -> tuple[ObservedGpu, ...]:
    """Gives every GPU that is known, sorted by minor number; none without a driver."""
    match inventory:
        case DriverReady(gpus):
            return gpus
        case DriverMissing() | DriverUnusable() | DriverReplaced() | None:
            return ()

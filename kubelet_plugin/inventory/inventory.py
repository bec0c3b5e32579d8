"""One observation of the node's GPUs: plain values, no I/O.

GPUs are sorted by minor number, so that equal nodes have equal values. A GPU that was read at least
once is in `gpus`, with its problems; a GPU that was never read is in `unknown`.
"""

from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.gpu import ObservedGpu


@dataclass(frozen=True, slots=True)
class UnknownGpu:
    """A GPU that NVML lists but that could never be read, so that its identity is not known."""

    index: int
    """NVML's index in this observation."""
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverReady:
    """The driver works; these are the node's GPUs, possibly none."""

    gpus: tuple[ObservedGpu, ...]
    unknown: tuple[UnknownGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverMissing:
    """No NVIDIA driver yet: the library is not found, or the kernel module is not loaded."""

    reason: str


@dataclass(frozen=True, slots=True)
class DriverUnusable:
    """A driver is installed, but does not work: no permission, versions that do not match, ..."""

    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverReplaced:
    """The driver whose library this process has loaded was replaced by another one."""

    library: str
    """Path of the new driver's library."""


Inventory: TypeAlias = DriverReady | DriverMissing | DriverUnusable | DriverReplaced


def known_gpus(inventory: Inventory | None) -> tuple[ObservedGpu, ...]:
    """Returns all known GPUs, sorted by minor number; none without a working driver."""
    match inventory:
        case DriverReady(gpus):
            return gpus
        case DriverMissing() | DriverUnusable() | DriverReplaced() | None:
            return ()

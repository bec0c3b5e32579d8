"""How much GPUs and MIG instances are used, as NVML says now: memory, and time with work.

It costs two calls a GPU and a partition besides finding them, so it is read for those who look at
metrics, and not at each look.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pynvml

from carina_dra.nvidia.nvml_library import (
    NvmlBusyError,
    NvmlCallError,
    NvmlLibrary,
    NvmlReleasedError,
    call,
    optional_call,
)
from kubelet_plugin.inventory.gpu import Gpu


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """The use of a GPU or MIG instance; None is what the driver does not say."""

    memory_total: int
    """Bytes."""
    memory_used: int
    """Bytes, without those that the driver reserves."""
    memory_reserved: int | None
    """Bytes that the driver keeps for itself."""
    utilization: float | None
    """Part of the last sample period, up to a second, with a kernel on the GPU: 0 to 1. Drivers
    do not say it of MIG instances, nor of a GPU that is divided into them."""


def read_usage(
    library: NvmlLibrary, gpus: Collection[Gpu], partitions: Collection[str]
) -> Mapping[str, GpuUsage]:
    """Returns the use of these GPUs, and of the MIG devices with these UUIDs, by UUID.

    Those that do not answer are left out. Blocks as long as the driver does.
    """
    by_address = pynvml.nvmlDeviceGetHandleByPciBusId
    finders = [
        *((gpu.uuid, partial(call, by_address, gpu.pci_bus_id)) for gpu in gpus),
        *((uuid, partial(call, pynvml.nvmlDeviceGetHandleByUUID, uuid)) for uuid in partitions),
    ]
    try:
        with library.lease():
            return dict(_read(finders))
    except (NvmlCallError, NvmlBusyError, NvmlReleasedError):
        return {}


def _read(finders: Collection[tuple[str, Callable[[], object]]]) -> Iterator[tuple[str, GpuUsage]]:
    for uuid, find in finders:
        try:
            yield uuid, _usage(find())
        except NvmlCallError:
            continue  # the poller says what is wrong with it


def _usage(handle: object) -> GpuUsage:
    memory = optional_call(_memory_v2, handle)
    reserved = None if memory is None else memory.reserved
    memory = memory or call(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = optional_call(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return GpuUsage(
        memory.total, memory.used, reserved, None if rates is None else float(rates.gpu) / 100
    )


def _memory_v2(handle: object) -> object:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)

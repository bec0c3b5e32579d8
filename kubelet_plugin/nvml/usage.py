"""How much GPUs and MIG instances are used, as NVML says now: memory, and time with work.

It costs three calls a GPU and a call a partition, so it is read for those who look at metrics, and
not at each look.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pynvml

from carina_dra.nvidia.nvml_library import (
    NvmlBusyError,
    NvmlCallError,
    NvmlLibrary,
    NvmlReleasedError,
    NvmlSession,
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
    do not say it of MIG instances, which are not asked, nor of a GPU that is divided into them."""


class UsageReader:
    """Reads the use of GPUs again and again. Called by a thread at a time."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self._session: NvmlSession | None = None
        self._handles: dict[str, object] = {}
        """Of MIG devices, by UUID: to find a device costs a call, and more for a busy driver."""

    def read(self, gpus: Collection[Gpu], partitions: Collection[str]) -> Mapping[str, GpuUsage]:
        """Returns the use of these GPUs, and of the MIG devices with these UUIDs, by UUID.

        Those that do not answer are left out. Blocks as long as the driver does.
        """
        try:
            with self._library.lease() as session:
                if session is not self._session:
                    self._session, self._handles = session, {}
                self._handles = {
                    uuid: handle for uuid, handle in self._handles.items() if uuid in partitions
                }
                return dict(self._read(gpus, partitions))
        except (NvmlCallError, NvmlBusyError, NvmlReleasedError):
            return {}

    def _read(
        self, gpus: Collection[Gpu], partitions: Collection[str]
    ) -> Iterator[tuple[str, GpuUsage]]:
        for gpu in gpus:
            with suppress(NvmlCallError):  # the poller says what is wrong with it
                yield gpu.uuid, _of_gpu(gpu)
        for uuid in partitions:
            try:
                yield uuid, self._of_partition(uuid)
            except NvmlCallError:
                self._handles.pop(uuid, None)

    def _of_partition(self, uuid: str) -> GpuUsage:
        if uuid not in self._handles:
            self._handles[uuid] = call(pynvml.nvmlDeviceGetHandleByUUID, uuid)
        return _usage(self._handles[uuid], utilization=None)


def _of_gpu(gpu: Gpu) -> GpuUsage:
    handle = call(pynvml.nvmlDeviceGetHandleByPciBusId, gpu.pci_bus_id)
    rates = optional_call(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return _usage(handle, utilization=None if rates is None else float(rates.gpu) / 100)


def _usage(handle: object, *, utilization: float | None) -> GpuUsage:
    memory = optional_call(_memory_v2, handle)
    reserved = None if memory is None else memory.reserved
    memory = memory or call(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return GpuUsage(memory.total, memory.used, reserved, utilization)


def _memory_v2(handle: object) -> object:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)

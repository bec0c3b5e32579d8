"""How much of its GPU a device is, so that whole GPUs, partitions and shares can be summed."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from carina_dra.allocator.usage import DeviceId
from carina_dra.resource import Allocation, Device, ResourceSlice

_MEMORY: Final = "memory"
_WHOLE: Final = Fraction(1)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One of the GPUs: a counter set of a pool, or a device that shares no counters."""

    driver: str
    pool: str
    name: str


class SimulatedGpus:
    """The GPUs of a cluster. Devices that consume one counter set are of one GPU.

    A device's part of its GPU is its part of the memory; a device without memory is a whole one.
    """

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._memory: dict[DeviceId, int] = {}
        self._gpu: dict[DeviceId, _Gpu] = {}
        self._whole: dict[_Gpu, int] = {}
        self._pools: dict[tuple[str, str], list[_Gpu]] = {}
        self.total = 0
        """How many GPUs are in the cluster."""
        self.add(slices)

    def add(self, slices: Iterable[ResourceSlice]) -> None:
        """Applies a pool. What is known of its devices stays known when it is gone."""
        for published in slices:
            spec = published.spec
            pool = (spec.driver, spec.pool.name)
            here = self._pools.setdefault(pool, [])
            for device in spec.devices:
                gpu = _Gpu(*pool, _name(device))
                identity = DeviceId(*pool, device.name)
                memory = _memory(device)
                self._gpu[identity], self._memory[identity] = gpu, memory
                self._whole[gpu] = max(self._whole.get(gpu, 0), memory)
                if gpu not in here:
                    here.append(gpu)
                    self.total += 1

    def remove(self, slices: Iterable[ResourceSlice]) -> None:
        """Records that pools are gone."""
        for published in slices:
            gone = self._pools.pop((published.spec.driver, published.spec.pool.name), [])
            self.total -= len(gone)

    def part(self, allocation: Allocation) -> Fraction:
        """How many GPUs an allocation is; sight of a GPU (admin access) is nothing."""
        parts = Fraction(0)
        for result in allocation.devices.results:
            identity = DeviceId(result.driver, result.pool, result.device)
            gpu = self._gpu.get(identity)
            if result.admin_access or gpu is None:
                continue
            consumed = result.consumed_capacity.get(_MEMORY)
            memory = self._memory[identity] if consumed is None else consumed.value()
            parts += Fraction(memory, self._whole[gpu]) if self._whole[gpu] else _WHOLE
        return parts


def _name(device: Device) -> str:
    sets = device.consumes_counters
    return sets[0].counter_set if sets else device.name


def _memory(device: Device) -> int:
    capacity = device.capacity.get(_MEMORY)
    return 0 if capacity is None else capacity.value.value()

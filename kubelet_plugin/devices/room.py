"""What is left of a GPU beside what claims hold, counted as the scheduler counts it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from carina_dra.quantity import Quantity
from kubelet_plugin.devices.counters import available_counters, partition_need, whole_need
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import Share, share_amounts
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.mig import MigSupported, MigUnsupported

ProfileSize: TypeAlias = tuple[float, int, int]
"""Memory in MiB, multiprocessors and ID of a partition's profile, to sort devices by."""

_NO_SIZE: Final = (0, 0, 0)
_WHOLE: Final = (math.inf, 0, 0)
_FIELD: Final = 32
_GUARD: Final = 1 << (_FIELD - 1)
"""The highest bit of a field, which the value of a counter does not reach."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device that a claim holds. Admin access holds nothing."""

    device: str
    """Name of the device, such as `gpu-3`."""
    consumed: Mapping[str, Quantity] = field(default_factory=dict)
    """The share's part of the device's capacities, by name. Empty for other devices."""


@dataclass(frozen=True, slots=True)
class FreeDevice:
    """A device that can be allocated."""

    name: str
    size: ProfileSize
    part: float
    """The part of its GPU that it is."""
    need: int
    """What it needs of the GPU's counters, each in a field of the number."""


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """What can still be allocated of a GPU."""

    free: tuple[FreeDevice, ...]
    left: int
    """What is left of the GPU's counters, each in a field with the guard bit set.

    A counter that is too small borrows its guard bit: so one subtraction compares all counters.
    """
    guards: int
    """The guard bits of all fields."""
    fullness: float
    """The part of the GPU that claims hold, from 0 to 1.

    Of partitions, their part of the memory slices; of shares, the larger of their parts of memory
    and cores.
    """

    def taking(self, taken: FreeDevice) -> "GpuRoom":
        """Returns the room when a claim has this device as well."""
        left, guards = self.left - taken.need, self.guards
        free = tuple(
            device
            for device in self.free
            if device is not taken and (left - device.need) & guards == guards
        )
        return GpuRoom(free, left, guards, self.fullness + taken.part)

    def loss(self, taken: FreeDevice) -> tuple[ProfileSize, ...]:
        """Returns the sizes of the free devices that this one rules out, the largest first."""
        left, guards = self.left - taken.need, self.guards
        lost = [device.size for device in self.free if (left - device.need) & guards != guards]
        return tuple(sorted(lost, reverse=True))


_NO_ROOM: Final = GpuRoom((), left=0, guards=0, fullness=1.0)


def gpu_room(devices: Sequence[GpuDevice], uses: Collection[DeviceUse]) -> GpuRoom:
    """Returns the room on a GPU: `devices` are all that it has, and `uses` are of this GPU.

    There is none while claims hold more than there is, as when one is not unprepared yet, or hold a
    device that is not offered any more, since its needs are not known.
    """
    gpu, state = devices[0].gpu, devices[0].state
    counters = tuple(whole_need(gpu))
    known = {device.name: device for device in devices}
    needs = {name: _fields(_need(device), counters) for name, device in known.items()}
    held = {use.device for use in uses}
    if not held <= known.keys():
        return _NO_ROOM
    guards = _fields(dict.fromkeys(counters, _GUARD), counters)
    left = guards | _fields(available_counters(gpu, state), counters)
    for name in held:
        left -= needs[name]
        if left & guards != guards:
            return _NO_ROOM
    slices = _memory_slices(gpu)
    shared = _shared(known, uses)
    fullness = max(sum(_part(known[name], slices) for name in held), shared)
    if 0 < shared < 1:  # the first share has consumed the counters
        needs.update((name, 0) for name in held)
    free = tuple(
        FreeDevice(name, size(device), _part(device, slices), needs[name])
        for name, device in known.items()
        if (left - needs[name]) & guards == guards
        and not isinstance(device, Monitor)  # admin access takes no room
        and (name not in held or isinstance(device, Share))
    )
    return GpuRoom(free, left, guards, fullness)


def size(device: GpuDevice) -> ProfileSize:
    """Returns by what devices of a GPU are compared: a partition is smaller than the whole GPU."""
    match device:
        case WholeGpu():
            return _WHOLE
        case Partition() | FoundPartition():
            return device.profile.size
        case Share() | Monitor():
            return _NO_SIZE
    assert_never(device)


def _need(device: GpuDevice) -> Mapping[str, int]:
    match device:
        case WholeGpu() | Share():
            return whole_need(device.gpu)
        case Partition():
            return partition_need(device.profile, device.placement)
        case FoundPartition() | Monitor():
            return {}
    assert_never(device)


def _part(device: GpuDevice, slices: int) -> float:
    """Returns which part of its GPU a device is. That of a share depends on its amounts."""
    match device:
        case WholeGpu():
            return 1.0
        case Partition() | FoundPartition():
            return device.placement.size / slices
        case Share() | Monitor():
            return 0.0
    assert_never(device)


def _shared(devices: Mapping[str, GpuDevice], uses: Collection[DeviceUse]) -> float:
    """Returns which part of a GPU all shares have: the larger of memory and cores."""
    memory = cores = 0.0
    for use in uses:
        device = devices[use.device]
        if isinstance(device, Share):
            amounts = share_amounts(use.consumed) or device.total
            memory += amounts.memory_mib / device.total.memory_mib
            cores += amounts.cores / device.total.cores
    return max(memory, cores)


def _memory_slices(gpu: Gpu) -> int:
    match gpu.mig:
        case MigSupported(layout):
            return layout.memory_slices
        case MigUnsupported():
            return 0
    assert_never(gpu.mig)


def _fields(numbers: Mapping[str, int], counters: Sequence[str]) -> int:
    """Returns the numbers of these counters, each in a field of one number."""
    return sum(numbers.get(name, 0) << index * _FIELD for index, name in enumerate(counters))

"""The order of a node's devices as a policy, because kube-scheduler takes the first that fits.

Devices of one kind and size are a *group*. Groups have a fixed order: whole GPUs, shares,
partitions from small to large, monitors. So a request for an amount of memory gets the smallest
partition that suffices. A policy says which GPU in a group comes first. On a GPU, every policy
prefers the partition that rules out the fewest large ones.

The order follows from the devices and from what claims hold, so two plugins want the same. It is a
hint: whatever the order, the scheduler allocates only what fits.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TypeAlias, assert_never

from kubelet_plugin.devices.counters import counter_set_name
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.room import DeviceUse, GpuRoom, ProfileSize, gpu_room, size
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu

_Key: TypeAlias = tuple[tuple[ProfileSize, ...], float]


class DeviceOrder(StrEnum):
    """The policy by which devices are ordered."""

    NONE = "none"
    """By minor number, whatever is in use."""
    BINPACK = "binpack"
    """The fullest GPU first."""
    SPREAD = "spread"
    """The emptiest GPU first."""
    FRAGMENTATION = "fragmentation"
    """The GPU first on which the device rules out the fewest large ones, whole GPUs above all."""


def groups(devices: Iterable[GpuDevice], order: DeviceOrder) -> tuple[tuple[GpuDevice, ...], ...]:
    """Returns the devices by group; without a policy, all in one group as they are."""
    if order is DeviceOrder.NONE:
        return (tuple(devices),)
    by_group: dict[tuple[int, ProfileSize], list[GpuDevice]] = {}
    for device in devices:
        by_group.setdefault((_rank(device), size(device)), []).append(device)
    return tuple(tuple(by_group[group]) for group in sorted(by_group))


def free_in_order(
    devices: Collection[GpuDevice], uses: Iterable[DeviceUse], order: DeviceOrder
) -> tuple[str, ...]:
    """Returns the names of the devices that can be allocated, in the order of a policy.

    In each group, each device is the one that the policy takes when those before it are taken. So
    many equal claims follow the policy before the slices can be written again. Devices that only
    fit instead of those come last. Monitors have no order, and without a policy no device has.
    """
    if order is DeviceOrder.NONE:
        return ()
    rooms = _rooms(devices, uses)
    names: list[str] = []
    for group in groups(devices, order):
        members = {device.name for device in group}
        sequences = [_sequence(room, members, order) for room in rooms]
        names += [taken.name for taken in heapq.merge(*sequences, key=attrgetter("key"))]
        instead = members.difference(names)
        names += [free.name for room in rooms for free in room.free if free.name in instead]
    return tuple(names)


@dataclass(frozen=True, slots=True)
class _Taken:
    name: str
    key: _Key


def _sequence(room: GpuRoom, members: Collection[str], order: DeviceOrder) -> Iterator[_Taken]:
    """Yields a group's devices on a GPU in the order in which a policy takes them."""
    while free := [device for device in room.free if device.name in members]:
        losses = [room.loss(device) for device in free]
        least = min(losses)
        first = free[losses.index(least)]
        yield _Taken(first.name, _key(room, least, order))
        room = room.taking(first)


def _key(room: GpuRoom, loss: tuple[ProfileSize, ...], order: DeviceOrder) -> _Key:
    """Returns by what a policy compares GPUs; of two that are equal, the first comes first."""
    match order:
        case DeviceOrder.NONE:
            return (), 0
        case DeviceOrder.BINPACK:
            return (), -room.fullness
        case DeviceOrder.SPREAD:
            return (), room.fullness
        case DeviceOrder.FRAGMENTATION:
            return loss, -room.fullness
    assert_never(order)


def _rank(device: GpuDevice) -> int:
    match device:
        case WholeGpu():
            return 0
        case Share():
            return 1
        case Partition() | FoundPartition():
            return 2
        case Monitor():
            return 3
    assert_never(device)


def _rooms(devices: Iterable[GpuDevice], uses: Iterable[DeviceUse]) -> list[GpuRoom]:
    """Returns the rooms of all GPUs, in the order of their first devices."""
    devices_of: dict[str, list[GpuDevice]] = {}
    uses_of: dict[str, list[DeviceUse]] = {}
    for device in devices:
        devices_of.setdefault(counter_set_name(device.gpu), []).append(device)
    for use in uses:
        uses_of.setdefault(gpu_name(parse_name(use.device)), []).append(use)
    return [gpu_room(found, uses_of.get(gpu, ())) for gpu, found in devices_of.items()]

"""The node's devices as a pool of ResourceSlices (KEP-4381, KEP-4815).

Every GPU is a *counter set* `gpu-<minor>` from which its devices consume, so that two devices which
exclude each other in the hardware are never allocated together. A GPU that supports MIG counts its
engines and memory slices; any other GPU has a single counter. Slices of counter sets come before
slices of devices.

A policy for the order of devices needs those that it compares in one slice, since the scheduler
takes the slices by name: so a slice has whole groups of devices, as far as they fit.

Equal devices give equal pools. Attributes and capacities have the names that users of NVIDIA's DRA
driver already select on; a name without a domain belongs to the driver's domain.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias, TypeVar

from carina_dra.resource import CounterSet, DeviceTaint, limits
from carina_dra.resource import Device as PublishedDevice
from kubelet_plugin.devices.counters import counter_set, counter_set_name
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.order import DeviceOrder, groups
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.taint import released_taint
from kubelet_plugin.publish.partition_type import DeviceRun, qualified_attribute, typed_runs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CounterSlice:
    """A slice with counter sets; the API does not allow devices in it."""

    counter_sets: tuple[CounterSet, ...]


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """A slice with devices; it may be empty."""

    devices: tuple[PublishedDevice, ...]
    partition_type_attribute: str | None = None
    """The attribute whose equal values promise equal consumption of counters (KEP-5677). A slice
    without a device that consumes counters cannot declare one."""


SliceContent: TypeAlias = CounterSlice | DeviceSlice


@dataclass(frozen=True, slots=True)
class PublishedPool:
    """What one driver publishes for one node. The pool is named after the node."""

    driver: str
    node: str
    slices: tuple[SliceContent, ...]
    """Empty if the node has no devices."""


def pool(
    devices: Sequence[GpuDevice],
    settings: PublishSettings,
    *,
    node: str,
    order: DeviceOrder = DeviceOrder.NONE,
    released: bool = False,
) -> PublishedPool:
    """Returns the pool of a node's devices, in their order, by groups of `order`.

    All have a taint if the node's GPUs are `released`.
    """
    added = (released_taint(settings.driver),) if released else ()
    by_group = [
        [_tainted(device.published(settings), added) for device in group]
        for group in groups(devices, order)
    ]
    published = tuple(device for group in by_group for device in group)
    consumed = {use.counter_set for device in published for use in device.consumes_counters}
    sets = {counter_set_name(device.gpu): device for device in devices}
    counter_sets = [
        counter_set(device.gpu, device.state) for name, device in sets.items() if name in consumed
    ]
    return PublishedPool(
        settings.driver,
        node,
        (
            *(CounterSlice(sets) for sets in _chunks(counter_sets, limits.COUNTER_SETS_PER_SLICE)),
            *_device_slices(_runs(devices, published, settings), by_group, settings.driver),
        ),
    )


def _tainted(device: PublishedDevice, added: tuple[DeviceTaint, ...]) -> PublishedDevice:
    return replace(device, taints=(*device.taints, *added)) if added else device


def _runs(
    devices: Sequence[GpuDevice], published: tuple[PublishedDevice, ...], settings: PublishSettings
) -> Iterable[DeviceRun]:
    if not settings.partition_types:
        return (DeviceRun(declared=False, devices=published),)
    partitions = {device.name for device in devices if device.kind is DeviceKind.MIG}
    return typed_runs(published, partitions=partitions)


def _device_slices(
    runs: Iterable[DeviceRun], groups: Iterable[Iterable[PublishedDevice]], driver: str
) -> Iterator[DeviceSlice]:
    group_of = {device.name: number for number, group in enumerate(groups) for device in group}
    for run in runs:
        of_run = groupby(run.devices, key=lambda device: group_of[device.name])
        for chunk in _packed(
            (tuple(group) for _, group in of_run), limits.DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES
        ):
            consuming = any(device.consumes_counters for device in chunk)
            attribute = qualified_attribute(driver) if run.declared and consuming else None
            yield DeviceSlice(chunk, attribute)


def _packed(groups: Iterable[Sequence[T]], size: int) -> Iterator[tuple[T, ...]]:
    """Joins groups that follow each other up to `size` items, and divides larger ones."""
    together: tuple[T, ...] = ()
    for group in groups:
        if len(together) + len(group) > size:
            yield from _chunks(together, size)
            together = ()
        together += tuple(group)
    yield from _chunks(together, size)


def _chunks(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    items = tuple(items)
    for start in range(0, len(items), size):
        yield items[start : start + size]

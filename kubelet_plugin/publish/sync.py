"""Plans the writes that turn the node's ResourceSlices into the wanted pool. No I/O.

Invariant: a client that reads the pool between two of the writes sees the pool from before the
first write, an incomplete pool, or the wanted pool. It never sees a complete pool with other
devices. A pool is complete if its highest generation has as many slices as its slices say
(KEP-4381). The order of the devices in a slice and their taints are not part of this: a taint
counts at once, also while those of other devices are not written yet. Therefore

- if changing a single slice is enough, or all others keep their devices and only change their
  order or taints, the generation stays the same;
- otherwise every slice is rewritten with the next generation, and slices of older generations,
  which clients ignore by then, are deleted last.

The name of a slice begins with its index in the pool, as with upstream's drivers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

from carina_dra.resource import (
    Device,
    DeviceTaint,
    ObjectMeta,
    OnNode,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, PublishedPool

_GENERATE_NAME_LENGTH: Final = 248
"""Names may have 253 characters, and the API server adds five."""


_TaintKey: TypeAlias = tuple[str, str, str, object]
_TaintTimes: TypeAlias = Mapping[_TaintKey, datetime | None]


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """Writes, in the order in which they have to be made."""

    update: tuple[ResourceSlice, ...] = ()
    """Slices with their new content and the resource version that was read."""
    create: tuple[ResourceSlice, ...] = ()
    """New slices, without an owner."""
    delete: tuple[ResourceSlice, ...] = ()
    """Slices as they were read, or as `update` wrote them; the version is a precondition."""

    def __bool__(self) -> bool:
        return bool(self.update or self.create or self.delete)


def resource_slices(pool: PublishedPool, generation: int) -> tuple[ResourceSlice, ...]:
    """Returns the slices of a pool as new objects, without an owner."""
    return tuple(
        ResourceSlice(
            metadata=ObjectMeta(generate_name=_generate_name(pool, index)),
            spec=ResourceSliceSpec(
                driver=pool.driver,
                nodes=OnNode(pool.node),
                pool=ResourcePool(
                    name=pool.node,
                    generation=generation,
                    resource_slice_count=len(pool.slices),
                ),
                devices=content.devices if isinstance(content, DeviceSlice) else (),
                shared_counters=content.counter_sets if isinstance(content, CounterSlice) else (),
                partition_type_attribute=(
                    content.partition_type_attribute if isinstance(content, DeviceSlice) else None
                ),
            ),
        )
        for index, content in enumerate(pool.slices)
    )


def sync(pool: PublishedPool, existing: Iterable[ResourceSlice]) -> SlicePlan:
    """Returns the writes that turn `existing`, all slices of the driver on the node, into `pool`.

    Of two slices with one index the one of the higher generation stays, then the first by name, so
    that several plugins make the same choice.
    """
    present = sorted(
        existing, key=lambda current: (-current.spec.pool.generation, current.metadata.name)
    )
    in_pool = [current for current in present if current.spec.pool.name == pool.node]
    elsewhere = [current for current in present if current.spec.pool.name != pool.node]
    newest = max((current.spec.pool.generation for current in in_pool), default=0)
    if not pool.slices:
        return _removal(in_pool, elsewhere, newest)
    times = _taint_times(in_pool)
    wanted = _by_prefix(resource_slices(pool, newest), times)
    kept: dict[str, ResourceSlice] = {}
    obsolete: list[ResourceSlice] = []
    for current in in_pool:
        prefix = current.metadata.generate_name
        if prefix in wanted and prefix not in kept:
            kept[prefix] = current
        else:
            obsolete.append(current)

    update = [
        rewritten
        for prefix, current in kept.items()
        if (rewritten := _rewritten(current, wanted[prefix])) != current
    ]
    visible = [current for current in obsolete if current.spec.pool.generation == newest]
    changed = [new for new in update if not _alike(kept[new.metadata.generate_name], new)]
    if len(kept) < len(wanted) or len(changed) + len(visible) > 1:
        wanted = _by_prefix(resource_slices(pool, newest + 1), times)
        update = [_rewritten(current, wanted[prefix]) for prefix, current in kept.items()]
    return SlicePlan(
        update=tuple(update),
        create=tuple(new for prefix, new in wanted.items() if prefix not in kept),
        delete=(*obsolete, *elsewhere),
    )


def _removal(
    in_pool: list[ResourceSlice], elsewhere: list[ResourceSlice], newest: int
) -> SlicePlan:
    """Plans the deletion of all slices, the newest generation last since it hides the others.

    The slices that remain must not look complete meanwhile. They would if a slice says that there
    are fewer slices than there are. Then an empty slice of the next generation hides all others
    first.
    """
    visible = [current for current in in_pool if current.spec.pool.generation == newest]
    older = [current for current in in_pool if current.spec.pool.generation != newest]
    if all(current.spec.pool.resource_slice_count >= len(visible) for current in visible):
        return SlicePlan(delete=(*older, *elsewhere, *visible))
    first, *rest = visible
    alone = ResourcePool(first.spec.pool.name, generation=newest + 1, resource_slice_count=1)
    empty = replace(
        first.spec, pool=alone, devices=(), shared_counters=(), partition_type_attribute=None
    )
    hiding = replace(first, spec=empty)
    return SlicePlan(update=(hiding,), delete=(*older, *rest, *elsewhere, hiding))


def _taint_times(newest_first: Iterable[ResourceSlice]) -> _TaintTimes:
    """Returns when the API server added the taints, in whichever slice their device is."""
    times: dict[_TaintKey, datetime | None] = {}
    for current in newest_first:
        for device in current.spec.devices:
            for taint in device.taints:
                times.setdefault(_taint_key(device, taint), taint.time_added)
    return times


def _taint_key(device: Device, taint: DeviceTaint) -> _TaintKey:
    return device.name, taint.key, taint.value, taint.effect


def _by_prefix(slices: Iterable[ResourceSlice], times: _TaintTimes) -> dict[str, ResourceSlice]:
    """Returns the slices by the beginning of their names, with the times of taints they had."""
    return {current.metadata.generate_name: _timed(current, times) for current in slices}


def _timed(wanted: ResourceSlice, times: _TaintTimes) -> ResourceSlice:
    devices = tuple(
        replace(
            device,
            taints=tuple(
                replace(taint, time_added=times.get(_taint_key(device, taint), taint.time_added))
                for taint in device.taints
            ),
        )
        for device in wanted.spec.devices
    )
    return replace(wanted, spec=replace(wanted.spec, devices=devices))


def _generate_name(pool: PublishedPool, index: int) -> str:
    """Returns `<index, five hexadecimal digits>-<driver>-<node>-`, cut to the length allowed."""
    return f"{index:05x}-{pool.driver}-{pool.node}"[: _GENERATE_NAME_LENGTH - 1] + "-"


def _rewritten(current: ResourceSlice, wanted: ResourceSlice) -> ResourceSlice:
    """Returns the slice with the wanted content; equal to `current` if nothing has to change.

    Fields that this version does not know stay.
    """
    stored = {device.name: device for device in current.spec.devices}
    devices = tuple(
        replace(device, unknown=stored[device.name].unknown) if device.name in stored else device
        for device in wanted.spec.devices
    )
    return replace(
        current, spec=replace(wanted.spec, devices=devices, unknown=current.spec.unknown)
    )


def _alike(current: ResourceSlice, new: ResourceSlice) -> bool:
    """Returns whether the slices differ in nothing but the order and taints of their devices."""
    devices = {device.name: device for device in current.spec.devices}
    as_before = tuple(
        replace(devices[device.name], taints=device.taints)
        for device in new.spec.devices
        if device.name in devices
    )
    reordered = replace(current, spec=replace(current.spec, devices=as_before))
    return reordered == new and len(as_before) == len(current.spec.devices)

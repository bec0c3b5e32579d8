"""How the node's ResourceSlices become what they ought to be: a decision, no I/O.

The rule behind all of it: who reads the pool between any two of our writes sees it as it was before
the first of them, or incomplete, or as it ought to be; never complete with other devices. A pool is
complete if its highest generation has as many slices as each of them says (KEP-4381). So

- where one change of a slice makes the pool right, the generation stays;
- otherwise every slice is written anew with the next generation, and what is left of older ones is
  deleted last, when nobody looks at it any more.

A slice's place in the pool is the number that its name begins with, as with upstream's drivers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from carina_dra.resource import (
    Device,
    DeviceTaint,
    ObjectMeta,
    OnNode,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, Pool

__all__ = ["Plan", "resource_slices", "sync"]

_GENERATE_NAME_LENGTH: Final = 248
"""Names may have 253 characters, and the API server adds five."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes, to be made in this order."""

    update: tuple[ResourceSlice, ...] = ()
    """As they are to be, with the resource version that was read."""
    create: tuple[ResourceSlice, ...] = ()
    """As they are to be, still without an owner."""
    delete: tuple[ResourceSlice, ...] = ()
    """As they were read, or as `update` leaves them: to be deleted only if they still are so."""

    def __bool__(self) -> bool:
        return bool(self.update or self.create or self.delete)


def resource_slices(pool: Pool, generation: int) -> tuple[ResourceSlice, ...]:
    """Gives the slices of a pool as new objects, still without an owner."""
    return tuple(
        ResourceSlice(
            metadata=ObjectMeta(generate_name=_generate_name(pool, place)),
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
            ),
        )
        for place, content in enumerate(pool.slices)
    )


def sync(pool: Pool, existing: Iterable[ResourceSlice]) -> Plan:
    """Gives the writes that make `existing`, all slices of the driver on the node, the pool.

    Of two slices in one place that of the higher generation stays, then the first by name: every
    process that decides this decides the same.
    """
    present = sorted(existing, key=lambda each: (-each.spec.pool.generation, each.metadata.name))
    in_pool = [each for each in present if each.spec.pool.name == pool.node]
    elsewhere = [each for each in present if each.spec.pool.name != pool.node]
    newest = max((each.spec.pool.generation for each in in_pool), default=0)
    if not pool.slices:
        return _removal(in_pool, elsewhere, newest)
    wanted = {each.metadata.generate_name: each for each in resource_slices(pool, newest)}
    kept: dict[str, ResourceSlice] = {}
    obsolete: list[ResourceSlice] = []
    for each in in_pool:
        place = each.metadata.generate_name
        if place in wanted and place not in kept:
            kept[place] = each
        else:
            obsolete.append(each)

    update = [
        written
        for place, each in kept.items()
        if (written := _rewritten(each, wanted[place])) != each
    ]
    visible = [each for each in obsolete if each.spec.pool.generation == newest]
    if len(kept) < len(wanted) or len(update) + len(visible) > 1:
        wanted = {each.metadata.generate_name: each for each in resource_slices(pool, newest + 1)}
        update = [_rewritten(each, wanted[place]) for place, each in kept.items()]
    return Plan(
        update=tuple(update),
        create=tuple(each for place, each in wanted.items() if place not in kept),
        delete=(*obsolete, *elsewhere),
    )


def _removal(in_pool: list[ResourceSlice], elsewhere: list[ResourceSlice], newest: int) -> Plan:
    """Deletes all slices, those of the newest generation last: they hide the older ones.

    While they go, the rest must not look complete. It would where a slice says that there are fewer
    than there are; then an empty slice of the next generation hides all others first.
    """
    visible = [each for each in in_pool if each.spec.pool.generation == newest]
    older = [each for each in in_pool if each.spec.pool.generation != newest]
    if all(each.spec.pool.resource_slice_count >= len(visible) for each in visible):
        return Plan(delete=(*older, *elsewhere, *visible))
    first, *rest = visible
    alone = ResourcePool(first.spec.pool.name, generation=newest + 1, resource_slice_count=1)
    hiding = replace(first, spec=replace(first.spec, pool=alone, devices=(), shared_counters=()))
    return Plan(update=(hiding,), delete=(*older, *rest, *elsewhere, hiding))


def _generate_name(pool: Pool, place: int) -> str:
    """`<place, five hexadecimal digits>-<driver>-<node>-`, cut where it leaves no valid name."""
    return f"{place:05x}-{pool.driver}-{pool.node}"[: _GENERATE_NAME_LENGTH - 1] + "-"


def _rewritten(each: ResourceSlice, wanted: ResourceSlice) -> ResourceSlice:
    """A slice with the content that it is to have; equal to what it was if it has that already.

    What was stored and is not ours to say stays: fields that we do not know, and the time at which
    a taint was added.
    """
    stored = {device.name: device for device in each.spec.devices}
    devices = tuple(
        _carried_over(device, stored[device.name]) if device.name in stored else device
        for device in wanted.spec.devices
    )
    return replace(each, spec=replace(wanted.spec, devices=devices, unknown=each.spec.unknown))


def _carried_over(device: Device, stored: Device) -> Device:
    times = {(taint.key, taint.value, taint.effect): taint.time_added for taint in stored.taints}

    def timed(taint: DeviceTaint) -> DeviceTaint:
        return replace(taint, time_added=times.get((taint.key, taint.value, taint.effect)))

    taints = tuple(timed(taint) for taint in device.taints)
    return replace(device, taints=taints, unknown=stored.unknown)

"""Arranges the devices within the slices of a pool, with as few changes of the slices as possible.

Each slice has the devices that it has in any order. So slices can be rewritten one by one, and the
pool is complete and right at any moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from carina_dra.resource import ResourceSlice
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, PublishedPool, SliceContent


def arranged(
    pool: PublishedPool, first: Sequence[str], existing: Iterable[ResourceSlice], *, keep: bool
) -> PublishedPool:
    """Returns the pool with the devices of each slice arranged, those named in `first` first.

    An existing slice of these devices stays as it is if it has the first devices in this order; the
    place of the others does not matter. If `keep`, it stays as it is in any case.
    """
    ranks = {name: rank for rank, name in enumerate(first)}
    newest_last = sorted(existing, key=lambda current: current.spec.pool.generation)
    published = {}
    for current in newest_last:
        names = [device.name for device in current.spec.devices]
        published[tuple(sorted(names))] = names

    def arrange(content: SliceContent) -> SliceContent:
        match content:
            case CounterSlice():
                return content
            case DeviceSlice(devices=devices):
                by_name = {device.name: device for device in devices}
                names = sorted(by_name, key=lambda name: ranks.get(name, len(ranks)))
                present = published.get(tuple(sorted(by_name)))
                if present is not None and (keep or _ranked(present) == _ranked(names)):
                    names = present
                return replace(content, devices=tuple(by_name[name] for name in names))

    def _ranked(names: Iterable[str]) -> list[str]:
        return [name for name in names if name in ranks]

    return replace(pool, slices=tuple(map(arrange, pool.slices)))

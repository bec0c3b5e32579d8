"""Pools that are alike but for the attributes of their devices, such as those of equal nodes.

What follows from their capacities, counters and the attributes that are looked at is the same. Only
one of them need be evaluated.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from carina_dra.allocator.pool import Candidate
from carina_dra.placement.cluster.offer import OfferedPool
from carina_dra.resource import (
    BoolAttribute,
    Device,
    DeviceAttribute,
    IntAttribute,
    OnNode,
    StringAttribute,
    lookup,
)

_PLAIN: Final = frozenset({StringAttribute, IntAttribute, BoolAttribute})
"""The attributes that expressions support, whatever their values are."""


class _Same:
    """Stands for equal values of an attribute, as long as something refers to it."""


_Values: TypeAlias = tuple[DeviceAttribute | None, ...]


class PoolKind:
    """Pools with equal devices, but for names of attributes and plain values."""

    def __init__(self, first: OfferedPool) -> None:
        self.first = first
        """It keeps the objects whose identities tell the kinds apart."""
        self._values: WeakValueDictionary[_Values, _Same] = WeakValueDictionary()

    def values(self, offered: OfferedPool, attributes: Iterable[str]) -> tuple[object, ...]:
        """What attributes are of the devices of a pool of the kind: the same objects if all equal.

        They are read once: reading them is most of what a question costs that alike pools share.
        """
        known = offered.values
        return tuple(known.get(name) or self._read(offered, name) for name in attributes)

    def _read(self, offered: OfferedPool, name: str) -> object:
        values = tuple(
            lookup(device.device.attributes, name, device.id.driver) for device in offered.devices
        )
        found = self._values.setdefault(values, _Same())
        offered.remember_values(name, found)
        return found


class PoolKinds:
    """The kinds of the pools that are in use, forgotten with the last pool of a kind."""

    def __init__(self) -> None:
        self._kinds: WeakValueDictionary[Hashable, PoolKind] = WeakValueDictionary()

    def of(self, offered: OfferedPool) -> PoolKind:
        """The kind of a pool."""
        key = _content(offered)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = PoolKind(offered)
        return kind


def _content(offered: OfferedPool) -> Hashable:
    pool = offered.pool
    counters = tuple((name, tuple(amounts.items())) for name, amounts in pool.counters.items())
    return pool.id.driver, offered.here, counters, tuple(map(_device, offered.devices))


def _device(candidate: Candidate) -> Hashable:
    """Everything of a device but its name, taints, and the plain values of attributes.

    Equal parts of decoded objects are mostly the same object. Where they are not, pools count as
    different though they are alike.
    """
    device: Device = candidate.device
    return (
        bool(device.allow_multiple_allocations),
        bool(device.binding_conditions),
        isinstance(candidate.slice.nodes, OnNode),
        tuple(device.capacity),
        tuple(map(id, device.capacity.values())),
        tuple(map(id, device.consumes_counters)),
        tuple(unplain(device)),
    )


def unplain(device: Device) -> Iterator[DeviceAttribute]:
    """The attributes that expressions may not support: then they fail on the device."""
    for attribute in device.attributes.values():
        if type(attribute) not in _PLAIN:
            yield attribute

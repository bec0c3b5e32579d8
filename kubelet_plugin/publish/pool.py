"""What the node publishes: its devices as a pool of ResourceSlices (KEP-4381, KEP-4815).

Every GPU is a *counter set*, `gpu-<minor>`: what its devices draw from, so that no two of them are
given out that exclude each other in the hardware. A GPU that can be partitioned counts its engines
and memory slices, one that cannot counts itself. Counter sets are in slices of their own, before
those of the devices.

The same devices always make the same pool. Names of attributes and capacities are those on which
users of NVIDIA's DRA driver select already; names without a domain are in the driver's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from carina_dra.resource import CounterSet, limits
from carina_dra.resource import Device as PublishedDevice
from kubelet_plugin.devices.counters import counter_set
from kubelet_plugin.devices.device import Device

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CounterSlice:
    """A slice with counter sets; the API allows no devices beside them."""

    counter_sets: tuple[CounterSet, ...]


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """A slice with devices, perhaps none."""

    devices: tuple[PublishedDevice, ...]


SliceContent: TypeAlias = CounterSlice | DeviceSlice


@dataclass(frozen=True, slots=True)
class Pool:
    """All that one driver publishes of one node. The pool has the node's name."""

    driver: str
    node: str
    slices: tuple[SliceContent, ...]
    """None where the node has no devices: it then publishes nothing."""


def pool(devices: Sequence[Device], *, driver: str, node: str) -> Pool:
    """Gives the pool of a node's devices, in their order."""
    gpus = {device.gpu.minor: device.gpu for device in devices}
    counter_sets = [counter_set(gpu) for gpu in gpus.values()]
    published = [device.published(driver) for device in devices]
    return Pool(
        driver,
        node,
        (
            *(CounterSlice(sets) for sets in _chunks(counter_sets, limits.COUNTER_SETS_PER_SLICE)),
            *(
                DeviceSlice(some)
                for some in _chunks(published, limits.DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES)
            ),
        ),
    )


def _chunks(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    items = tuple(items)
    for start in range(0, len(items), size):
        yield items[start : start + size]

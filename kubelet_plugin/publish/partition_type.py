"""The partition types of devices: which of them consume the same counters (KEP-5677).

A slice can name an attribute of its devices, such that equal values promise equal consumption. For
a ResourcePoolStatusRequest, kube-controller-manager then counts how many devices of each value can
still be allocated. Consumption is equal only if the counter sets and the counters are
(`consumesCountersKey` in pkg/controller/resourcepoolstatusrequest of kubernetes v1.37.0), so every
GPU and every placement on it has a type of its own. A profile's name would break the promise.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from carina_dra.resource import Device, StringAttribute, limits

PARTITION_TYPE: Final = "partitionType"
"""The attribute, in the driver's domain."""

_Consumption: TypeAlias = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """Consecutive devices whose slices declare their types, or do not."""

    declared: bool
    devices: tuple[Device, ...]


def partition_types(devices: Iterable[Device]) -> Mapping[str, str]:
    """Returns the type of each device that consumes counters, by the device's name.

    It is the name of the first device with the same consumption, such as `gpu-0` for all devices
    that use all of this GPU.
    """
    first: dict[_Consumption, str] = {}
    return {
        device.name: first.setdefault(_consumption(device), device.name)
        for device in devices
        if device.consumes_counters
    }


def typed_runs(devices: Sequence[Device], *, partitions: Collection[str]) -> Iterator[DeviceRun]:
    """Yields the devices with their types, in their order, split where a slice has to end.

    kube-controller-manager counts nothing in a pool that declares more than 32 types. Then the
    types of `partitions`, the names of the devices that use a part of a GPU, are not declared. If
    there are still too many, none is. A device that consumes nothing can be in either slice.
    """
    types = partition_types(devices)
    declared = _declared(types, partitions)

    def marked() -> Iterator[tuple[bool, Device]]:
        is_declared = True
        for device in devices:
            type_ = types.get(device.name)
            if type_ is None:
                yield is_declared, device
            else:
                is_declared = device.name in declared
                yield is_declared, _with_type(device, type_)

    for is_declared, run in groupby(marked(), key=itemgetter(0)):
        yield DeviceRun(is_declared, tuple(device for _, device in run))


def qualified_attribute(driver: str) -> str:
    """Returns the name of the attribute, as slices declare it."""
    return f"{driver}/{PARTITION_TYPE}"


def _declared(types: Mapping[str, str], partitions: Collection[str]) -> Collection[str]:
    """Returns the names of the devices whose types are declared."""
    without_partitions = {name: type_ for name, type_ in types.items() if name not in partitions}
    for candidates in (types, without_partitions):
        if len(set(candidates.values())) <= limits.PARTITION_TYPES_PER_POOL:
            return candidates.keys()
    return ()


def _with_type(device: Device, type_: str) -> Device:
    attributes = {**device.attributes, PARTITION_TYPE: StringAttribute(type_)}
    return replace(device, attributes=dict(sorted(attributes.items())))


def _consumption(device: Device) -> _Consumption:
    """Returns a key that is equal for devices that consume the same counters."""
    return tuple(
        sorted(
            (
                consumed.counter_set,
                tuple(sorted((name, used.value.nanos) for name, used in consumed.counters.items())),
            )
            for consumed in device.consumes_counters
        )
    )

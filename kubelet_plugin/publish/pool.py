"""The node's devices as a pool of ResourceSlices (KEP-4381, KEP-4815).

Every GPU is a *counter set* `gpu-<minor>` from which its devices consume, so that two devices which
exclude each other in the hardware are never allocated together. A GPU that supports MIG counts its
engines and memory slices; any other GPU has a single counter. Slices of counter sets come before
slices of devices.

Equal devices give equal pools. Attributes and capacities have the names that users of NVIDIA's DRA
driver already select on; a name without a domain belongs to the driver's domain.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Counter,
    CounterSet,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    IntAttribute,
    StringAttribute,
    TaintEffect,
    VersionAttribute,
    limits,
)
from carina_dra.resource import Device as PublishedDevice
from kubelet_plugin.devices.whole import Device, WholeGpu
from kubelet_plugin.inventory.gpu import Gpu, MigDisabled, MigEnabled, MigLayout, MigUnsupported
from kubelet_plugin.inventory.health import Health, Healthy, Lost, Unreadable

__all__ = ["CounterSlice", "DeviceSlice", "Pool", "SliceContent", "pool", "semantic_version"]

_STANDARD: Final = "resource.kubernetes.io"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CounterSlice:
    """A slice with counter sets; the API does not allow devices in it."""

    counter_sets: tuple[CounterSet, ...]


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """A slice with devices; it may be empty."""

    devices: tuple[PublishedDevice, ...]


SliceContent: TypeAlias = CounterSlice | DeviceSlice


@dataclass(frozen=True, slots=True)
class Pool:
    """What one driver publishes for one node. The pool is named after the node."""

    driver: str
    node: str
    slices: tuple[SliceContent, ...]
    """Empty if the node has no devices."""


def pool(devices: Sequence[Device], *, driver: str, node: str) -> Pool:
    """Gives the pool of a node's devices, in their order."""
    gpus = {device.gpu.minor: device.gpu for device in devices}
    counter_sets = [CounterSet(_counter_set(gpu), _counters(gpu)) for gpu in gpus.values()]
    published = [_published(device, driver) for device in devices]
    return Pool(
        driver,
        node,
        (
            *(CounterSlice(sets) for sets in _chunks(counter_sets, limits.COUNTER_SETS_PER_SLICE)),
            *(
                DeviceSlice(chunk)
                for chunk in _chunks(published, limits.DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES)
            ),
        ),
    )


def semantic_version(version: str) -> str | None:
    """Gives a driver version as semantic version 2.0.0; None if it does not begin with a number.

    "550.163.01" becomes 550.163.1, and "470.82" becomes 470.82.0. A fourth number is dropped.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?!\d)", version)
    return ".".join(str(int(part or 0)) for part in match.groups()) if match else None


def _published(device: Device, driver: str) -> PublishedDevice:
    match device:
        case WholeGpu(gpu, health):
            return PublishedDevice(
                name=device.name,
                attributes=_gpu_attributes(gpu),
                capacity=_memory(gpu),
                consumes_counters=(DeviceCounterConsumption(_counter_set(gpu), _counters(gpu)),),
                taints=_taints(health, driver),
            )
    assert_never(device)


def _gpu_attributes(gpu: Gpu) -> Mapping[str, DeviceAttribute]:
    text = {
        "type": "gpu",
        "uuid": gpu.uuid,
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "addressingMode": gpu.addressing_mode,
        "nvlinkDomain": gpu.nvlink.domain if gpu.nvlink else None,
        "nvlinkPeers": _peers(gpu),
        f"{_STANDARD}/pciBusID": gpu.pci_bus_id,
        f"{_STANDARD}/pcieRoot": gpu.pcie_root,
    }
    versions = {
        "cudaComputeCapability": _dotted(gpu.cuda_compute_capability),
        "driverVersion": semantic_version(gpu.driver_version or ""),
        "cudaDriverVersion": _dotted(gpu.cuda_driver_version),
    }
    attributes: dict[str, DeviceAttribute] = {
        **{name: StringAttribute(_cut(value)) for name, value in text.items() if value},
        **{name: VersionAttribute(value) for name, value in versions.items() if value},
    }
    if gpu.numa_node is not None:
        attributes[f"{_STANDARD}/numaNode"] = IntAttribute(gpu.numa_node)
    return dict(sorted(attributes.items()))


def _peers(gpu: Gpu) -> str | None:
    """Gives the minor numbers of the GPUs connected by NVLink, as "1,2,3".

    None if the list exceeds the API's 64 bytes, which takes more than 24 GPUs: a truncated list
    would be wrong.
    """
    peers = ",".join(str(minor) for minor in gpu.nvlink.peers) if gpu.nvlink else ""
    return peers if len(peers) <= limits.ATTRIBUTE_TEXT_BYTES else None


def _memory(gpu: Gpu) -> Mapping[str, DeviceCapacity]:
    if gpu.memory_bytes is None:
        return {}
    return {"memory": DeviceCapacity(Quantity.of(gpu.memory_bytes))}


def _taints(health: Health, driver: str) -> tuple[DeviceTaint, ...]:
    """Gives taints with the effect NoSchedule, so that running pods are not evicted.

    An operator can evict them with a DeviceTaintRule.
    """
    match health:
        case Healthy():
            return ()
        case Lost():
            return (DeviceTaint(key=f"{driver}/lost", effect=TaintEffect.NO_SCHEDULE),)
        case Unreadable():
            return (DeviceTaint(key=f"{driver}/unreadable", effect=TaintEffect.NO_SCHEDULE),)
    assert_never(health)


def _counter_set(gpu: Gpu) -> str:
    return f"gpu-{gpu.minor}"


def _counters(gpu: Gpu) -> Mapping[str, Counter]:
    """Gives everything that devices of the GPU can consume."""
    match gpu.mig:
        case MigDisabled(layout) | MigEnabled(layout) if layout.profiles:
            return _partition_counters(layout)
        case MigUnsupported() | MigDisabled() | MigEnabled():
            return {"gpu": _counter(1)}
    assert_never(gpu.mig)


def _partition_counters(layout: MigLayout) -> Mapping[str, Counter]:
    total = layout.total
    engines = {
        "multiprocessors": total.multiprocessors,
        "copy-engines": total.copy_engines,
        "decoders": total.decoders,
        "encoders": total.encoders,
        "jpeg-engines": total.jpeg_engines,
        "ofa-engines": total.ofa_engines,
    }
    slices = {f"memory-slice-{index}": 1 for index in range(layout.memory_slices)}
    return {name: _counter(number) for name, number in (engines | slices).items() if number}


def _counter(number: int) -> Counter:
    return Counter(Quantity.of(number))


def _dotted(version: tuple[int, int] | None) -> str | None:
    return f"{version[0]}.{version[1]}.0" if version else None


def _cut(text: str) -> str:
    return text.encode()[: limits.ATTRIBUTE_TEXT_BYTES].decode(errors="ignore")


def _chunks(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    items = tuple(items)
    for start in range(0, len(items), size):
        yield items[start : start + size]

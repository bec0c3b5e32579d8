"""Decides which GPUs to publish beside other drivers on the node. No I/O.

If two drivers offer the same GPU, two pods can get it, because neither driver knows of the other's
allocations. Four kinds of offers are recognized:

- A device plugin offers extended resources, which appear in the Node's `status.allocatable`. They
  do not identify the GPUs, so any GPU of the node may be meant. Extended resources that a
  DeviceClass maps to DRA (KEP-5004), such as Carina's own `nvidia.com/gpu`, do not appear there.
- Another DRA driver publishes a device with the UUID or the PCI address of a GPU.
- Another plugin uses the name of our driver. Its ResourceSlices look like ours.
- A device plugin that is gone offers nothing any longer, but its pods have GPUs until they end. The
  kubelet knows them by the IDs that the plugin gave: UUIDs of GPUs or of MIG devices, for NVIDIA's.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    DeviceAttribute,
    ResourceSliceSpec,
    StringAttribute,
    StringsAttribute,
)
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.inventory.gpu import Gpu

BesideOtherDrivers: TypeAlias = Literal["withhold", "publish"]
"""Whether a GPU that another driver offers is withheld or published nevertheless."""

_EXTENDED_RESOURCES: Final = (
    "nvidia.com/gpu",  # NVIDIA and GKE; also gpu.shared, names chosen for shares, HAMi's gpumem
    "nvidia.com/mig-",  # NVIDIA, with the mixed strategy
    "nvidia.com/vgpu",  # vgpu-manager
    "volcano.sh/gpu-",
    "volcano.sh/vgpu-",
    "aliyun.com/gpu-",
    "tencent.com/vcuda-",
)
"""Prefixes of the names under which device plugins offer NVIDIA GPUs. Other names in nvidia.com/
are not included: they also stand for network adapters, and for GPUs bound to VFIO, which NVML does
not list."""

_IDENTIFYING: Final = frozenset({"uuid", "parentUUID", "pciBusID"})
"""Attributes, in any domain, that identify a GPU. `parentUUID` is that of a MIG device's GPU."""

_PCI_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclass(frozen=True, slots=True)
class ExtendedResource:
    """An extended resource in the Node's `status.allocatable` that stands for GPUs."""

    name: str


@dataclass(frozen=True, slots=True)
class PublishedGpu:
    """A GPU in another driver's ResourceSlices."""

    driver: str
    identity: str
    """Its UUID or PCI address, normalized."""


@dataclass(frozen=True, slots=True)
class SameNamePlugin:
    """A plugin of another product under the name of our driver."""

    socket: str
    """The path of a socket in our plugin directory on which it listens."""
    checkpoint: str
    """The path of a checkpoint there that is not Carina's."""


@dataclass(frozen=True, slots=True)
class PodDevice:
    """A device that a pod has from a device plugin, by the kubelet's pod-resources API."""

    resource: str
    identity: str
    """The ID that the device plugin gave it."""
    pod: str
    """`namespace/name`."""


OfferedElsewhere: TypeAlias = ExtendedResource | PublishedGpu | SameNamePlugin | PodDevice


@dataclass(frozen=True, slots=True)
class DevicePlugin:
    """One or more device plugins that offer these extended resources."""

    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DraDriver:
    """Another DRA driver, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class PodsOfDevicePlugin:
    """Pods that still have GPUs from a device plugin that is gone."""

    pods: tuple[str, ...]


OtherDriver: TypeAlias = DevicePlugin | DraDriver | SameNamePlugin | PodsOfDevicePlugin


@dataclass(frozen=True, slots=True)
class Contested:
    """GPUs that another driver offers too, or may offer."""

    by: OtherDriver
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The devices to publish, and the GPUs that other drivers offer too."""

    devices: tuple[GpuDevice, ...]
    contested: tuple[Contested, ...]
    policy: BesideOtherDrivers

    @property
    def slices_are_ours(self) -> bool:
        """Whether slices of our driver on our node may be written and deleted."""
        same_name = any(isinstance(entry.by, SameNamePlugin) for entry in self.contested)
        return self.policy == "publish" or not same_name


def extended_resources(node: Mapping[str, Any]) -> frozenset[ExtendedResource]:
    """Returns the extended resources of GPUs that are above zero in a Node's `status.allocatable`.

    The kubelet sets a resource to zero when its device plugin stops.
    """
    allocatable: Mapping[str, str] = node.get("status", {}).get("allocatable", {})
    return frozenset(
        ExtendedResource(name)
        for name, quantity in allocatable.items()
        if name.startswith(_EXTENDED_RESOURCES) and Quantity.parse(quantity)
    )


def gpus_of_pods(devices: Iterable[PodDevice]) -> frozenset[PodDevice]:
    """Returns those that are GPUs or parts of them, by the names of their resources."""
    return frozenset(
        device for device in devices if device.resource.startswith(_EXTENDED_RESOURCES)
    )


def published_gpus(spec: ResourceSliceSpec) -> frozenset[PublishedGpu]:
    """Returns the UUIDs and PCI addresses of devices in a slice of another driver."""
    return frozenset(
        PublishedGpu(spec.driver, _identity(text))
        for device in spec.devices
        for name, attribute in device.attributes.items()
        if name.rpartition("/")[2] in _IDENTIFYING
        for text in _texts(attribute)
    )


def remembered(
    before: Mapping[OfferedElsewhere, float],
    seen: Iterable[OfferedElsewhere],
    *,
    now: float,
    seconds: float,
) -> Mapping[OfferedElsewhere, float]:
    """Returns the offers seen now or within the last `seconds`, with the time each was last seen.

    An offer can disappear for a while although its driver remains: the kubelet deletes all
    ResourceSlices of the node when it starts, and drivers restart.
    """
    recent = {offer: at for offer, at in before.items() if now - at < seconds}
    return recent | dict.fromkeys(seen, now)


def decide(
    devices: Sequence[GpuDevice], offers: Collection[OfferedElsewhere], policy: BesideOtherDrivers
) -> Decision:
    """Decides which of `devices` to publish, given what other drivers on the node offer."""
    gpus = tuple({device.gpu.uuid: device.gpu for device in devices}.values())
    contested = tuple(_contested(gpus, _uuids(devices), offers))
    match policy:
        case "publish":
            return Decision(tuple(devices), contested, policy)
        case "withhold":
            withheld = {gpu.uuid for entry in contested for gpu in entry.gpus}
            remaining = tuple(device for device in devices if device.gpu.uuid not in withheld)
            return Decision(remaining, contested, policy)
    assert_never(policy)


def _uuids(devices: Sequence[GpuDevice]) -> Mapping[str, str]:
    """Returns the UUID of the GPU by its own UUID, and by those of its MIG devices."""
    found = {device.gpu.uuid: device.gpu.uuid for device in devices}
    for device in devices:
        for instance in device.state.instances:
            for compute in instance.compute_instances:
                found[compute.uuid] = device.gpu.uuid
    return found


def _contested(
    gpus: tuple[Gpu, ...], uuids: Mapping[str, str], offers: Collection[OfferedElsewhere]
) -> Iterator[Contested]:
    resources: set[str] = set()
    identities: dict[str, set[str]] = {}
    plugins: list[SameNamePlugin] = []
    held: list[PodDevice] = []
    for offer in offers:
        match offer:
            case ExtendedResource(name):
                resources.add(name)
            case PublishedGpu(driver, identity):
                identities.setdefault(driver, set()).add(identity)
            case SameNamePlugin():
                plugins.append(offer)
            case PodDevice():
                held.append(offer)
            case _:
                assert_never(offer)
    yield from _by_device_plugins(gpus, uuids, resources, held)
    for driver in sorted(identities):
        theirs = identities[driver]
        if both := tuple(gpu for gpu in gpus if not theirs.isdisjoint(_identities(gpu))):
            yield Contested(DraDriver(driver), both)
    for plugin in sorted(plugins, key=lambda plugin: (plugin.socket, plugin.checkpoint)):
        yield Contested(plugin, gpus)


def _by_device_plugins(
    gpus: tuple[Gpu, ...],
    uuids: Mapping[str, str],
    resources: Collection[str],
    held: Collection[PodDevice],
) -> Iterator[Contested]:
    """Yields the GPUs that device plugins offer, or that pods have of those that are gone."""
    if resources and gpus:
        yield Contested(DevicePlugin(tuple(sorted(resources))), gpus)
        return
    # Replicas of a device have its ID with a number: GPU-...::2.
    found = {uuids.get(device.identity.partition("::")[0]) for device in held}
    # An ID that names no GPU may be that of any.
    theirs = tuple(gpu for gpu in gpus if gpu.uuid in found or None in found)
    if theirs:
        yield Contested(PodsOfDevicePlugin(tuple(sorted({device.pod for device in held}))), theirs)


def _identities(gpu: Gpu) -> tuple[str, str]:
    return _identity(gpu.uuid), _identity(gpu.pci_bus_id)


def _identity(text: str) -> str:
    """Normalizes a UUID or PCI address; NVML writes the PCI domain with eight digits."""
    lower = text.lower()
    if address := _PCI_ADDRESS.fullmatch(lower):
        return f"{int(address[1], 16):04x}:{address[2]}"
    return lower


def _texts(attribute: DeviceAttribute) -> tuple[str, ...]:
    match attribute:
        case StringAttribute(text):
            return (text,)
        case StringsAttribute(texts):
            return texts
        case _:
            return ()

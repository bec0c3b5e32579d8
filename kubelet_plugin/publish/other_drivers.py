"""Which of a node's GPUs another driver offers too, and what is published of them: no I/O.

A GPU that two drivers offer is given to two pods, since neither driver knows of the other's
allocations. Three kinds of offers can be seen:

- A device plugin offers extended resources, which the Node counts in `status.allocatable`. Which
  GPUs are behind them it does not say, so they may be any. Extended resources that a DeviceClass
  maps to DRA (KEP-5004), such as Carina's own `nvidia.com/gpu`, are not counted there.
- Another DRA driver publishes a device that has the UUID or the PCI address of a GPU.
- Another plugin uses the name of our driver. Its ResourceSlices cannot be told from ours.
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
from kubelet_plugin.devices.device import Device
from kubelet_plugin.inventory.gpu import Gpu

__all__ = [
    "BesideOtherDrivers",
    "Contested",
    "Decision",
    "DevicePlugin",
    "DraDriver",
    "ExtendedResource",
    "Offer",
    "OtherDriver",
    "PublishedGpu",
    "SameNamePlugin",
    "decide",
    "extended_resources",
    "published_gpus",
    "remembered",
]

BesideOtherDrivers: TypeAlias = Literal["withhold", "publish"]
"""What is done with a GPU that another driver offers: it is withheld, or published all the same."""

_EXTENDED_RESOURCES: Final = (
    "nvidia.com/gpu",  # NVIDIA and GKE; also gpu.shared, names chosen for shares, HAMi's gpumem
    "nvidia.com/mig-",  # NVIDIA, with the mixed strategy
    "nvidia.com/vgpu",  # vgpu-manager
    "volcano.sh/gpu-",
    "volcano.sh/vgpu-",
    "aliyun.com/gpu-",
    "tencent.com/vcuda-",
)
"""How names begin under which device plugins offer NVIDIA GPUs. The rest of nvidia.com/ is not
among them: network adapters are offered there, and GPUs that are bound to VFIO, not to NVML."""

_IDENTIFYING: Final = frozenset({"uuid", "parentUUID", "pciBusID"})
"""Attributes, in whatever domain, that name a GPU. A MIG device has the UUID of its parent."""

_PCI_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclass(frozen=True, slots=True)
class ExtendedResource:
    """An extended resource of GPUs that the node has."""

    name: str


@dataclass(frozen=True, slots=True)
class PublishedGpu:
    """A GPU in another driver's ResourceSlices."""

    driver: str
    identity: str
    """Its UUID or PCI address, as `_identity` writes it."""


@dataclass(frozen=True, slots=True)
class SameNamePlugin:
    """A plugin under the name of our driver that is not Carina's."""

    socket: str
    """A socket in our plugin directory on which it listens."""
    checkpoint: str
    """A checkpoint there in a format that is not Carina's."""


Offer: TypeAlias = ExtendedResource | PublishedGpu | SameNamePlugin


@dataclass(frozen=True, slots=True)
class DevicePlugin:
    """Whatever offers these extended resources."""

    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DraDriver:
    """Another DRA driver, by name."""

    name: str


OtherDriver: TypeAlias = DevicePlugin | DraDriver | SameNamePlugin


@dataclass(frozen=True, slots=True)
class Contested:
    """GPUs that another driver may offer too."""

    by: OtherDriver
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is published beside other drivers."""

    devices: tuple[Device, ...]
    contested: tuple[Contested, ...]
    policy: BesideOtherDrivers

    @property
    def slices_are_ours(self) -> bool:
        """Whether slices of our driver on our node may be written and deleted at all."""
        same_name = any(isinstance(each.by, SameNamePlugin) for each in self.contested)
        return self.policy == "publish" or not same_name


def extended_resources(node: Mapping[str, Any]) -> frozenset[ExtendedResource]:
    """Gives the extended resources of GPUs in a Node's `status.allocatable` that are above zero.

    The kubelet keeps a resource at zero after its device plugin has gone.
    """
    allocatable: Mapping[str, str] = node.get("status", {}).get("allocatable", {})
    return frozenset(
        ExtendedResource(name)
        for name, quantity in allocatable.items()
        if name.startswith(_EXTENDED_RESOURCES) and Quantity.parse(quantity)
    )


def published_gpus(spec: ResourceSliceSpec) -> frozenset[PublishedGpu]:
    """Gives what may be GPUs in a slice of another driver: whatever has a UUID or PCI address."""
    return frozenset(
        PublishedGpu(spec.driver, _identity(text))
        for device in spec.devices
        for name, attribute in device.attributes.items()
        if name.rpartition("/")[2] in _IDENTIFYING
        for text in _texts(attribute)
    )


def remembered(
    before: Mapping[Offer, float], seen: Iterable[Offer], *, now: float, seconds: float
) -> Mapping[Offer, float]:
    """Gives the offers seen now or in the last `seconds`, each with when it was seen last.

    An offer may be away for a moment while its driver stands: the kubelet deletes all
    ResourceSlices of the node when it starts, and drivers are restarted and updated.
    """
    recent = {offer: at for offer, at in before.items() if now - at < seconds}
    return recent | dict.fromkeys(seen, now)


def decide(
    devices: Sequence[Device], offers: Collection[Offer], policy: BesideOtherDrivers
) -> Decision:
    """Gives what to publish of `devices` beside those who make `offers` on the same node."""
    gpus = tuple({device.gpu.uuid: device.gpu for device in devices}.values())
    contested = tuple(_contested(gpus, offers))
    match policy:
        case "publish":
            return Decision(tuple(devices), contested, policy)
        case "withhold":
            withheld = {gpu.uuid for by_one in contested for gpu in by_one.gpus}
            remaining = tuple(device for device in devices if device.gpu.uuid not in withheld)
            return Decision(remaining, contested, policy)
    assert_never(policy)


def _contested(gpus: tuple[Gpu, ...], offers: Collection[Offer]) -> Iterator[Contested]:
    resources: set[str] = set()
    identities: dict[str, set[str]] = {}
    plugins: list[SameNamePlugin] = []
    for offer in offers:
        match offer:
            case ExtendedResource(name):
                resources.add(name)
            case PublishedGpu(driver, identity):
                identities.setdefault(driver, set()).add(identity)
            case SameNamePlugin():
                plugins.append(offer)
            case _:
                assert_never(offer)
    if resources and gpus:
        yield Contested(DevicePlugin(tuple(sorted(resources))), gpus)
    for driver in sorted(identities):
        theirs = identities[driver]
        if both := tuple(gpu for gpu in gpus if not theirs.isdisjoint(_identities(gpu))):
            yield Contested(DraDriver(driver), both)
    for plugin in sorted(plugins, key=lambda plugin: (plugin.socket, plugin.checkpoint)):
        yield Contested(plugin, gpus)


def _identities(gpu: Gpu) -> tuple[str, str]:
    return _identity(gpu.uuid), _identity(gpu.pci_bus_id)


def _identity(text: str) -> str:
    """A UUID or PCI address in one spelling: NVML writes the PCI domain with eight digits."""
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

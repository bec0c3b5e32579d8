"""docs/reference/devices.md: attributes and capacities of devices, from devices as published."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from carina_dra.resource import Device
from carina_dra.resource.attribute import DeviceAttribute, UnknownAttribute
from documentation import markdown
from documentation.markdown import code, paragraph, sentence, table
from documentation.reference.samples import (
    FAILURE,
    GPU,
    NEVER,
    PROBLEM_SAMPLES,
    PROFILE,
    STATE,
)
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.publish_settings import DEFAULT_EVICT, PublishSettings
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.taint import (
    compute_mode_taints,
    held_mode_taints,
    repair_taints,
    taints,
)
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.compute_mode import ComputeMode
from kubelet_plugin.inventory.held_mode import HeldMode, Switch

_DRIVER: Final = "DRIVER"
_SETTINGS: Final = PublishSettings(_DRIVER, host_memory_mib=1)
_PLACEMENT: Final = PROFILE.placements[0]
DEVICES: Final[tuple[GpuDevice, ...]] = (
    WholeGpu(GPU, STATE),
    Partition(GPU, STATE, PROFILE, _PLACEMENT),
    FoundPartition(GPU, STATE, PROFILE, _PLACEMENT, "MIG-UUID"),
    Share(GPU, STATE),
    Monitor(GPU, STATE),
)
"""A device of each type."""

_KINDS: Final = {
    DeviceKind.GPU: "a whole GPU",
    DeviceKind.MIG: "a MIG partition, for each profile at each placement",
    DeviceKind.SHARE: "a GPU of which any number of claims have shares",
    DeviceKind.MONITOR: "the sight of a GPU, for claims with admin access",
}
_ATTRIBUTES: Final = {
    "addressingMode": "how GPU and CPU share addresses: HMM, ATS or None",
    "architecture": "such as Ampere, Ada Lovelace, Hopper or Blackwell",
    "brand": "such as Nvidia or Tesla, in the words of NVIDIA's DRA driver",
    "coreEnforcement": "the strongest of what keeps containers within the cores of their share",
    "coreEnforcementMPS": "whether the CUDA MPS server can, for claims that demand it",
    "coreEnforcementTimeSlice": "whether the driver gives processes equal time slices",
    "cudaComputeCapability": "CUDA compute capability",
    "cudaDriverVersion": "newest CUDA version that the driver supports",
    "driverVersion": "version of the NVIDIA driver",
    "leastShare": "part of its GPU that the device counts at least in queues",
    "memoryEnforcement": "the strongest of what keeps containers within the memory of their share",
    "memoryEnforcementKernel": "whether the kernel driver does",
    "memoryEnforcementMPS": "whether the CUDA MPS server can, for claims that demand it",
    "memoryEnforcementWatchdog": "whether Carina ends processes that exceed it",
    "nvlinkDomain": "the same text for all GPUs that NVLink connects, and for no others",
    "nvlinkPeers": "minor numbers of the node's GPUs that NVLink reaches, such as 1,2,3",
    "parentUUID": "UUID of the GPU of a partition",
    "productName": "product name",
    "profile": "MIG profile, such as 1g.10gb",
    "resource.kubernetes.io/numaNode": "NUMA node of the GPU",
    "resource.kubernetes.io/pciBusID": "PCI address, such as 0000:19:00.0",
    "resource.kubernetes.io/pcieRoot": "PCIe root complex, such as pci0000:15",
    "type": "kind of the device",
    "uuid": "UUID of the GPU; of a partition that an administrator made, of its MIG device",
}
_CAPACITIES: Final = {
    "copyEngines": "copy engines",
    "cores": "percent of the GPU's cores",
    "decoders": "video decoders",
    "encoders": "video encoders",
    "jpegEngines": "JPEG engines",
    "memory": "memory in bytes",
    "memorySlice0": "1 for each memory slice that a partition has that an administrator made",
    "multiprocessors": "streaming multiprocessors",
    "ofaEngines": "optical flow accelerators",
}


def page() -> str:
    """The page, in Markdown."""
    return markdown.page(
        "Devices",
        "the devices of kubelet_plugin/devices",
        paragraph(
            "What ResourceSlices say of devices, for selectors of claims and DeviceClasses. A name "
            "without a domain is in the domain of the "
            'driver: `device.attributes["gpu.carina.dev"].profile`. Attributes that the driver '
            "does not report are left out. "
            "`shared` says what a request of a share may ask for."
        ),
        ["## Kinds", "", *table(("type", "name, such as", "device"), _kinds())],
        ["## Attributes", "", *table(("attribute", "type", "devices", "meaning"), _attributes())],
        [
            "## Capacities",
            "",
            *table(("capacity", "devices", "shared", "meaning"), _capacities()),
        ],
        ["## Taints", "", *table(("taint", "effect", "meaning"), _taints())],
    )


def _kinds() -> Iterator[tuple[str, str, str]]:
    for kind in DeviceKind:
        name = next(device.name for device in DEVICES if device.kind is kind)
        yield code(kind), code(name), sentence(_KINDS[kind])


def _attributes() -> Iterator[tuple[str, str, str, str]]:
    published = [(device.kind, device.published(_SETTINGS)) for device in DEVICES]
    types: dict[str, str] = {}
    kinds: dict[str, dict[str, None]] = defaultdict(dict)
    for kind, device in published:
        for name, attribute in device.attributes.items():
            types[name] = _type(attribute)
            kinds[name][kind] = None
    for name in _described(types, _ATTRIBUTES):
        yield code(name), types[name], _words(kinds[name]), sentence(_ATTRIBUTES[name])


def _type(attribute: DeviceAttribute) -> str:
    if isinstance(attribute, UnknownAttribute):
        raise TypeError("a published attribute has no type that the API knows")
    return attribute.json_key


def _capacities() -> Iterator[tuple[str, str, str, str]]:
    kinds: dict[str, dict[str, None]] = defaultdict(dict)
    shared: dict[str, str] = {}
    for sample in DEVICES:
        device = sample.published(_SETTINGS)
        for name in device.capacity:
            kinds[name][sample.kind] = None
            if device.allow_multiple_allocations:
                shared[name] = _policy(device, name)
    for name in _described(kinds, _CAPACITIES):
        row = _words(kinds[name]), shared.get(name, ""), sentence(_CAPACITIES[name])
        yield code(name), *row


def _policy(device: Device, name: str) -> str:
    """What a request of a share may have of a capacity."""
    policy = device.capacity[name].request_policy
    valid = None if policy is None else policy.valid
    steps = getattr(valid, "range", None) or getattr(valid, "value", None)
    return f"steps of {steps.step}, from the least share" if steps is not None else ""


def _taints() -> Iterator[tuple[str, str, str]]:
    for problem in PROBLEM_SAMPLES:
        (taint,) = taints(frozenset({problem}), _DRIVER, DEFAULT_EVICT)
        yield code(taint.key), str(taint.effect), f"{problem.__doc__} {sentence(problem.remedy)}"
    (taint,) = compute_mode_taints(ComputeMode.PROHIBITED, tuple(ComputeMode), _DRIVER)
    meaning = "The compute mode of the GPU lets fewer processes compute than the device needs."
    yield code(taint.key), str(taint.effect), meaning
    (taint,) = held_mode_taints(HeldMode(Switch.ON, FAILURE, NEVER), Switch.ON, _DRIVER)
    yield code(taint.key), str(taint.effect), str(HeldMode.__doc__)
    (taint,) = repair_taints("DiskFull", _DRIVER)
    meaning = (
        "What a prepared claim needs could not be restored, so that a further claim could not be "
        "prepared. The value is the reason of [claim-failures.md](../claim-failures.md)."
    )
    yield code(taint.key), str(taint.effect), meaning


def _described(found: Iterable[str], meanings: Mapping[str, str]) -> list[str]:
    """The names that are found, sorted.

    Raises:
        ValueError: one has no meaning here, or a meaning is of nothing that is found.
    """
    if wrong := set(found) ^ meanings.keys():
        raise ValueError(f"documentation/reference/devices.py and devices differ: {sorted(wrong)}")
    return sorted(found)


def _words(names: Iterable[str]) -> str:
    return ", ".join(names)

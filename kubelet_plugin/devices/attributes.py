"""The attributes and capacities that devices inherit from their GPU.

Attributes and capacities have the names that users of NVIDIA's DRA driver already select on. A name
without a domain belongs to the driver's domain. Values longer than the API allows are cut.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from carina_dra.least_share import LEAST_SHARE
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    DeviceAttribute,
    DeviceCapacity,
    IntAttribute,
    StringAttribute,
    VersionAttribute,
    limits,
)
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.inventory.gpu import Gpu, GpuState, NvLink
from kubelet_plugin.inventory.mig import MigProfile

_STANDARD: Final = "resource.kubernetes.io"


def gpu_attributes(
    kind: DeviceKind, gpu: Gpu, state: GpuState, least: Fraction | None
) -> Mapping[str, DeviceAttribute]:
    """Returns the attributes of a GPU, sorted by name; `kind` is the device's `type`.

    least: the least share; None for devices that do not count.
    """
    own = {
        "uuid": gpu.uuid,
        LEAST_SHARE: None if least is None else str(least),
        "nvlinkDomain": state.nvlink.domain if state.nvlink else None,
        "nvlinkPeers": _peers(state.nvlink),
    }
    return _attributes(kind, gpu, own)


def partition_attributes(
    kind: DeviceKind, gpu: Gpu, profile: MigProfile, uuid: str | None, least: Fraction
) -> Mapping[str, DeviceAttribute]:
    """Returns the attributes of a partition, sorted by name; `least` is the least share.

    `uuid` is that of the MIG device, if it exists. A partition has no NVLink attributes, because
    partitions do not reach other GPUs over NVLink.
    """
    own = {
        "uuid": uuid,
        "parentUUID": gpu.uuid,
        "profile": profile.name,
        LEAST_SHARE: str(least),
    }
    return _attributes(kind, gpu, own)


def _attributes(
    kind: DeviceKind, gpu: Gpu, own: Mapping[str, str | None]
) -> Mapping[str, DeviceAttribute]:
    """Returns the attributes that a device has of its GPU, and its own."""
    text = {
        **own,
        "type": str(kind),
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "addressingMode": gpu.addressing_mode,
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


def _peers(nvlink: NvLink | None) -> str | None:
    """Returns the minor numbers of the GPUs connected by NVLink, as "1,2,3".

    None if the list exceeds the API's 64 bytes, which takes more than 24 GPUs: a truncated list
    would be wrong.
    """
    peers = ",".join(str(minor) for minor in nvlink.peers) if nvlink else ""
    return peers if len(peers) <= limits.ATTRIBUTE_TEXT_BYTES else None


def gpu_memory(gpu: Gpu) -> Mapping[str, DeviceCapacity]:
    """Returns the capacity `memory` in bytes; none if the GPU has no memory of its own."""
    if gpu.memory_bytes is None:
        return {}
    return {"memory": DeviceCapacity(Quantity.of(gpu.memory_bytes))}


def partition_capacity(profile: MigProfile) -> Mapping[str, DeviceCapacity]:
    """Returns the memory of a partition, in bytes, and the numbers of its engines."""
    resources = profile.resources
    amounts = {
        "memory": resources.memory_mib * 2**20,
        "multiprocessors": resources.multiprocessors,
        "copyEngines": resources.copy_engines,
        "decoders": resources.decoders,
        "encoders": resources.encoders,
        "jpegEngines": resources.jpeg_engines,
        "ofaEngines": resources.ofa_engines,
    }
    return {name: DeviceCapacity(Quantity.of(amount)) for name, amount in amounts.items()}


def semantic_version(version: str) -> str | None:
    """Returns a driver version as semantic version 2.0.0; None if it does not begin with a number.

    "550.163.01" becomes 550.163.1, and "470.82" becomes 470.82.0. A fourth number is dropped.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?!\d)", version)
    return ".".join(str(int(part or 0)) for part in match.groups()) if match else None


def _dotted(version: tuple[int, int] | None) -> str | None:
    return f"{version[0]}.{version[1]}.0" if version else None


def _cut(text: str) -> str:
    return text.encode()[: limits.ATTRIBUTE_TEXT_BYTES].decode(errors="ignore")

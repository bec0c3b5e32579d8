"""C functions about connections between GPUs: NVLink, fabric, PCIe topology."""

import ctypes
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, assert_never
from uuid import UUID

import pynvml

from simulation.nvml.c_arguments import fill, number, pointer, put, target
from simulation.nvml.device_functions import pci_fields
from simulation.nvml.hardware import Bridged, Hardware, Switched, Unlinked
from simulation.nvml.library import Attached, Session, answer, function

_NO_ADDRESS = "0000:00:00.0"
_FABRIC_COMPLETED = 3


@dataclass(frozen=True, slots=True)
class _Link:
    """An NVLink of a GPU: its remote end, and whether it is up."""

    remote: str
    remote_type: int
    active: bool


def _links(nvml: Session, gpu: Attached) -> list[_Link]:
    """The GPU's links in order. A link to a GPU that is not attached is down."""
    match nvml.hardware.nvlink:
        case Switched(links=count, switches=switches):
            ends = switches or (_NO_ADDRESS,)
            remote_type = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            return [
                _Link(ends[link * len(ends) // count], remote_type, active=True)
                for link in range(count)
            ]
        case Bridged(links_per_peer=count, groups=groups):
            remote_type = pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
            return [
                _Link(
                    nvml.hardware.slot(peer).pci,
                    remote_type,
                    active=nvml.state.gpus[peer].presence == "attached",
                )
                for group in groups
                if gpu.slot.minor in group
                for peer in group
                if peer != gpu.slot.minor
                for _ in range(count)
            ]
        case Unlinked():
            return []
        case other:
            assert_never(other)


def _link(nvml: Session, device: Any, link: Any) -> _Link:
    links = _links(nvml, nvml.whole_device(device))
    if not links:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if not 0 <= number(link) < len(links):
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return links[number(link)]


@function
def nvmlDeviceGetNvLinkState(nvml: Session, device: Any, link: Any, active: Any) -> None:
    put(active, int(_link(nvml, device, link).active))


@function
def nvmlDeviceGetNvLinkVersion(nvml: Session, device: Any, link: Any, version: Any) -> None:
    _link(nvml, device, link)
    put(version, nvml.device(device).model.nvlink_version)


@function
def nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml: Session, device: Any, link: Any, info: Any) -> None:
    fill(info, **pci_fields(_link(nvml, device, link).remote))


@function
def nvmlDeviceGetNvLinkRemoteDeviceType(nvml: Session, device: Any, link: Any, type_: Any) -> None:
    put(type_, _link(nvml, device, link).remote_type)


@function
def nvmlDeviceGetGpuFabricInfo(nvml: Session, device: Any, info: Any) -> None:
    health = nvml.whole_device(device).state.health
    fabric = nvml.hardware.fabric
    if fabric is None and health.fabric_state is None:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if fabric is not None:
        cluster = UUID(fabric.cluster).bytes
        ctypes.memmove(target(info).clusterUuid, cluster, len(cluster))
        fill(info, cliqueId=fabric.clique)
    state = _FABRIC_COMPLETED if health.fabric_state is None else health.fabric_state
    fill(info, status=health.fabric_status, state=state)


@function
def nvmlDeviceGetGpuFabricInfoV(nvml: Session, device: Any, info: Any) -> None:
    if target(info).version not in (pynvml.nvmlGpuFabricInfo_v2, pynvml.nvmlGpuFabricInfo_v3):
        answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    nvmlDeviceGetGpuFabricInfo(nvml, device, info)
    fill(info, healthMask=nvml.whole_device(device).state.health.fabric_health_mask)


@function
def nvmlDeviceGetTopologyCommonAncestor(nvml: Session, device: Any, other: Any, level: Any) -> None:
    one, two = nvml.whole_device(device).slot.minor, nvml.whole_device(other).slot.minor
    put(level, _common_ancestor(nvml.hardware, one, two))


@function
def nvmlDeviceGetTopologyNearestGpus(
    nvml: Session, device: Any, level: Any, count: Any, devices: Any
) -> None:
    own = nvml.whole_device(device).slot.minor
    near = [
        minor
        for minor in nvml.minors
        if minor != own and _common_ancestor(nvml.hardware, own, minor) == number(level)
    ]
    put(count, len(near))
    if devices is not None:
        for index, minor in enumerate(near):
            devices[index] = pointer(pynvml.c_nvmlDevice_t, nvml.handle("device", minor))


def _common_ancestor(hardware: Hardware, one: int, two: int) -> int:
    """The distance of two GPUs on PCIe: one of NVML_TOPOLOGY_*."""
    if one == two:
        return int(pynvml.NVML_TOPOLOGY_INTERNAL)
    a, b = hardware.slot(one), hardware.slot(two)
    if a.numa_node != b.numa_node:
        return int(pynvml.NVML_TOPOLOGY_SYSTEM)
    paths = zip(a.path.split("/"), b.path.split("/"), strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], paths)))
    match shared:
        case 0:
            return int(pynvml.NVML_TOPOLOGY_NODE)
        case 1:
            return int(pynvml.NVML_TOPOLOGY_HOSTBRIDGE)
        case _ if shared == len(a.path.split("/")) == len(b.path.split("/")):
            return int(pynvml.NVML_TOPOLOGY_SINGLE)
        case _:
            return int(pynvml.NVML_TOPOLOGY_MULTIPLE)

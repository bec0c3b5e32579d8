"""Reads the NVLinks of a GPU."""

import ctypes
from uuid import UUID

import pynvml

from carina_dra.nvidia.nvml_library import NO_SUCH, NvmlCallError, call, optional_call
from kubelet_plugin.inventory.nvlink import Links
from kubelet_plugin.inventory.signals import Fabric
from kubelet_plugin.nvml.names import pci_address

_UNSEEN_SWITCH = "unseen"
_TRUE = 1
"""Of a part of the health mask. 0 is not supported, and configurations above 1 are errors."""


def read_links(handle: object) -> Links:
    """Returns the active links of a GPU, without its fabric: about 70 calls of NVML.

    Raises:
        NvmlCallError: a call failed.
    """
    gpus: set[str] = set()
    switches: set[str] = set()
    unidentified: set[str] = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            active = call(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        except NvmlCallError as error:
            if error.failure.code not in NO_SUCH:
                raise
            continue
        if not active:
            continue
        remote = optional_call(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        if remote is None:
            switches.add(_UNSEEN_SWITCH)
            continue
        match optional_call(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link):
            case pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                gpus.add(pci_address(remote))
            case pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switches.add(pci_address(remote))
            case pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
                pass  # a link to the CPU does not connect GPUs
            case _:
                unidentified.add(pci_address(remote))
    return Links(
        gpus=frozenset(gpus), switches=frozenset(switches), unidentified=frozenset(unidentified)
    )


def read_fabric(handle: object) -> tuple[str | None, Fabric]:
    """Returns the fabric that a fabric manager has added the GPU to, and how the GPU is in it.

    The name is as `Links.fabric` has it.

    Raises:
        NvmlCallError: the call failed.
    """
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if optional_call(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        return None, Fabric.ABSENT
    match info.state:
        case pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
            return None, Fabric.ABSENT
        case pynvml.NVML_GPU_FABRIC_STATE_COMPLETED if info.status == pynvml.NVML_SUCCESS:
            pass
        case pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
            return None, Fabric.REFUSED
        case _:
            return None, Fabric.JOINING
    health = fabric_health(info.healthMask)
    cluster = UUID(bytes=bytes(info.clusterUuid))
    # A single HGX board joins its fabric with a cluster UUID of zeros, which identifies nothing.
    return (f"{cluster}.{info.cliqueId}" if cluster.int else None), health


def fabric_health(mask: int) -> Fabric:
    """Returns what a health mask says (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*): the worst of it."""

    def part(name: str) -> int:
        shift: int = getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_{name}")
        width: int = getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_{name}")
        return mask >> shift & width  # the width is a mask of its bits

    unhealthy = part("ROUTE_UNHEALTHY") == _TRUE or part("INCORRECT_CONFIGURATION") > _TRUE
    limited = any(
        part(name) == _TRUE for name in ("DEGRADED_BW", "ROUTE_RECOVERY", "ACCESS_TIMEOUT_RECOVERY")
    )
    if unhealthy:
        return Fabric.UNHEALTHY
    return Fabric.LIMITED if limited else Fabric.HEALTHY

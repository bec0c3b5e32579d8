"""Reads the NVLinks of a GPU."""

import ctypes
from uuid import UUID

import pynvml

from kubelet_plugin.inventory.nvlink import Links
from kubelet_plugin.nvml.library import NO_SUCH, NvmlCallError, call, optional_call
from kubelet_plugin.nvml.names import pci_address

_UNSEEN_SWITCH = "unseen"
_FABRIC_JOINED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED


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


def read_fabric(handle: object) -> str | None:
    """Returns the fabric that a fabric manager has added the GPU to, as `Links.fabric` has it.

    Raises:
        NvmlCallError: the call failed.
    """
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if optional_call(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        return None
    cluster = UUID(bytes=bytes(info.clusterUuid))
    # A single HGX board joins its fabric with a cluster UUID of zeros, which identifies nothing.
    if info.state != _FABRIC_JOINED or info.status != pynvml.NVML_SUCCESS or not cluster.int:
        return None
    return f"{cluster}.{info.cliqueId}"

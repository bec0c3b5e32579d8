"""Names of NVML's constants. No I/O.

Architectures and brands are spelled as NVIDIA's DRA driver publishes them, so that selectors
written for that driver match.
"""

from collections.abc import Mapping
from typing import Any

from kubelet_plugin.inventory.compute_mode import ComputeMode

ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
BRANDS: Mapping[int, str] = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
COMPUTE_MODES: Mapping[int, ComputeMode] = {
    0: ComputeMode.DEFAULT,
    1: ComputeMode.EXCLUSIVE_PROCESS,  # EXCLUSIVE_THREAD, which drivers treat alike since CUDA 8
    2: ComputeMode.PROHIBITED,
    3: ComputeMode.EXCLUSIVE_PROCESS,
}
ADDRESSING_MODES: Mapping[int, str] = {0: "None", 1: "HMM", 2: "ATS"}

_EXTENSIONS: Mapping[int, str] = {
    0x7: "+me",
    0xA: "+gfx",
    0xB: "+gfx",
    0xC: "+gfx",
    0xD: "-me",
    0xE: "-me",
    0xF: "+me.all",
    0x10: "+me.all",
    0x11: "+gfx",
}


def mig_profile_name(index: int, slices: int, memory_mib: int, gpu_bytes: int) -> str:
    """Returns the name of a MIG profile ("1g.10gb+me"), because old drivers do not report it.

    `index` is NVML_GPU_INSTANCE_PROFILE_*. Memory is rounded to eighths of the GPU's memory, as
    `nvidia-smi` does: 9.5 GiB of 80 GiB are "10gb".
    """
    gib = -(-gpu_bytes // 2**30)
    eighths = -(-memory_mib * 2**20 * 8 // gpu_bytes) if gpu_bytes else 0
    rounded = (gib * eighths + 4) // 8  # halves up
    return f"{slices}g.{rounded}gb{_EXTENSIONS.get(index, '')}"


def pci_address(info: Any) -> str:
    """Returns an NVML PCI address in the kernel's notation; NVML reports function 0 only."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"

"""Reads through NVML which MIG instances a GPU can have."""

import ctypes
from typing import Any

import pynvml

from carina_dra.nvidia.nvml_library import NO_SUCH, NvmlCallError, call, optional_call
from kubelet_plugin.inventory.mig import MigLayout, MigPlacement, MigProfile, MigResources
from kubelet_plugin.nvml.names import mig_profile_name


def read_layout(handle: object) -> MigLayout:
    """Reads the profiles and placements of a GPU with MIG, whether its MIG mode is on or off.

    Raises:
        NvmlCallError: the GPU does not respond.
    """
    profiles = []
    for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _profile_info(handle, index)
        if info is not None:
            profiles.append(_profile(handle, index, info))
    return MigLayout(profiles=tuple(sorted(profiles, key=lambda profile: profile.id)))


def _profile(handle: object, index: int, info: Any) -> MigProfile:
    if hasattr(info, "name"):
        name = str(info.name).removeprefix("MIG ")
    else:
        memory = optional_call(pynvml.nvmlDeviceGetMemoryInfo, handle)
        total = memory.total if memory is not None else 0
        name = mig_profile_name(index, info.sliceCount, info.memorySizeMB, total)
    return MigProfile(
        name=name,
        id=info.id,
        index=index,
        slices=info.sliceCount,
        max_instances=info.instanceCount,
        resources=MigResources(
            multiprocessors=info.multiprocessorCount,
            copy_engines=info.copyEngineCount,
            decoders=info.decoderCount,
            encoders=info.encoderCount,
            jpeg_engines=info.jpegCount,
            ofa_engines=info.ofaCount,
            memory_mib=info.memorySizeMB,
        ),
        placements=_placements(handle, info.id),
    )


def _placements(handle: object, profile_id: int) -> tuple[MigPlacement, ...]:
    function = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    count = ctypes.c_uint()
    if optional_call(function, handle, profile_id, None, ctypes.byref(count)) is None:
        return ()
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    call(function, handle, profile_id, placements, ctypes.byref(count))
    return tuple(sorted(MigPlacement(placement.start, placement.size) for placement in placements))


def _profile_info(handle: object, index: int) -> Any:
    """Returns a GPU instance profile in the newest version that the driver supports, or None."""
    for version in (2, 1):
        try:
            return call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, index, version)
        except NvmlCallError as error:
            if error.failure.code == "NVML_ERROR_FUNCTION_NOT_FOUND":
                continue
            if error.failure.code in NO_SUCH:
                return None
            raise
    return None

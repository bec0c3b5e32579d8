"""GPU instances and MIG mode through NVML: reads, creates and destroys.

The functions take the handle of a GPU, and are called within a lease of the library.
"""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pynvml

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import NO_SUCH, NvmlCallError, call, code_name
from kubelet_plugin.inventory.mig import (
    ComputeInstance,
    GpuInstance,
    MigLayout,
    MigPlacement,
    MigProfile,
    MigSite,
)

FINDING: Final = "nvmlDeviceGetHandleByPciBusId"
"""The function whose NVML_ERROR_NOT_FOUND means that a GPU is not there, and not an instance."""
_GONE: Final = NO_SUCH | {"NVML_ERROR_NOT_FOUND"}
"""Errors for an instance that was destroyed since it was listed, and for a GPU out of MIG mode."""
_MOST_INSTANCES: Final = 16
"""More than any GPU has of one profile."""
_MIG_DEVICE: Final = "MIG-"
_SHARED = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED


def handle_of(uuid: str, pci_bus_id: str) -> object:
    """Returns NVML's handle of a GPU. By its address, since finding it by UUID may take seconds.

    Raises:
        NvmlCallError: the GPU does not respond, or another one is at its address.
    """
    handle = call(pynvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id)
    if call(pynvml.nvmlDeviceGetUUID, handle) != uuid:
        raise NvmlCallError(NvmlFailure(FINDING, "NVML_ERROR_NOT_FOUND"))
    return handle


def is_mig_mode_on(handle: object) -> bool:
    """Returns whether the GPU is in MIG mode now.

    Raises:
        NvmlCallError: the GPU does not respond.
    """
    current, _ = call(pynvml.nvmlDeviceGetMigMode, handle)
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def switch_mig_mode(handle: object, *, on: bool) -> None:
    """Switches MIG mode.

    Raises:
        NvmlCallError: the mode cannot be changed, or only with a reset of the GPU, in which case
            it is not changed at the next reset either.
    """
    mode = pynvml.NVML_DEVICE_MIG_ENABLE if on else pynvml.NVML_DEVICE_MIG_DISABLE
    status = call(pynvml.nvmlDeviceSetMigMode, handle, mode)
    if is_mig_mode_on(handle) != on:
        before = pynvml.NVML_DEVICE_MIG_DISABLE if on else pynvml.NVML_DEVICE_MIG_ENABLE
        call(pynvml.nvmlDeviceSetMigMode, handle, before)
        raise NvmlCallError(NvmlFailure("nvmlDeviceSetMigMode", code_name(status)))


def read_instances(handle: object, layout: MigLayout) -> tuple[GpuInstance, ...]:
    """Returns the GPU instances of a GPU, sorted by ID; none if it is not in MIG mode.

    Instances that are created or destroyed meanwhile may be missing.

    Raises:
        NvmlCallError: the GPU does not respond.
    """
    gpu = _OfGpu(handle)
    found = (
        instance
        for profile in layout.profiles
        for instance in _read_instances(handle, profile.id, gpu)
    )
    return tuple(sorted(found, key=lambda instance: instance.id))


def find_instance(handle: object, site: MigSite) -> GpuInstance | None:
    """Returns the GPU instance of this profile at this placement; None if there is none.

    The GPU is in MIG mode. No error counts as "there is none": an instance would be made twice.

    Raises:
        NvmlCallError: the GPU does not respond, or an instance was destroyed meanwhile.
    """
    for instance in _list_instances(handle, site.profile_id):
        info = call(pynvml.nvmlGpuInstanceGetInfo, instance)
        if _placement(info) == site.placement:
            return _read_instance(instance, site.profile_id, _OfGpu(handle))
    return None


def create_gpu_instance(handle: object, site: MigSite) -> None:
    """Creates a GPU instance, without a compute instance.

    Raises:
        NvmlCallError: NVML refuses it.
    """
    placement = pynvml.c_nvmlGpuInstancePlacement_t(site.placement.start, site.placement.size)
    call(
        pynvml.nvmlDeviceCreateGpuInstanceWithPlacement,
        handle,
        site.profile_id,
        ctypes.byref(placement),
    )


def create_compute_instance(handle: object, instance_id: int, profile: MigProfile) -> None:
    """Creates the compute instance that has all compute slices of a GPU instance.

    Raises:
        NvmlCallError: NVML refuses it, or has no such profile.
    """
    instance = call(pynvml.nvmlDeviceGetGpuInstanceById, handle, instance_id)
    for info in _compute_profiles(instance):
        if info.sliceCount == profile.slices:
            call(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, info.id)
            return
    raise NvmlCallError(
        NvmlFailure("nvmlGpuInstanceGetComputeInstanceProfileInfo", "NVML_ERROR_NOT_FOUND")
    )


def destroy_instance(handle: object, site: MigSite) -> None:
    """Destroys the GPU instance at this site with its compute instances, if it exists.

    No error counts as "there is none": an instance that is left would not be found again.

    Raises:
        NvmlCallError: NVML refuses it, such as while a process uses it, or does not list it.
    """
    if not is_mig_mode_on(handle):
        return
    for instance in _list_instances(handle, site.profile_id):
        info = call(pynvml.nvmlGpuInstanceGetInfo, instance)
        if _placement(info) == site.placement:
            for compute_profile in _compute_profiles(instance):
                for compute in _compute_instances(instance, compute_profile):
                    call(pynvml.nvmlComputeInstanceDestroy, compute)
            call(pynvml.nvmlGpuInstanceDestroy, instance)


class _OfGpu:
    """What is read once for all MIG instances of a GPU: within a call of this module.

    The info of a compute instance has a handle. Drivers give that of its MIG device, as NVIDIA's
    DRA driver up to 0.4 expects, or that of the GPU, as nvml.h says. With the latter, all MIG
    devices are listed once, which takes seconds on a GPU that is busy.
    """

    def __init__(self, gpu: object) -> None:
        self._gpu = gpu
        self._listed: Mapping[tuple[int, int], str] | None = None
        self._profiles: dict[int, tuple[Any, ...]] = {}

    def compute_profiles(self, instance: Any, profile_id: int) -> tuple[Any, ...]:
        """Returns the compute instance profiles of GPU instances of this profile."""
        if profile_id not in self._profiles:
            self._profiles[profile_id] = tuple(_compute_profiles(instance))
        return self._profiles[profile_id]

    def uuid(self, instance_id: int, compute_info: Any) -> str | None:
        """Returns the UUID of a compute instance's MIG device; None if it is gone."""
        if self._listed is None:
            try:
                uuid = str(call(pynvml.nvmlDeviceGetUUID, compute_info.device))
            except NvmlCallError:
                uuid = ""  # a handle that is neither; what is wrong with the GPU, the list says
            if uuid.startswith(_MIG_DEVICE):
                return uuid
            self._listed = _mig_devices(self._gpu)
        return self._listed.get((instance_id, compute_info.id))


def _mig_devices(handle: object) -> dict[tuple[int, int], str]:
    """Returns the UUIDs of the MIG devices by the IDs of GPU instance and compute instance."""
    devices = {}
    for index in range(call(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)):
        try:
            device = call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            ids = (
                call(pynvml.nvmlDeviceGetGpuInstanceId, device),
                call(pynvml.nvmlDeviceGetComputeInstanceId, device),
            )
            devices[ids] = str(call(pynvml.nvmlDeviceGetUUID, device))
        except NvmlCallError as error:
            if error.failure.code not in _GONE:
                raise
    return devices


def _read_instances(handle: object, profile_id: int, gpu: _OfGpu) -> Iterator[GpuInstance]:
    try:
        instances = _list_instances(handle, profile_id)
    except NvmlCallError as error:
        if error.failure.code not in _GONE:
            raise
        return
    for instance in instances:
        try:
            yield _read_instance(instance, profile_id, gpu)
        except NvmlCallError as error:
            if error.failure.code not in _GONE:
                raise


def _list_instances(handle: object, profile_id: int) -> list[Any]:
    array = (pynvml.c_nvmlGpuInstance_t * _MOST_INSTANCES)()
    count = ctypes.c_uint(_MOST_INSTANCES)
    call(pynvml.nvmlDeviceGetGpuInstances, handle, profile_id, array, ctypes.byref(count))
    return list(array[: count.value])


def _placement(info: Any) -> MigPlacement:
    return MigPlacement(info.placement.start, info.placement.size)


def _read_instance(instance: Any, profile_id: int, gpu: _OfGpu) -> GpuInstance:
    info = call(pynvml.nvmlGpuInstanceGetInfo, instance)
    computes = []
    for compute_profile in gpu.compute_profiles(instance, profile_id):
        for compute in _compute_instances(instance, compute_profile):
            found = call(pynvml.nvmlComputeInstanceGetInfo_v2, compute)
            uuid = gpu.uuid(info.id, found)
            if uuid is not None:
                computes.append(ComputeInstance(found.id, compute_profile.sliceCount, uuid))
    return GpuInstance(
        id=info.id,
        site=MigSite(profile_id, _placement(info)),
        compute_instances=tuple(sorted(computes, key=lambda compute: compute.id)),
    )


def _compute_profiles(instance: Any) -> Iterator[Any]:
    """Returns the compute instance profiles that the GPU instance has."""
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        for version in (2, 1):
            try:
                yield call(
                    pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo,
                    instance,
                    index,
                    _SHARED,
                    version,
                )
            except NvmlCallError as error:
                if error.failure.code == "NVML_ERROR_FUNCTION_NOT_FOUND":
                    continue
                if error.failure.code not in NO_SUCH:
                    raise
            break


def _compute_instances(instance: Any, profile: Any) -> list[Any]:
    array = (pynvml.c_nvmlComputeInstance_t * max(1, profile.instanceCount))()
    count = ctypes.c_uint(len(array))
    call(
        pynvml.nvmlGpuInstanceGetComputeInstances,
        instance,
        profile.id,
        array,
        ctypes.byref(count),
    )
    return list(array[: count.value])

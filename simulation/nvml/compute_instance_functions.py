"""C functions about compute instances, and the MIG devices as which CUDA sees them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml

from simulation.nvml import mig
from simulation.nvml.c_arguments import Handle, fill, number, pointer, put, put_handle, target
from simulation.nvml.library import Session, answer, function
from simulation.nvml.mig_functions import (
    MOST_DEVICES,
    list_placements,
    partitioned,
    profile_of,
    repartition,
)
from simulation.nvml.state import ComputeInstance, GpuInstance, GpuState

_SHARED_ENGINES = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED


# --- compute instances ---


@function
def nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvml: Session, instance: Any, profile: Any, engines: Any, info: Any
) -> None:
    if number(engines) != _SHARED_ENGINES:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    handle = nvml.resolve(instance, "gpu instance")
    found = _compute_profile(nvml, handle, profile)
    parent = profile_of(nvml, handle)
    fill(
        info,
        id=found.index,
        sliceCount=found.slices,
        instanceCount=found.instances,
        multiprocessorCount=found.multiprocessors,
        sharedCopyEngineCount=parent.copy_engines,
        sharedDecoderCount=parent.decoders,
        sharedEncoderCount=parent.encoders,
        sharedJpegCount=parent.jpeg_engines,
        sharedOfaCount=parent.ofa_engines,
    )


@function
def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvml: Session, instance: Any, profile: Any, engines: Any, info: Any
) -> None:
    if target(info).version != pynvml.nvmlComputeInstanceProfileInfo_v2:
        answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    nvmlGpuInstanceGetComputeInstanceProfileInfo(nvml, instance, profile, engines, info)
    handle = nvml.resolve(instance, "gpu instance")
    fill(info, name=f"MIG {_compute_profile(nvml, handle, profile).name}".encode())


@function
def nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    nvml: Session, instance: Any, profile_id: Any, count: Any
) -> None:
    handle = nvml.resolve(instance, "gpu instance")
    profile = _compute_profile(nvml, handle, profile_id)
    put(count, len(list(mig.fitting_compute(nvml.instance(handle), profile))))


@function
def nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvml: Session, instance: Any, profile_id: Any, placements: Any, count: Any
) -> None:
    handle = nvml.resolve(instance, "gpu instance")
    profile = _compute_profile(nvml, handle, profile_id)
    list_placements(profile.starts, profile.slices, placements, count)


@function
def nvmlGpuInstanceCreateComputeInstance(
    nvml: Session, instance: Any, profile_id: Any, compute: Any
) -> None:
    _create_compute(nvml, instance, profile_id, None, compute)


@function
def nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvml: Session, instance: Any, profile_id: Any, placement: Any, compute: Any
) -> None:
    _create_compute(nvml, instance, profile_id, target(placement).start, compute)


def _create_compute(
    nvml: Session, instance: Any, profile_id: Any, start: int | None, compute: Any
) -> None:
    handle = nvml.resolve(instance, "gpu instance")
    profile = _compute_profile(nvml, handle, profile_id)

    def change(parent: GpuInstance) -> GpuInstance:
        created, after = mig.create_compute(parent, profile, start)
        put_handle(compute, nvml.handle("compute instance", handle.minor, parent.id, created.id))
        return after

    _change_instance(nvml, handle, change)


@function
def nvmlComputeInstanceDestroy(nvml: Session, compute: Any) -> None:
    handle = nvml.resolve(compute, "compute instance")
    gone = _compute_instance(nvml, handle)
    if nvml.gpu(handle.minor).state.processes:
        answer(pynvml.NVML_ERROR_IN_USE)

    def change(parent: GpuInstance) -> GpuInstance:
        left = tuple(one for one in parent.compute_instances if one.id != gone.id)
        return replace(parent, compute_instances=left)

    _change_instance(nvml, handle, change)


@function
def nvmlGpuInstanceGetComputeInstances(
    nvml: Session, instance: Any, profile_id: Any, computes: Any, count: Any
) -> None:
    handle = nvml.resolve(instance, "gpu instance")
    profile = _compute_profile(nvml, handle, profile_id)
    parent = nvml.instance(handle)
    found = [one for one in parent.compute_instances if one.profile == profile.index]
    for index, one in enumerate(found):
        own = nvml.handle("compute instance", handle.minor, parent.id, one.id)
        computes[index] = pointer(pynvml.c_nvmlComputeInstance_t, own)
    put(count, len(found))


@function
def nvmlGpuInstanceGetComputeInstanceById(
    nvml: Session, instance: Any, compute_id: Any, compute: Any
) -> None:
    parent = nvml.resolve(instance, "gpu instance")
    handle = nvml.handle("compute instance", parent.minor, parent.gpu_instance, number(compute_id))
    _compute_instance(nvml, handle)
    put_handle(compute, handle)


@function
def nvmlComputeInstanceGetInfo_v2(nvml: Session, compute: Any, info: Any) -> None:
    handle = nvml.resolve(compute, "compute instance")
    found = _compute_instance(nvml, handle)
    parent = nvml.handle("gpu instance", handle.minor, handle.gpu_instance)
    device = nvml.handle("device", handle.minor)
    if nvml.state.compute_instance_device == "mig device":
        device = nvml.handle("mig device", handle.minor, handle.gpu_instance, found.id)
    fill(
        info,
        device=pointer(pynvml.c_nvmlDevice_t, device),
        gpuInstance=pointer(pynvml.c_nvmlGpuInstance_t, parent),
        id=found.id,
        profileId=found.profile,
        placement=pynvml.c_nvmlComputeInstancePlacement_t(found.start, found.size),
    )


def _compute_profile(nvml: Session, handle: Handle, profile: Any) -> mig.ComputeProfile:
    """A compute instance profile, whose index and id are the same number."""
    profiles = mig.compute_profiles(profile_of(nvml, handle))
    found = next((one for one in profiles if one.index == number(profile)), None)
    return found or answer(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _compute_instance(nvml: Session, handle: Handle) -> ComputeInstance:
    everything = nvml.instance(handle).compute_instances
    found = next((one for one in everything if one.id == handle.compute_instance), None)
    return found or answer(pynvml.NVML_ERROR_NOT_FOUND)


def _change_instance(
    nvml: Session, handle: Handle, change: Callable[[GpuInstance], GpuInstance]
) -> None:
    def change_gpu(state: GpuState) -> GpuState:
        if all(one.id != handle.gpu_instance for one in state.instances):
            answer(pynvml.NVML_ERROR_NOT_FOUND)
        return replace(
            state,
            instances=tuple(
                change(one) if one.id == handle.gpu_instance else one for one in state.instances
            ),
        )

    repartition(nvml, handle.minor, change_gpu)


# --- MIG devices ---


@function
def nvmlDeviceIsMigDeviceHandle(nvml: Session, device: Any, is_mig: Any) -> None:
    put(is_mig, int(nvml.resolve(device, "device", "mig device").type == "mig device"))


@function
def nvmlDeviceGetMigDeviceHandleByIndex(
    nvml: Session, device: Any, index: Any, mig_device: Any
) -> None:
    gpu = partitioned(nvml, device)
    if number(index) >= MOST_DEVICES:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    pairs = [
        (instance.id, compute.id)
        for instance in gpu.state.instances
        for compute in instance.compute_instances
    ]
    if number(index) >= len(pairs):
        answer(pynvml.NVML_ERROR_NOT_FOUND)
    put_handle(mig_device, nvml.handle("mig device", gpu.slot.minor, *pairs[number(index)]))


@function
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    nvml: Session, mig_device: Any, device: Any
) -> None:
    handle = nvml.resolve(mig_device, "mig device")
    nvml.gpu(handle.minor)
    put_handle(device, nvml.handle("device", handle.minor))


@function
def nvmlDeviceGetGpuInstanceId(nvml: Session, mig_device: Any, instance_id: Any) -> None:
    handle = nvml.resolve(mig_device, "mig device")
    put(instance_id, nvml.instance(handle).id)


@function
def nvmlDeviceGetComputeInstanceId(nvml: Session, mig_device: Any, compute_id: Any) -> None:
    put(compute_id, _compute_instance(nvml, nvml.resolve(mig_device, "mig device")).id)


@function
def nvmlDeviceGetAttributes_v2(nvml: Session, mig_device: Any, attributes: Any) -> None:
    handle = nvml.resolve(mig_device, "device", "mig device")
    if handle.type == "device":
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    compute = _compute_instance(nvml, handle)
    profile = profile_of(nvml, handle)
    fill(
        attributes,
        multiprocessorCount=_compute_profile(nvml, handle, compute.profile).multiprocessors,
        sharedCopyEngineCount=profile.copy_engines,
        sharedDecoderCount=profile.decoders,
        sharedEncoderCount=profile.encoders,
        sharedJpegCount=profile.jpeg_engines,
        sharedOfaCount=profile.ofa_engines,
        gpuInstanceSliceCount=profile.slices,
        computeInstanceSliceCount=compute.size,
        memorySizeMB=profile.memory_mib,
    )

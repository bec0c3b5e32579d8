"""C functions about Multi-Instance GPU: mode, GPU instance profiles, GPU instances."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml

from simulation.nvml import mig
from simulation.nvml.c_arguments import Handle, fill, number, pointer, put, put_handle, target
from simulation.nvml.hardware import MigProfile
from simulation.nvml.library import Attached, Session, answer, function
from simulation.nvml.state import GpuState

MOST_DEVICES = 7


# --- mode ---


@function
def nvmlDeviceGetMigMode(nvml: Session, device: Any, current: Any, pending: Any) -> None:
    gpu = _partitionable(nvml, device)
    put(current, int(gpu.state.mig_enabled))
    put(pending, int(gpu.state.mig_pending))


@function
def nvmlDeviceSetMigMode(nvml: Session, device: Any, mode: Any, activation: Any) -> None:
    """Changes the mode at once from Hopper on; on Ampere with the next reset (`activation`)."""
    gpu = _partitionable(nvml, device)
    wanted = bool(number(mode))

    def change(state: GpuState) -> GpuState:
        if state.mig_enabled == wanted:
            return replace(state, mig_pending=wanted)
        if state.instances or state.processes:
            answer(pynvml.NVML_ERROR_IN_USE)
        now = wanted if gpu.model.changes_mig_mode_at_once else state.mig_enabled
        return replace(state, mig_enabled=now, mig_pending=wanted)

    nvml.change_gpu(gpu.slot.minor, change)
    done = nvml.state.gpus[gpu.slot.minor].mig_enabled == wanted
    put(activation, pynvml.NVML_SUCCESS if done else pynvml.NVML_ERROR_RESET_REQUIRED)


@function
def nvmlDeviceGetMaxMigDeviceCount(nvml: Session, device: Any, count: Any) -> None:
    put(count, MOST_DEVICES if nvml.whole_device(device).model.mig_profiles else 0)


def _partitionable(nvml: Session, device: Any) -> Attached:
    gpu = nvml.whole_device(device)
    if not gpu.model.mig_profiles:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return gpu


def partitioned(nvml: Session, device: Any) -> Attached:
    gpu = _partitionable(nvml, device)
    if not gpu.state.mig_enabled:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return gpu


# --- GPU instance profiles ---


@function
def nvmlDeviceGetGpuInstanceProfileInfo(
    nvml: Session, device: Any, profile: Any, info: Any
) -> None:
    _fill_profile(info, _profile_by_index(_partitionable(nvml, device), profile))


@function
def nvmlDeviceGetGpuInstanceProfileInfoV(
    nvml: Session, device: Any, profile: Any, info: Any
) -> None:
    if target(info).version != pynvml.nvmlGpuInstanceProfileInfo_v2:
        answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    found = _profile_by_index(_partitionable(nvml, device), profile)
    _fill_profile(info, found)
    fill(info, name=f"MIG {found.name}".encode())


@function
def nvmlDeviceGetGpuInstanceProfileInfoByIdV(
    nvml: Session, device: Any, profile_id: Any, info: Any
) -> None:
    found = _profile_by_id(_partitionable(nvml, device), profile_id)
    _fill_profile(info, found)
    fill(info, name=f"MIG {found.name}".encode())


@function
def nvmlDeviceGetGpuInstanceRemainingCapacity(
    nvml: Session, device: Any, profile_id: Any, count: Any
) -> None:
    gpu = partitioned(nvml, device)
    put(count, mig.remaining(gpu.model, gpu.state.instances, _profile_by_id(gpu, profile_id)))


@function
def nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvml: Session, device: Any, profile_id: Any, placements: Any, count: Any
) -> None:
    """All placements of the profile, occupied ones included, in any MIG mode."""
    profile = _profile_by_id(_partitionable(nvml, device), profile_id)
    list_placements(profile.starts, profile.size, placements, count)


def _profile_by_index(gpu: Attached, index: Any) -> MigProfile:
    if not 0 <= number(index) < pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return mig.profile_by_index(gpu.model, number(index)) or answer(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _profile_by_id(gpu: Attached, profile_id: Any) -> MigProfile:
    found = mig.profile_by_id(gpu.model, number(profile_id))
    return found or answer(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _fill_profile(info: Any, profile: MigProfile) -> None:
    fill(
        info,
        id=profile.id,
        isP2pSupported=0,
        sliceCount=profile.slices,
        instanceCount=profile.instances,
        multiprocessorCount=profile.multiprocessors,
        copyEngineCount=profile.copy_engines,
        decoderCount=profile.decoders,
        encoderCount=profile.encoders,
        jpegCount=profile.jpeg_engines,
        ofaCount=profile.ofa_engines,
        memorySizeMB=profile.memory_mib,
    )


def list_placements(starts: tuple[int, ...], size: int, placements: Any, count: Any) -> None:
    """NVML's protocol for lists: without an array, only the length is written."""
    if placements is not None:
        if target(count).value < len(starts):
            answer(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for index, start in enumerate(starts):
            placements[index].start = start
            placements[index].size = size
    put(count, len(starts))


# --- GPU instances ---


@function
def nvmlDeviceCreateGpuInstance(nvml: Session, device: Any, profile_id: Any, instance: Any) -> None:
    _create_instance(nvml, device, profile_id, None, instance)


@function
def nvmlDeviceCreateGpuInstanceWithPlacement(
    nvml: Session, device: Any, profile_id: Any, placement: Any, instance: Any
) -> None:
    wanted = target(placement)
    if wanted.size != _profile_by_id(partitioned(nvml, device), profile_id).size:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    _create_instance(nvml, device, profile_id, wanted.start, instance)


def _create_instance(
    nvml: Session, device: Any, profile_id: Any, start: int | None, instance: Any
) -> None:
    gpu = partitioned(nvml, device)
    profile = _profile_by_id(gpu, profile_id)
    minor = gpu.slot.minor

    def change(state: GpuState) -> GpuState:
        if not state.mig_enabled:
            answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
        created, everything = mig.create(gpu.model, state.instances, profile, start)
        put_handle(instance, nvml.handle("gpu instance", minor, created.id))
        return replace(state, instances=everything)

    repartition(nvml, minor, change)


@function
def nvmlGpuInstanceDestroy(nvml: Session, instance: Any) -> None:
    handle = nvml.resolve(instance, "gpu instance")
    nvml.instance(handle)

    def change(state: GpuState) -> GpuState:
        left = []
        for one in state.instances:
            if one.id != handle.gpu_instance:
                left.append(one)
            elif one.compute_instances:
                answer(pynvml.NVML_ERROR_IN_USE)
        return replace(state, instances=tuple(left))

    repartition(nvml, handle.minor, change)


@function
def nvmlDeviceGetGpuInstances(
    nvml: Session, device: Any, profile_id: Any, instances: Any, count: Any
) -> None:
    gpu = partitioned(nvml, device)
    profile = _profile_by_id(gpu, profile_id)
    found = [one for one in gpu.state.instances if one.profile == profile.index]
    for index, one in enumerate(found):
        handle = nvml.handle("gpu instance", gpu.slot.minor, one.id)
        instances[index] = pointer(pynvml.c_nvmlGpuInstance_t, handle)
    put(count, len(found))


@function
def nvmlDeviceGetGpuInstanceById(
    nvml: Session, device: Any, instance_id: Any, instance: Any
) -> None:
    gpu = partitioned(nvml, device)
    handle = nvml.handle("gpu instance", gpu.slot.minor, number(instance_id))
    nvml.instance(handle)
    put_handle(instance, handle)


@function
def nvmlGpuInstanceGetInfo(nvml: Session, instance: Any, info: Any) -> None:
    handle = nvml.resolve(instance, "gpu instance")
    found = nvml.instance(handle)
    fill(
        info,
        device=pointer(pynvml.c_nvmlDevice_t, nvml.handle("device", handle.minor)),
        id=found.id,
        profileId=profile_of(nvml, handle).id,
        placement=pynvml.c_nvmlGpuInstancePlacement_t(found.start, found.size),
    )


def profile_of(nvml: Session, handle: Handle) -> MigProfile:
    """The profile of the GPU instance of a handle, or that contains its compute instance."""
    found = mig.profile_by_index(nvml.gpu(handle.minor).model, nvml.instance(handle).profile)
    return found or answer(pynvml.NVML_ERROR_UNKNOWN)


def repartition(nvml: Session, minor: int, change: Callable[[GpuState], GpuState]) -> None:
    """Changes the GPU's instances and their capability files in /proc."""
    try:
        nvml.update(
            lambda node: node.with_gpu(minor, change(node.gpus[minor])), nvml.write_capabilities
        )
    except mig.NoSuchPlacementError:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    except mig.NoRoomError:
        answer(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)

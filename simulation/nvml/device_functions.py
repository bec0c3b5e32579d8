"""C functions about the system and about whole GPUs."""

import time
from dataclasses import replace
from typing import Any, Literal

import pynvml

from simulation.nvml.c_arguments import fill, number, put, put_handle, put_text, target, text
from simulation.nvml.library import Session, answer, function
from simulation.nvml.live import running
from simulation.nvml.mig import device_uuid, profile_by_index
from simulation.nvml.state import WHOLE_GPU

_ARCHITECTURES = {"turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
_BRANDS = {"tesla": 2, "nvidia": 14}
_ADDRESSING = {"none": 0, "hmm": 1, "ats": 2}
_DRIVER_RESERVED_BYTES = 600 * 2**20
_COMPUTE_MODES = (0, 2, 3)
_NOT_AVAILABLE = 2**64 - 1


def _write(buffer: Any, length: Any, value: str) -> None:
    if not put_text(buffer, length, value):
        answer(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)


# --- the library ---


@function
def nvmlInitWithFlags(nvml: Session, _flags: Any) -> None:
    match nvml.state.driver:
        case "loaded":
            # A process may have been killed before it had written them.
            nvml.update(lambda node: node, nvml.write_capabilities)
            nvml.begin()
        case "unloaded":
            answer(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        case "not installed":
            answer(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@function
def nvmlInit_v2(nvml: Session) -> None:
    nvmlInitWithFlags(nvml, 0)


@function
def nvmlShutdown(nvml: Session) -> None:
    nvml.end()


@function
def nvmlSystemGetDriverVersion(nvml: Session, buffer: Any, length: Any) -> None:
    _write(buffer, length, nvml.driver_version)


@function
def nvmlSystemGetNVMLVersion(nvml: Session, buffer: Any, length: Any) -> None:
    major, _ = nvml.hardware.cuda_version
    _write(buffer, length, f"{major}.{nvml.driver_version}")


@function
def nvmlSystemGetCudaDriverVersion(nvml: Session, version: Any) -> None:
    major, minor = nvml.hardware.cuda_version
    put(version, major * 1000 + minor * 10)


@function
def nvmlSystemGetCudaDriverVersion_v2(nvml: Session, version: Any) -> None:
    nvmlSystemGetCudaDriverVersion(nvml, version)


# --- finding a GPU ---


@function
def nvmlDeviceGetCount_v2(nvml: Session, count: Any) -> None:
    put(count, len(nvml.minors))


@function
def nvmlDeviceGetHandleByIndex_v2(nvml: Session, index: Any, device: Any) -> None:
    if number(index) >= len(nvml.minors):
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    _give(nvml, nvml.minors[number(index)], device)


@function
def nvmlDeviceGetHandleByUUID(nvml: Session, uuid: Any, device: Any) -> None:
    wanted = text(uuid)
    for minor in nvml.minors:
        gpu = nvml.state.gpus[minor]
        if gpu.uuid == wanted and gpu.presence != "unplugged":
            _give(nvml, minor, device)
            return
        for instance in gpu.instances:
            for compute in instance.compute_instances:
                if device_uuid(gpu.uuid, instance.id, compute.id) == wanted:
                    nvml.gpu(minor)
                    put_handle(device, nvml.handle("mig device", minor, instance.id, compute.id))
                    return
    answer(pynvml.NVML_ERROR_NOT_FOUND)


@function
def nvmlDeviceGetHandleBySerial(nvml: Session, serial: Any, device: Any) -> None:
    for minor in nvml.minors:
        if nvml.state.gpus[minor].serial == text(serial):
            _give(nvml, minor, device)
            return
    answer(pynvml.NVML_ERROR_NOT_FOUND)


@function
def nvmlDeviceGetHandleByPciBusId_v2(nvml: Session, address: Any, device: Any) -> None:
    domain, _, rest = text(address).lower().partition(":")
    for minor in nvml.minors:
        own_domain, _, own_rest = nvml.hardware.slot(minor).pci.partition(":")
        if (int(domain, 16), rest) == (int(own_domain, 16), own_rest):
            if nvml.state.gpus[minor].presence == "unplugged":
                break
            _give(nvml, minor, device)
            return
    answer(pynvml.NVML_ERROR_NOT_FOUND)


def _give(nvml: Session, minor: int, device: Any) -> None:
    nvml.gpu(minor)
    put_handle(device, nvml.handle("device", minor))


# --- properties of a GPU ---


@function
def nvmlDeviceGetIndex(nvml: Session, device: Any, index: Any) -> None:
    put(index, nvml.minors.index(nvml.device(device).slot.minor))


@function
def nvmlDeviceGetMinorNumber(nvml: Session, device: Any, minor: Any) -> None:
    put(minor, nvml.device(device).slot.minor)


@function
def nvmlDeviceGetUUID(nvml: Session, device: Any, buffer: Any, length: Any) -> None:
    handle = nvml.resolve(device, "device", "mig device")
    gpu = nvml.gpu(handle.minor).state
    if handle.type == "mig device":
        _write(buffer, length, device_uuid(gpu.uuid, handle.gpu_instance, handle.compute_instance))
    else:
        _write(buffer, length, gpu.uuid)


@function
def nvmlDeviceGetSerial(nvml: Session, device: Any, buffer: Any, length: Any) -> None:
    _write(buffer, length, nvml.device(device).state.serial)


@function
def nvmlDeviceGetName(nvml: Session, device: Any, buffer: Any, length: Any) -> None:
    handle = nvml.resolve(device, "device", "mig device")
    gpu = nvml.gpu(handle.minor)
    if handle.type == "device":
        _write(buffer, length, gpu.model.name)
        return
    profile = profile_by_index(gpu.model, nvml.instance(handle).profile)
    _write(buffer, length, f"{gpu.model.name} MIG {profile.name if profile else ''}")


@function
def nvmlDeviceGetBrand(nvml: Session, device: Any, brand: Any) -> None:
    put(brand, _BRANDS[nvml.device(device).model.brand])


@function
def nvmlDeviceGetVirtualizationMode(nvml: Session, device: Any, mode: Any) -> None:
    put(mode, nvml.device(device).state.virtualization)


@function
def nvmlDeviceGetArchitecture(nvml: Session, device: Any, architecture: Any) -> None:
    put(architecture, _ARCHITECTURES[nvml.device(device).model.architecture])


@function
def nvmlDeviceGetCudaComputeCapability(nvml: Session, device: Any, major: Any, minor: Any) -> None:
    capability = nvml.device(device).model.compute_capability
    put(major, capability[0])
    put(minor, capability[1])


@function
def nvmlDeviceGetAddressingMode(nvml: Session, device: Any, mode: Any) -> None:
    addressing = nvml.device(device).model.addressing_mode
    if addressing is None:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    fill(mode, value=_ADDRESSING[addressing])


@function
def nvmlDeviceGetPciInfo_v3(nvml: Session, device: Any, info: Any) -> None:
    gpu = nvml.device(device)
    fill(
        info,
        pciDeviceId=gpu.model.pci_device_id,
        pciSubSystemId=gpu.model.pci_subsystem_id,
        **pci_fields(gpu.slot.pci),
    )


def pci_fields(address: str) -> dict[str, Any]:
    """The fields of an address in nvmlPciInfo_t, where a domain has eight digits."""
    domain, bus, rest = address.split(":")
    long = f"{int(domain, 16):08X}:{bus.upper()}:{rest.upper()}"
    return {
        "domain": int(domain, 16),
        "bus": int(bus, 16),
        "device": int(rest.partition(".")[0], 16),
        "busId": long.encode(),
        "busIdLegacy": long[4:].encode(),
    }


@function
def nvmlDeviceGetMemoryInfo(nvml: Session, device: Any, memory: Any) -> None:
    total, used = _memory(nvml, device)
    fill(memory, total=total, used=used, free=total - used)


@function
def nvmlDeviceGetMemoryInfo_v2(nvml: Session, device: Any, memory: Any) -> None:
    total, reserved = _memory(nvml, device)
    used = sum(process.memory or 0 for process in running(nvml.device(device).state))
    fill(memory, total=total, reserved=reserved, used=used, free=total - reserved - used)


def _memory(nvml: Session, device: Any) -> tuple[int, int]:
    """Total and reserved bytes, of the GPU or of a MIG device."""
    handle = nvml.resolve(device, "device", "mig device")
    model = nvml.gpu(handle.minor).model
    if handle.type == "device":
        return model.memory_mib * 2**20, _DRIVER_RESERVED_BYTES
    profile = profile_by_index(model, nvml.instance(handle).profile)
    return (profile.memory_mib if profile else 0) * 2**20, 0


# --- use of a GPU ---


@function
def nvmlDeviceGetUtilizationRates(nvml: Session, device: Any, rates: Any) -> None:
    handle = nvml.resolve(device, "device", "mig device")
    state = nvml.gpu(handle.minor).state
    if handle.type != "device" or state.mig_enabled:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    fill(rates, gpu=100 if running(state) else 0, memory=0)


@function
def nvmlDeviceGetPersistenceMode(nvml: Session, device: Any, mode: Any) -> None:
    nvml.device(device)
    put(mode, 1)


@function
def nvmlDeviceGetComputeMode(nvml: Session, device: Any, mode: Any) -> None:
    put(mode, nvml.device(device).state.compute_mode)


@function
def nvmlDeviceSetComputeMode(nvml: Session, device: Any, mode: Any) -> None:
    wanted = number(mode)
    if wanted not in _COMPUTE_MODES:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    gpu = nvml.whole_device(device)
    if gpu.state.mig_enabled:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.change_gpu(gpu.slot.minor, lambda state: replace(state, compute_mode=wanted))


@function
def nvmlDeviceGetComputeRunningProcesses_v3(
    nvml: Session, device: Any, count: Any, processes: Any
) -> None:
    _give_processes(nvml, device, count, processes, "compute")


@function
def nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvml: Session, device: Any, count: Any, processes: Any
) -> None:
    _give_processes(nvml, device, count, processes, "graphics")


@function
def nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvml: Session, device: Any, count: Any, processes: Any
) -> None:
    _give_processes(nvml, device, count, processes, "mps")


def _give_processes(
    nvml: Session,
    device: Any,
    count: Any,
    processes: Any,
    kind: Literal["compute", "graphics", "mps"],
) -> None:
    listed = [known for known in running(nvml.device(device).state) if kind in known.kinds]
    room = target(count).value
    put(count, len(listed))
    if len(listed) > room:
        answer(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for index, process in enumerate(listed):
        processes[index].pid = process.pid
        processes[index].usedGpuMemory = (
            _NOT_AVAILABLE if process.memory is None else process.memory
        )
        processes[index].gpuInstanceId = WHOLE_GPU
        processes[index].computeInstanceId = WHOLE_GPU


@function
def nvmlDeviceGetProcessUtilization(
    nvml: Session, device: Any, samples: Any, count: Any, since: Any
) -> None:
    state = nvml.device(device).state
    if state.mig_enabled:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    now = int(time.time() * 1_000_000)
    computing = [process for process in running(state) if process.sm_percent]
    if not computing or now <= number(since):
        answer(pynvml.NVML_ERROR_NOT_FOUND)
    room = target(count).value
    put(count, len(computing))
    if samples is None or len(computing) > room:
        answer(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for index, process in enumerate(computing):
        samples[index].pid = process.pid
        samples[index].timeStamp = now
        samples[index].smUtil = process.sm_percent

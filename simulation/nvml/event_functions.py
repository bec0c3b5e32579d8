"""C functions about events, with which the driver reports errors."""

import time
from dataclasses import dataclass, field
from typing import Any

import pynvml

from simulation.nvml.c_arguments import fill, number, pointer, put, put_handle
from simulation.nvml.library import Session, answer, function

_POLL_SECONDS = 0.01
_ALWAYS = (
    pynvml.nvmlEventTypeSingleBitEccError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeXidCriticalError
)
_RECOVERY_ACTION_DRIVER = 565


def _supported(nvml: Session) -> int:
    newer = nvml.driver_branch >= _RECOVERY_ACTION_DRIVER
    return int(_ALWAYS | (pynvml.nvmlEventTypeGpuRecoveryAction if newer else 0))


@dataclass(slots=True)
class _EventSet:
    """The events that a caller waits for, and the last that it has received."""

    types: dict[int, int] = field(default_factory=dict)
    """Event types, combined as bits, by minor number."""
    seen: int = 0


@function
def nvmlEventSetCreate(nvml: Session, event_set: Any) -> None:
    number_of_set = max(nvml.event_sets, default=0) + 1
    nvml.event_sets[number_of_set] = _EventSet(seen=nvml.state.last_event)
    put_handle(event_set, nvml.handle("event set", number_of_set))


@function
def nvmlEventSetFree(nvml: Session, event_set: Any) -> None:
    del nvml.event_sets[nvml.resolve(event_set, "event set").minor]


@function
def nvmlDeviceGetSupportedEventTypes(nvml: Session, device: Any, types: Any) -> None:
    nvml.whole_device(device)
    put(types, _supported(nvml))


@function
def nvmlDeviceRegisterEvents(nvml: Session, device: Any, types: Any, event_set: Any) -> None:
    minor = nvml.whole_device(device).slot.minor
    wanted = number(types)
    if wanted & ~_supported(nvml):
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    registered = _event_set(nvml, event_set).types
    registered[minor] = registered.get(minor, 0) | wanted


@function
def nvmlEventSetWait_v2(nvml: Session, event_set: Any, data: Any, timeout_ms: Any) -> None:
    waiting = _event_set(nvml, event_set)
    deadline = time.monotonic() + number(timeout_ms) / 1000
    state = nvml.state
    while True:
        for event in state.events:
            if event.number > waiting.seen and waiting.types.get(event.minor, 0) & event.type:
                waiting.seen = event.number
                fill(
                    data,
                    device=pointer(pynvml.c_nvmlDevice_t, nvml.handle("device", event.minor)),
                    eventType=event.type,
                    eventData=event.data,
                    gpuInstanceId=event.gpu_instance,
                    computeInstanceId=event.compute_instance,
                )
                return
        if any(state.gpus[minor].presence != "attached" for minor in waiting.types):
            answer(pynvml.NVML_ERROR_GPU_IS_LOST)
        if time.monotonic() >= deadline:
            answer(pynvml.NVML_ERROR_TIMEOUT)
        time.sleep(_POLL_SECONDS)
        state = nvml.look()


def _event_set(nvml: Session, event_set: Any) -> _EventSet:
    found = nvml.event_sets.get(nvml.resolve(event_set, "event set").minor)
    if not isinstance(found, _EventSet):
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return found

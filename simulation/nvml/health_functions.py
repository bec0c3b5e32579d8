"""C functions about the health of a GPU. Functions newer than the driver are not supported."""

from typing import Any

import pynvml

from simulation.nvml.c_arguments import fill, number, put, target
from simulation.nvml.library import Session, answer, function

_RECOVERY_ACTION_DRIVER = 565
_REPAIR_DRIVER = 580
_UNREPAIRABLE_DRIVER = 590


def _require(nvml: Session, driver: int) -> None:
    if nvml.driver_branch < driver:
        answer(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


@function
def nvmlDeviceGetFieldValues(nvml: Session, device: Any, count: Any, values: Any) -> None:
    state = nvml.device(device).state
    said = {
        pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: (
            None if nvml.driver_branch < _RECOVERY_ACTION_DRIVER else state.health.recovery_action
        ),
        # nvml.h: row remapping is not supported while MIG instances exist.
        pynvml.NVML_FI_DEV_REMAPPED_PENDING: (
            None if state.instances else int(state.health.rows_pending)
        ),
        pynvml.NVML_FI_DEV_REMAPPED_FAILURE: (
            None if state.instances else int(state.health.rows_failed)
        ),
    }
    for value in target(values)[: number(count)]:
        found = said.get(value.fieldId)
        value.nvmlReturn = (
            pynvml.NVML_SUCCESS if found is not None else pynvml.NVML_ERROR_NOT_SUPPORTED
        )
        value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        value.value.uiVal = found or 0


@function
def nvmlDeviceGetRepairStatus(nvml: Session, device: Any, status: Any) -> None:
    _require(nvml, _REPAIR_DRIVER)
    pending = nvml.whole_device(device).state.health.repair_pending
    fill(status, bChannelRepairPending=int(pending), bTpcRepairPending=0)


@function
def nvmlDeviceGetUnrepairableMemoryFlag_v1(nvml: Session, device: Any, flag: Any) -> None:
    _require(nvml, _UNREPAIRABLE_DRIVER)
    unrepairable = nvml.whole_device(device).state.health.memory_unrepairable
    fill(flag, unrepairableMemory=int(unrepairable))


@function
def nvmlDeviceGetSramEccErrorStatus(nvml: Session, device: Any, status: Any) -> None:
    exceeded = nvml.whole_device(device).state.health.sram_threshold_exceeded
    fill(status, bThresholdExceeded=int(exceeded))


@function
def nvmlDeviceGetCurrentClocksEventReasons(nvml: Session, device: Any, reasons: Any) -> None:
    put(reasons, nvml.whole_device(device).state.health.clocks_event_reasons)

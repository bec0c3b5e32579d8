"""Reads what NVML says of a GPU's health.

One call for all field values is made at each look, and the others now and then. What a driver does
not have, or does not say of this GPU, is no signal. While MIG instances exist, drivers do not say
how rows of memory are remapped (nvml.h): what was known before stays.
"""

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import pynvml

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import (
    NO_SUCH,
    NvmlCallError,
    call,
    code_name,
    optional_call,
)
from kubelet_plugin.inventory.signals import Fabric, Signals, Slowdown
from kubelet_plugin.nvml.attributes import Attributes

_ACTION: Final = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_PENDING: Final = pynvml.NVML_FI_DEV_REMAPPED_PENDING
_FAILED: Final = pynvml.NVML_FI_DEV_REMAPPED_FAILURE
_FIELDS: Final = (_ACTION, _PENDING, _FAILED)
_MEMBERS: Final[Mapping[int, str]] = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
_SLOWDOWNS: Final[Mapping[int, Slowdown]] = {
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: Slowdown.HARDWARE_THERMAL,
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: Slowdown.SOFTWARE_THERMAL,
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: Slowdown.POWER_BRAKE,
}
FieldValues: TypeAlias = Mapping[int, Any] | NvmlFailure
"""The answers by field; or why all failed, as they do with a driver that has no fields."""


def read_signals(attributes: Attributes, uuid: str, handle: object, fabric: Fabric) -> Signals:
    """Returns what NVML says of a GPU, which is in this state in its fabric.

    Raises:
        NvmlCallError: the GPU is lost, or the driver is gone.
    """
    values = _field_values(handle)

    def now(field: int) -> int | None:
        name = f"field {field}"
        value: int | None = attributes.current(uuid, name, partial(_value, values, field))
        return value

    def recent(name: str, read: Any) -> Any:
        return attributes.recent(uuid, name, partial(read, handle))

    action = now(_ACTION)
    if action == 0 and not _is_said(values, _ACTION):
        action = None  # that it was well before is no verdict, so XIDs decide meanwhile
    return Signals(
        recovery_action=action,
        rows_pending=bool(now(_PENDING)),
        rows_failed=bool(now(_FAILED)),
        repair_pending=bool(recent("repair", _repair_pending)),
        memory_unrepairable=bool(recent("unrepairable memory", _unrepairable)),
        sram_threshold_exceeded=bool(recent("SRAM threshold", _sram_exceeded)),
        fabric=fabric,
        slowdowns=recent("clocks", _slowdowns) or frozenset(),
    )


def _field_values(handle: object) -> FieldValues:
    """Returns the answers by field, or why there is none."""
    try:
        answers = call(pynvml.nvmlDeviceGetFieldValues, handle, _FIELDS)
    except NvmlCallError as error:
        return error.failure
    return dict(zip(_FIELDS, answers, strict=True))


def _value(values: FieldValues, field: int) -> int | None:
    """Returns the value of a field; None for a recovery action that the driver does not have.

    Raises:
        NvmlCallError: the driver does not say it now.
    """
    if isinstance(values, NvmlFailure):
        failure = values
    else:
        answer = values[field]
        if answer.nvmlReturn == pynvml.NVML_SUCCESS:
            return int(getattr(answer.value, _MEMBERS.get(answer.valueType, "uiVal")))
        failure = NvmlFailure(f"nvmlDeviceGetFieldValues ({field})", code_name(answer.nvmlReturn))
    if field == _ACTION and failure.code in NO_SUCH:
        return None
    raise NvmlCallError(failure)


def _is_said(values: FieldValues, field: int) -> bool:
    if isinstance(values, NvmlFailure):
        return False
    return bool(values[field].nvmlReturn == pynvml.NVML_SUCCESS)


def _repair_pending(handle: object) -> bool:
    return any(optional_call(pynvml.nvmlDeviceGetRepairStatus, handle) or ())


def _unrepairable(handle: object) -> bool:
    return bool(optional_call(pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1, handle))


def _sram_exceeded(handle: object) -> bool:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    said = optional_call(pynvml.nvmlDeviceGetSramEccErrorStatus, handle, ctypes.byref(status))
    return said is not None and bool(status.bThresholdExceeded)


def _slowdowns(handle: object) -> frozenset[Slowdown]:
    reasons = optional_call(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    return frozenset(slowdown for bit, slowdown in _SLOWDOWNS.items() if reasons & bit)

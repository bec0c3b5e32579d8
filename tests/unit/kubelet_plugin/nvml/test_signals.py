"""The types that NVML may give the value of a field."""

from typing import Any

import pynvml
import pytest

from kubelet_plugin.inventory.signals import Fabric
from kubelet_plugin.nvml.attributes import Attributes
from kubelet_plugin.nvml.signals import read_signals

_ACTION = 4


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, "uiVal"),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, "ulVal"),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal"),
        (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, "sllVal"),
        (pynvml.NVML_VALUE_TYPE_SIGNED_INT, "siVal"),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, "usVal"),
    ],
)
def test_a_value_is_read_whatever_its_type(
    monkeypatch: pytest.MonkeyPatch, kind: int, member: str
) -> None:
    def field_values(_handle: object, fields: tuple[int, ...]) -> list[Any]:
        answers = [pynvml.c_nvmlFieldValue_t(fieldId=field, valueType=kind) for field in fields]
        setattr(answers[0].value, member, _ACTION)
        return answers

    def unsupported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", field_values)
    for name in (
        "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetCurrentClocksEventReasons",
    ):
        monkeypatch.setattr(pynvml, name, unsupported)

    signals = read_signals(Attributes(lambda: 0.0), "GPU-1", object(), Fabric.ABSENT)
    assert signals.recovery_action == _ACTION

"""Names tell what a device is, also one that is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.devices.name import (
    DeviceName,
    MonitorName,
    ShareName,
    UnknownName,
    WholeGpuName,
    gpu_name,
    parse_name,
)


@pytest.mark.parametrize(
    ("text", "name", "gpu"),
    [
        ("gpu-0", WholeGpuName(0), "gpu-0"),
        ("gpu-12", WholeGpuName(12), "gpu-12"),
        ("gpu-12-share", ShareName(12), "gpu-12"),
        ("gpu-12-share-0", UnknownName("gpu-12-share-0", 12), "gpu-12"),
        ("gpu-12-monitor", MonitorName(12), "gpu-12"),
        ("gpu-12-monitors", UnknownName("gpu-12-monitors", 12), "gpu-12"),
        ("gpu-12-later", UnknownName("gpu-12-later", 12), "gpu-12"),
        ("gpu-012", UnknownName("gpu-012", None), "gpu-012"),
        ("nic-0", UnknownName("nic-0", None), "nic-0"),
        ("gpu-", UnknownName("gpu-", None), "gpu-"),
        ("gpu-1\N{ARABIC-INDIC DIGIT TWO}", UnknownName("gpu-1\u0662", None), "gpu-1\u0662"),
    ],
)
def test_names(text: str, name: DeviceName, gpu: str) -> None:
    assert parse_name(text) == name
    assert gpu_name(name) == gpu


@given(st.text(max_size=20) | st.from_regex(r"gpu-[0-9]{1,3}(-[a-z0-9.-]+)?", fullmatch=True))
def test_a_name_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_name(text)) == text

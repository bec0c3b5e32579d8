"""Opaque configurations are read strictly."""

from typing import Any

import pytest

from carina_dra.config.device import API_VERSION, DeviceConfigError, GpuConfig
from carina_dra.config.reading import is_of_known_kind, parse_device_config, read_recorded

SHARE = {"apiVersion": API_VERSION, "kind": "ShareConfig"}
GOOD = {"apiVersion": API_VERSION, "kind": "GpuConfig"}


def _time_slicing(interval: str) -> dict[str, Any]:
    return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (
            {**GOOD, "shareing": 1},
            f"opaque.parameters.shareing is not a field of {API_VERSION} GpuConfig",
        ),
        ({"kind": "GpuConfig"}, "is no apiVersion, GpuConfig; write apiVersion"),
        ({**GOOD, "kind": "VfioDeviceConfig"}, "VfioDeviceConfig; write apiVersion"),
        (
            {**GOOD, "sharing": {"strategy": "mps"}},
            f"opaque.parameters.sharing.strategy of {API_VERSION} GpuConfig: write TimeSlicing or",
        ),
        (
            {**GOOD, "sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}},
            "opaque.parameters.sharing.mpsConfig is not a field",
        ),
        (
            {**GOOD, "sharing": _time_slicing("Longer")},
            f"opaque.parameters.sharing.timeSlicingConfig.interval of {API_VERSION} GpuConfig: ",
        ),
        (
            {**GOOD, "kind": "MigDeviceConfig", "sharing": _time_slicing("Short")},
            f"sharing.timeSlicingConfig is not a field of {API_VERSION} MigDeviceConfig",
        ),
        (
            {**GOOD, "kind": "MigDeviceConfig", "sharing": {}},
            f"sharing.strategy of {API_VERSION} MigDeviceConfig: write TimeSlicing or MPS",
        ),
        ({**GOOD, "kind": ["GpuConfig"]}, "a kind that is not a string; write apiVersion"),
        ({**GOOD, "apiVersion": "resource.carina.dev/v9"}, "resource.carina.dev/v9, GpuConfig"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    parameters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeviceConfigError) as caught:
        parse_device_config("claim a/b, config[3]", parameters)
    assert str(caught.value).startswith("claim a/b, config[3]: ")
    assert problem in str(caught.value)


def test_recorded_configurations_may_have_fields_of_a_newer_version() -> None:
    assert read_recorded("config", {**GOOD, "later": {"deep": 1}}) == GpuConfig()


def test_of_many_mistakes_five_are_named_on_one_line() -> None:
    many = {**GOOD, **{f"x\n{index}": 1 for index in range(100)}}
    with pytest.raises(DeviceConfigError) as caught:
        parse_device_config("config[0]", many)
    assert str(caught.value).endswith("; and 95 more")
    assert "\n" not in str(caught.value)


def test_five_mistakes_are_all_there_are() -> None:
    with pytest.raises(DeviceConfigError) as caught:
        parse_device_config("config[0]", {**GOOD, **{f"x{index}": 1 for index in range(5)}})
    assert str(caught.value).count("is not a field of") == 5
    assert "more" not in str(caught.value)


def test_a_name_with_a_dot_is_told_from_a_path_of_fields() -> None:
    with pytest.raises(DeviceConfigError, match=r"opaque\.parameters\.'sharing\.strategy' is not"):
        parse_device_config("config[0]", {**GOOD, "sharing.strategy": "TimeSlicing"})


@pytest.mark.parametrize(("length", "shown"), [(60, "k" * 60), (61, "k" * 60 + "…")])
def test_a_name_is_cut_after_sixty_characters(length: int, shown: str) -> None:
    with pytest.raises(DeviceConfigError, match=f"{API_VERSION}, {shown}; write"):
        parse_device_config("config[0]", {**GOOD, "kind": "k" * length})


@pytest.mark.parametrize(
    ("enforcement", "problem"),
    [
        (
            {"memory": "hard"},
            f"enforcement.memory of {API_VERSION} ShareConfig: write none or kernel or mps",
        ),
        (
            {"cores": "kernel"},
            f"enforcement.cores of {API_VERSION} ShareConfig: write none or mps or time-slice",
        ),
        ({"memroy": "mps"}, f"enforcement.memroy is not a field of {API_VERSION} ShareConfig"),
        ({"memory": None}, f"enforcement.memory of {API_VERSION} ShareConfig: write none or"),
        ({"memory": ["none"]}, f"enforcement.memory of {API_VERSION} ShareConfig: write none or"),
        (None, f"enforcement of {API_VERSION} ShareConfig: Input should be a valid dictionary"),
    ],
)
def test_demand_that_is_no_level_is_refused(enforcement: Any, problem: str) -> None:
    parameters = {**SHARE, "enforcement": enforcement}
    with pytest.raises(DeviceConfigError) as caught:
        parse_device_config("config[0]", parameters)
    assert f"opaque.parameters.{problem}" in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "known"),
    [
        (GOOD, True),
        ({**SHARE, "later": 1}, True),
        ({**GOOD, "kind": "LaterConfig"}, False),
        ({**GOOD, "apiVersion": "resource.carina.dev/v9"}, False),
        ({}, False),
    ],
)
def test_kinds_that_this_version_knows(parameters: dict[str, Any], known: bool) -> None:
    assert is_of_known_kind(parameters) == known

"""Opaque configurations: strict, and by precedence."""

from typing import Any

import pytest

from carina_dra.config.device import API_VERSION, ConfigSource, DeviceConfigError, gpu_config

GOOD = {"apiVersion": API_VERSION, "kind": "GpuConfig"}


def source(
    parameters: dict[str, Any], *requests: str, from_class: bool = False, place: str = "config[0]"
) -> ConfigSource:
    return ConfigSource(place, from_class, frozenset(requests), parameters)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({**GOOD, "shareing": 1}, "opaque.parameters.shareing is not a field of GpuConfig"),
        ({"kind": "GpuConfig"}, "is no apiVersion, GpuConfig; write apiVersion"),
        ({**GOOD, "kind": "MigDeviceConfig"}, "MigDeviceConfig; write apiVersion"),
        ({**GOOD, "apiVersion": "resource.carina.dev/v9"}, "resource.carina.dev/v9, GpuConfig"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    parameters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeviceConfigError) as caught:
        gpu_config("gpu", [source(parameters, place="claim a/b, config[3]")])
    assert str(caught.value).startswith("claim a/b, config[3]: ")
    assert problem in str(caught.value)


def test_without_any_the_defaults_are_in_force() -> None:
    assert gpu_config("gpu", []).kind == "GpuConfig"


def test_a_mistake_is_found_even_where_another_overrides_it() -> None:
    bad = source({**GOOD, "x": 1}, from_class=True, place="class")
    with pytest.raises(DeviceConfigError, match="class"):
        gpu_config("gpu", [bad, source(GOOD)])


@pytest.mark.parametrize(
    ("request_name", "named", "applies"),
    [
        ("gpu", (), True),
        ("gpu", ("gpu",), True),
        ("gpu/big", ("gpu",), True),
        ("gpu/big", ("gpu/big",), True),
        ("gpu/big", ("gpu/small",), False),
        ("gpu", ("other",), False),
    ],
)
def test_a_configuration_applies_to_the_requests_it_names(
    request_name: str, named: tuple[str, ...], applies: bool
) -> None:
    assert source(GOOD, *named).applies_to(request_name) == applies
    bad = source({**GOOD, "x": 1}, *named)
    if applies:
        with pytest.raises(DeviceConfigError):
            gpu_config(request_name, [bad])
    else:
        gpu_config(request_name, [bad])

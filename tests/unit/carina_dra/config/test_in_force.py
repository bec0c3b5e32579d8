"""Which configuration is in force for a device: by precedence."""

from typing import Any

import pytest

from carina_dra.config import device
from carina_dra.config.device import (
    API_VERSION,
    DeviceConfig,
    DeviceConfigError,
    Enforcement,
    GpuConfig,
    ShareConfig,
    time_slice,
)
from carina_dra.config.in_force import ConfigSource, ConfiguredDevice, configs_in_force

SHARE = {"apiVersion": API_VERSION, "kind": "ShareConfig"}
GOOD = {"apiVersion": API_VERSION, "kind": "GpuConfig"}


def gpu_config(request: str, sources: list[ConfigSource]) -> DeviceConfig:
    """The configuration of one GPU that was allocated to the request."""
    (config,) = configs_in_force([ConfiguredDevice(request, "gpu-0", GpuConfig)], sources)
    return config


def share_config(sources: list[ConfigSource], *, interval_by_claim: bool = False) -> DeviceConfig:
    """The configuration of one share that was allocated to the request `gpu`."""
    (config,) = configs_in_force(
        [ConfiguredDevice("gpu", "gpu-0-share", ShareConfig)],
        sources,
        share_interval_by_claim=interval_by_claim,
    )
    return config


def source(
    parameters: dict[str, Any],
    *requests: str,
    from_class: bool = False,
    location: str = "config[0]",
) -> ConfigSource:
    return ConfigSource(location, from_class, frozenset(requests), parameters)


def test_without_any_the_defaults_are_in_force() -> None:
    assert gpu_config("gpu", []).kind == "GpuConfig"


def test_a_mistake_is_found_even_where_another_overrides_it() -> None:
    bad = source({**GOOD, "x": 1}, from_class=True, location="class")
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


class LaterConfig(GpuConfig):
    """Of a kind of device that is no whole GPU."""


class SettingConfig(GpuConfig):
    """With a setting, as later kinds have."""

    setting: int = 0


@pytest.mark.parametrize(
    ("from_class", "in_force"),
    [([True, False], 1), ([False, True], 0), ([False, False], 1), ([True, True], 1)],
    ids=["class, claim", "claim, class", "two of the claim", "two of the class"],
)
def test_the_claims_configuration_overrides_the_classs_and_a_later_one_an_earlier(
    monkeypatch: pytest.MonkeyPatch, from_class: list[bool], in_force: int
) -> None:
    monkeypatch.setitem(device.KINDS, "GpuConfig", SettingConfig)
    sources = [
        source({**GOOD, "setting": setting}, from_class=from_class[setting]) for setting in (0, 1)
    ]
    (config,) = configs_in_force([ConfiguredDevice("gpu", "gpu-0", SettingConfig)], sources)
    assert config == SettingConfig(setting=in_force)


def test_a_configuration_is_for_no_device_of_a_request_that_it_does_not_name() -> None:
    devices = [ConfiguredDevice(name, f"gpu-{name}", GpuConfig) for name in ("a", "b")]
    sliced = {
        **GOOD,
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}},
    }

    of_a, of_b = configs_in_force(devices, [source(sliced, "a")])
    assert (time_slice(of_a), time_slice(of_b)) == ("Short", None)


def test_a_kind_that_the_named_request_cannot_take_is_refused() -> None:
    with pytest.raises(DeviceConfigError) as caught:
        configs_in_force(
            [ConfiguredDevice("part", "gpu-0-part", LaterConfig)], [source(GOOD, "part")]
        )
    for words in (f"config[0]: {API_VERSION} kind GpuConfig", "device gpu-0-part", "request part"):
        assert words in str(caught.value)


def test_a_configuration_without_requests_is_for_the_devices_of_its_kind() -> None:
    devices = [
        ConfiguredDevice("whole", "gpu-1", GpuConfig),
        ConfiguredDevice("part", "gpu-0-part", LaterConfig),
    ]
    whole, part = configs_in_force(devices, [source(GOOD)])
    assert (type(whole), type(part)) == (GpuConfig, LaterConfig)


def test_a_configuration_that_is_for_none_of_the_devices_is_refused() -> None:
    with pytest.raises(DeviceConfigError, match="is not for device gpu-0-part"):
        configs_in_force([ConfiguredDevice("part", "gpu-0-part", LaterConfig)], [source(GOOD)])


def test_a_configuration_without_requests_may_be_for_an_alternative_that_was_not_allocated() -> (
    None
):
    devices = [ConfiguredDevice("gpu/part", "gpu-0-part", LaterConfig)]
    assert configs_in_force(devices, [source(GOOD)]) == (LaterConfig(),)
    with pytest.raises(DeviceConfigError, match="is not for device gpu-0-part"):
        configs_in_force(devices, [source(GOOD, "gpu")])


def sliced_share(interval: str | None, *, from_class: bool = False) -> ConfigSource:
    slicing = None if interval is None else {"interval": interval}
    return source({**SHARE, "timeSlicing": slicing}, from_class=from_class, location="config[1]")


@pytest.mark.parametrize(
    ("of_class", "of_claim", "by_claim", "interval"),
    [
        ("Long", None, False, "Long"),
        ("Long", "Default", False, "Long"),
        ("Long", "Long", False, "Long"),
        ("Long", "Default", True, "Long"),
        ("Default", "Default", False, None),
        ("Default", "Short", True, "Short"),
        (None, "Short", True, "Short"),
    ],
)
def test_the_time_slices_of_a_share_are_those_of_its_class(
    of_class: str | None, of_claim: str | None, by_claim: bool, interval: str | None
) -> None:
    sources = [sliced_share(of_class, from_class=True), sliced_share(of_claim)]
    config = share_config(sources, interval_by_claim=by_claim)
    assert time_slice(config) == interval


@pytest.mark.parametrize(
    ("of_class", "by_claim", "problem"),
    [
        ("Default", False, "so a claim may not choose it; remove it, or use a DeviceClass that"),
        ("Long", False, "which its DeviceClass sets to Long; remove it, or use another class"),
        ("Long", True, "which its DeviceClass sets to Long; remove it, or use another class"),
    ],
)
def test_a_claim_may_not_choose_what_other_claims_get(
    of_class: str, by_claim: bool, problem: str
) -> None:
    sources = [sliced_share(of_class, from_class=True), sliced_share("Short")]
    with pytest.raises(DeviceConfigError) as caught:
        share_config(sources, interval_by_claim=by_claim)
    assert str(caught.value).startswith(
        "config[1]: opaque.parameters.timeSlicing.interval is Short, and all shares of a GPU have "
    )
    assert problem in str(caught.value)


def test_share_config_demands_nothing_by_default() -> None:
    expected = ShareConfig(enforcement=Enforcement(memory=(), cores=()))
    assert share_config([]) == share_config([source(SHARE)]) == expected


@pytest.mark.parametrize(
    ("of_class", "of_claim", "in_force"),
    [
        ({"memory": "kernel"}, {}, Enforcement(memory=("kernel",))),
        ({}, {"memory": "mps"}, Enforcement(memory=("mps",))),
        ({"memory": "kernel"}, {"memory": "none"}, Enforcement(memory=("kernel",))),
        ({"memory": "kernel"}, {"memory": []}, Enforcement(memory=("kernel",))),
        ({"memory": "mps"}, {"memory": "kernel"}, Enforcement(memory=("kernel", "mps"))),
        (
            {"memory": ["mps", "watchdog"]},
            {"memory": "mps"},
            Enforcement(memory=("mps", "watchdog")),
        ),
        ({"memory": "mps"}, {"cores": "mps"}, Enforcement(memory=("mps",), cores=("mps",))),
        ({"cores": "mps"}, {"cores": "time-slice"}, Enforcement(cores=("mps", "time-slice"))),
    ],
)
def test_claim_adds_to_what_its_class_demands_and_cannot_weaken_it(
    of_class: dict[str, Any], of_claim: dict[str, Any], in_force: Enforcement
) -> None:
    sources = [
        source({**SHARE, "enforcement": of_class}, from_class=True),
        source({**SHARE, "enforcement": of_claim}),
    ]
    assert share_config(sources) == ShareConfig(enforcement=in_force)

"""Opaque configurations: strict, and by precedence."""

from typing import Any

import pytest

from carina_dra.config import device
from carina_dra.config.device import (
    API_VERSION,
    ConfigSource,
    ConfiguredDevice,
    DeviceConfig,
    DeviceConfigError,
    Enforcement,
    GpuConfig,
    ShareConfig,
    configs_in_force,
    is_of_known_kind,
    parse_device_config,
    read_recorded,
    time_slice,
)

SHARE = {"apiVersion": API_VERSION, "kind": "ShareConfig"}
GOOD = {"apiVersion": API_VERSION, "kind": "GpuConfig"}


def _time_slicing(interval: str) -> dict[str, Any]:
    return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}


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
        gpu_config("gpu", [source(parameters, location="claim a/b, config[3]")])
    assert str(caught.value).startswith("claim a/b, config[3]: ")
    assert problem in str(caught.value)


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
    sliced = {**GOOD, "sharing": _time_slicing("Short")}

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


def test_recorded_configurations_may_have_fields_of_a_newer_version() -> None:
    assert read_recorded("config", {**GOOD, "later": {"deep": 1}}) == GpuConfig()


def test_of_many_mistakes_five_are_named_on_one_line() -> None:
    many = {**GOOD, **{f"x\n{index}": 1 for index in range(100)}}
    with pytest.raises(DeviceConfigError) as caught:
        gpu_config("gpu", [source(many)])
    assert str(caught.value).endswith("; and 95 more")
    assert "\n" not in str(caught.value)


def test_a_name_with_a_dot_is_told_from_a_path_of_fields() -> None:
    with pytest.raises(DeviceConfigError, match=r"opaque\.parameters\.'sharing\.strategy' is not"):
        gpu_config("gpu", [source({**GOOD, "sharing.strategy": "TimeSlicing"})])


def test_five_mistakes_are_all_there_are() -> None:
    with pytest.raises(DeviceConfigError) as caught:
        gpu_config("gpu", [source({**GOOD, **{f"x{index}": 1 for index in range(5)}})])
    assert str(caught.value).count("is not a field of") == 5
    assert "more" not in str(caught.value)


@pytest.mark.parametrize(("length", "shown"), [(60, "k" * 60), (61, "k" * 60 + "…")])
def test_a_name_is_cut_after_sixty_characters(length: int, shown: str) -> None:
    with pytest.raises(DeviceConfigError, match=f"{API_VERSION}, {shown}; write"):
        gpu_config("gpu", [source({**GOOD, "kind": "k" * length})])


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
        share_config([source(parameters)])
    assert f"opaque.parameters.{problem}" in str(caught.value)


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


@pytest.mark.parametrize(
    ("parameters", "interval"),
    [
        (GOOD, None),
        ({**GOOD, "sharing": {"strategy": "TimeSlicing"}}, "Default"),
        ({**GOOD, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}}, "Default"),
        ({**GOOD, "sharing": _time_slicing("Medium")}, "Medium"),
        ({**GOOD, "kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing"}}, None),
        (SHARE, None),
        ({**SHARE, "timeSlicing": {}}, None),
        ({**SHARE, "timeSlicing": {"interval": "Long"}}, "Long"),
    ],
)
def test_time_slices_that_a_configuration_demands(
    parameters: dict[str, Any], interval: str | None
) -> None:
    assert time_slice(parse_device_config("config[0]", parameters)) == interval

"""Opaque configurations of NVIDIA's API: as strict as Carina's own, and mapped to them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.config import device, nvidia
from carina_dra.config.device import (
    DeviceConfig,
    DeviceConfigError,
    GpuConfig,
    GpuSharing,
    MigDeviceConfig,
    MpsSharing,
    PartitionSharing,
    ShareConfig,
    TimeSlicingConfig,
    time_slice,
)
from carina_dra.config.in_force import (
    ConfigSource,
    ConfiguredDevice,
    configs_in_force,
)
from carina_dra.config.mps import MpsLimits
from carina_dra.config.reading import (
    is_of_known_kind,
    parse_device_config,
    read_recorded,
)
from carina_dra.config.time_slice import TimeSliceInterval
from carina_dra.kube.event import cut_note

API = "resource.nvidia.com/v1beta1"
GPU = {"apiVersion": API, "kind": "GpuConfig"}
MIG = {"apiVersion": API, "kind": "MigDeviceConfig"}
OURS = {"apiVersion": device.API_VERSION, "kind": "GpuConfig"}
TIME_SLICING = {"strategy": "TimeSlicing"}
MPS = {"strategy": "MPS"}
NO_LIMITS: list[Any] = ["1048575", "ten", "", -1, True, "9" * 101, {}, 1.5]


def sharing(interval: str) -> dict[str, Any]:
    return {"sharing": {**TIME_SLICING, "timeSlicingConfig": {"interval": interval}}}


def sliced(interval: TimeSliceInterval) -> GpuConfig:
    slicing = TimeSlicingConfig(interval=interval)
    return GpuConfig(sharing=GpuSharing(strategy="TimeSlicing", timeSlicingConfig=slicing))


def limited(**limits: Any) -> MpsSharing:
    """Sharing by MPS, with memory in MiB."""
    return MpsSharing(strategy="MPS", mpsConfig=MpsLimits.model_construct(**limits))


def source(parameters: dict[str, Any], *requests: str, from_class: bool = False) -> ConfigSource:
    return ConfigSource("config[0]", from_class, frozenset(requests), parameters)


def in_force(sources: list[ConfigSource], *accepts: type[DeviceConfig]) -> list[DeviceConfig]:
    devices = [ConfiguredDevice(f"r{i}", f"d{i}", kind) for i, kind in enumerate(accepts)]
    return list(configs_in_force(devices, sources))


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        (GPU, GpuConfig()),
        ({**GPU, "sharing": None}, GpuConfig()),
        ({**GPU, "sharing": TIME_SLICING}, sliced("Default")),
        ({**GPU, "sharing": {**TIME_SLICING, "timeSlicingConfig": {}}}, sliced("Default")),
        ({**GPU, "sharing": {**TIME_SLICING, "timeSlicingConfig": None}}, sliced("Default")),
        (
            {**GPU, "sharing": {**TIME_SLICING, "timeSlicingConfig": {"interval": None}}},
            sliced("Default"),
        ),
        ({**GPU, **sharing("Default")}, sliced("Default")),
        ({**GPU, **sharing("Short")}, sliced("Short")),
        ({**GPU, **sharing("Medium")}, sliced("Medium")),
        ({**GPU, **sharing("Long")}, sliced("Long")),
        ({**GPU, "sharing": {**TIME_SLICING, "mpsConfig": None}}, sliced("Default")),
        (MIG, MigDeviceConfig()),
        (
            {**MIG, "sharing": TIME_SLICING},
            MigDeviceConfig(sharing=PartitionSharing(strategy="TimeSlicing")),
        ),
        ({**GPU, "sharing": MPS}, GpuConfig(sharing=limited())),
        ({**GPU, "sharing": {**MPS, "mpsConfig": None}}, GpuConfig(sharing=limited())),
        (
            {**GPU, "sharing": {**MPS, "timeSlicingConfig": None, "mpsConfig": {}}},
            GpuConfig(sharing=limited()),
        ),
        (
            {
                **GPU,
                "sharing": {
                    **MPS,
                    "mpsConfig": {
                        "defaultActiveThreadPercentage": 50,
                        "defaultPinnedDeviceMemoryLimit": "10Gi",
                        "defaultPerDevicePinnedMemoryLimit": {"0": "2147483648", "GPU-1": 1048576},
                        "multiUser": False,
                    },
                },
            },
            GpuConfig(
                sharing=limited(
                    defaultActiveThreadPercentage=50,
                    defaultPinnedDeviceMemoryLimit=10240,
                    defaultPerDevicePinnedMemoryLimit={"0": 2048, "GPU-1": 1},
                )
            ),
        ),
        (
            {**MIG, "sharing": {**MPS, "mpsConfig": {"defaultActiveThreadPercentage": 0}}},
            MigDeviceConfig(sharing=limited()),
        ),
        (
            {**MIG, "sharing": {**MPS, "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "1.9Mi"}}},
            MigDeviceConfig(sharing=limited(defaultPinnedDeviceMemoryLimit=1)),
        ),
    ],
)
def test_each_is_mapped_to_carinas_own(written: dict[str, Any], ours: DeviceConfig) -> None:
    assert parse_device_config("config[0]", written) == ours


@pytest.mark.parametrize("percentage", [1, 100])
def test_a_part_of_the_multiprocessors_is_up_to_all_of_them(percentage: int) -> None:
    limits = {"defaultActiveThreadPercentage": percentage}
    written = {**GPU, "sharing": {**MPS, "mpsConfig": limits}}
    assert in_force([source(written)], GpuConfig) == [GpuConfig(sharing=limited(**limits))]


def test_time_slicing_demands_nothing_of_a_partition() -> None:
    assert time_slice(parse_device_config("config[0]", {**MIG, "sharing": TIME_SLICING})) is None


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (
            {**GPU, "shareing": 1},
            (
                f"opaque.parameters.shareing is not a field of {API} GpuConfig; "
                "remove it or correct its name"
            ),
        ),
        (
            {**GPU, "sharing": {}},
            f"opaque.parameters.sharing.strategy of {API} GpuConfig: Field",
        ),
        (
            {**GPU, "sharing": {"strategy": "Exclusive"}},
            (
                f"opaque.parameters.sharing.strategy of {API} GpuConfig: Input "
                "should be 'TimeSlicing' or 'MPS'"
            ),
        ),
        (
            {**GPU, **sharing("Longer")},
            f"sharing.timeSlicingConfig.interval of {API} GpuConfig: Input",
        ),
        (
            {**GPU, "sharing": {**MPS, "timeSlicingConfig": {}}},
            (
                f"sharing.timeSlicingConfig of {API} GpuConfig: it is for strategy TimeSlicing, "
                "but the strategy is MPS; remove it"
            ),
        ),
        (
            {**GPU, "sharing": {**MPS, "mpsConfig": {"defaultActiveThreadPercentage": 101}}},
            "sharing.mpsConfig.defaultActiveThreadPercentage of resource",
        ),
        *(
            (
                {**MIG, "sharing": {**MPS, "mpsConfig": {"defaultPinnedDeviceMemoryLimit": limit}}},
                (
                    f"sharing.mpsConfig.defaultPinnedDeviceMemoryLimit of {API} MigDeviceConfig: "
                    "write a quantity of at least 1Mi, such as 10Gi"
                ),
            )
            for limit in NO_LIMITS
        ),
        (
            {
                **GPU,
                "sharing": {**MPS, "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"0": None}}},
            },
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.'0' of resource",
        ),
        (
            {**GPU, "sharing": {**MPS, "mpsConfig": {"multiuser": True}}},
            "sharing.mpsConfig.multiuser is not a field of resource",
        ),
        (
            {**GPU, "sharing": {**TIME_SLICING, "mpsConfig": {}}},
            (
                f"sharing.mpsConfig of {API} GpuConfig: it is for strategy MPS, "
                "but the strategy is TimeSlicing; remove it"
            ),
        ),
        (
            {**MIG, "sharing": {**TIME_SLICING, "mpsConfig": {"multiUser": True}}},
            f"sharing.mpsConfig of {API} MigDeviceConfig: it is for strategy",
        ),
        (
            {**MIG, **sharing("Short")},
            f"sharing.timeSlicingConfig is not a field of {API} MigDevice",
        ),
        (
            {**GPU, "kind": "VfioDeviceConfig", "iommu": {"backendPolicy": "PreferIommuFD"}},
            (
                f"opaque.parameters is {API}, VfioDeviceConfig, which configures "
                "GPU passthrough, which Carina does not offer; remove it"
            ),
        ),
        (
            {**GPU, "kind": "ComputeDomainChannelConfig", "domainID": "a"},
            (
                "ComputeDomainChannelConfig, which configures ComputeDomains, which are of the "
                "driver compute-domain.nvidia.com; name that driver in opaque.driver"
            ),
        ),
        (
            {**GPU, "kind": "ComputeDomainDaemonConfig", "domainID": "a"},
            "ComputeDomainDaemonConfig, which configures ComputeDomains",
        ),
        (
            {**GPU, "kind": "ShareConfig"},
            f"{API}, ShareConfig; write kind: GpuConfig or MigDeviceConfig",
        ),
        ({**GPU, "kind": ["GpuConfig"]}, f"{API}, a kind that is not a string; write kind: GpuC"),
        ({**GPU, "kind": ""}, f"{API}, no kind; write kind: GpuConfig or MigDeviceConfig"),
        ({**GPU, "kind": "Gpu\nConfig"}, f"{API}, 'Gpu\\nConfig'; write kind: GpuConfig or"),
        ({**GPU, "kind": "K" * 9000}, f"{API}, {'K' * 60}…; write kind: GpuConfig or"),
        ({**GPU, "apiVersion": "v" * 9000}, f"is {'v' * 60}…, GpuConfig; write apiVersion: "),
        (
            {**GPU, "x" * 9000: 1},
            f"opaque.parameters.{'x' * 60}… is not a field of {API} GpuConfig",
        ),
        (
            {**GPU, "apiVersion": "gpu.nvidia.com/v1alpha1"},
            (
                f"is gpu.nvidia.com/v1alpha1, GpuConfig; write apiVersion: {device.API_VERSION}, "
                "kind: GpuConfig or MigDeviceConfig or ShareConfig; or apiVersion: "
                f"{API}, kind: GpuConfig or MigDeviceConfig"
            ),
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_the_names_that_the_user_wrote(
    parameters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeviceConfigError) as caught:
        parse_device_config("claim a/b, config[3]", parameters)
    assert str(caught.value).startswith("claim a/b, config[3]: ")
    assert problem in str(caught.value)


NVIDIAS_SHORT, OUR_LONG = {**GPU, **sharing("Short")}, {**OURS, **sharing("Long")}


@pytest.mark.parametrize(
    ("sources", "interval"),
    [
        ([source(NVIDIAS_SHORT, from_class=True), source(OUR_LONG)], "Long"),
        ([source(OUR_LONG, from_class=True), source(NVIDIAS_SHORT)], "Short"),
        ([source(OUR_LONG), source(NVIDIAS_SHORT, from_class=True)], "Long"),
        ([source(NVIDIAS_SHORT), source(OUR_LONG, from_class=True)], "Short"),
        ([source(NVIDIAS_SHORT), source(OUR_LONG)], "Long"),
        ([source(OUR_LONG), source(NVIDIAS_SHORT)], "Short"),
        ([source(NVIDIAS_SHORT, from_class=True), source(GPU)], None),
        ([source(OUR_LONG, from_class=True), source(GPU)], None),
    ],
)
def test_precedence_does_not_depend_on_the_api(
    sources: list[ConfigSource], interval: str | None
) -> None:
    (config,) = in_force(sources, GpuConfig)
    assert time_slice(config) == interval


def test_one_that_names_no_request_is_for_the_devices_of_its_kind() -> None:
    sources = [source(NVIDIAS_SHORT), source({**MIG, "sharing": TIME_SLICING})]

    assert in_force(sources, GpuConfig, MigDeviceConfig) == [
        sliced("Short"),
        MigDeviceConfig(sharing=PartitionSharing(strategy="TimeSlicing")),
    ]


def test_one_that_names_no_request_and_suits_no_device_is_ignored() -> None:
    assert in_force([source(NVIDIAS_SHORT)], MigDeviceConfig) == [MigDeviceConfig()]


def test_one_that_suits_no_device_is_refused_beside_one_that_nvidias_driver_does_not_have() -> None:
    with pytest.raises(DeviceConfigError, match="MigDeviceConfig is not for device"):
        in_force([source(MIG)], GpuConfig, ShareConfig)


def test_one_that_suits_only_devices_that_nvidias_driver_does_not_have_is_refused() -> None:
    with pytest.raises(DeviceConfigError, match=r"GpuConfig is not for device d0.*ShareConfig"):
        in_force([source(NVIDIAS_SHORT)], ShareConfig)


_WRITTEN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([API, "GpuConfig", "MigDeviceConfig", "TimeSlicing", "MPS", "Default"])
    | st.text(max_size=80),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["strategy", "timeSlicingConfig", "interval", "mpsConfig"])
            | st.text(max_size=80),
            inner,
            max_size=8,
        )
    ),
    max_leaves=20,
)


@given(
    st.fixed_dictionaries(
        {
            "apiVersion": st.just(API) | _WRITTEN,
            "kind": st.sampled_from(list(nvidia.KINDS)) | _WRITTEN,
        },
        optional={"sharing": _WRITTEN, "other\x1b[31m": _WRITTEN},
    )
)
def test_whatever_is_written_is_read_or_refused_in_a_line_of_an_event(
    parameters: dict[str, Any],
) -> None:
    try:
        answer = str(parse_device_config("config[0]", parameters))
    except DeviceConfigError as refused:
        answer = str(refused)
    assert answer.isprintable()
    assert cut_note(answer) == answer


def test_a_kind_that_is_nested_deeply_is_refused() -> None:
    kind: dict[str, Any] = {}
    for _ in range(10_000):
        kind = {"kind": kind}
    for api in (API, device.API_VERSION):
        with pytest.raises(DeviceConfigError, match="a kind that is not a string"):
            parse_device_config("config[0]", {"apiVersion": api, "kind": kind})


@pytest.mark.parametrize(
    ("accepts", "remedy"),
    [
        (MigDeviceConfig, f"apiVersion: {API}, kind: MigDeviceConfig"),
        (ShareConfig, "apiVersion: resource.carina.dev/v1alpha1, kind: ShareConfig"),
    ],
)
def test_one_that_names_a_request_must_suit_its_devices(
    accepts: type[DeviceConfig], remedy: str
) -> None:
    with pytest.raises(DeviceConfigError) as caught:
        in_force([source(GPU, "r0")], accepts)
    assert str(caught.value) == (
        f"config[0]: {API} kind GpuConfig is not for device d0, which was "
        f"allocated to request r0; write {remedy}"
    )


def test_a_mistake_is_found_even_where_another_overrides_it() -> None:
    bad = source({**GPU, "x": 1}, from_class=True)
    with pytest.raises(DeviceConfigError, match="x is not a field of resource"):
        in_force([bad, source(OURS)], GpuConfig)


def test_limits_of_mps_are_recorded_as_they_are_read() -> None:
    limits = {
        "defaultPinnedDeviceMemoryLimit": "1G",
        "defaultPerDevicePinnedMemoryLimit": {"1": 2**30},
    }
    config = parse_device_config("config[0]", {**GPU, "sharing": {**MPS, "mpsConfig": limits}})

    assert read_recorded("config", config.model_dump(mode="json")) == config


def test_records_have_carinas_own_form_only() -> None:
    recorded = parse_device_config("config[0]", NVIDIAS_SHORT).model_dump()

    assert recorded["apiVersion"] == device.API_VERSION
    assert read_recorded("config", recorded) == sliced("Short")
    assert not is_of_known_kind(NVIDIAS_SHORT)
    with pytest.raises(DeviceConfigError, match=nvidia.API_VERSION):
        read_recorded("config", NVIDIAS_SHORT)

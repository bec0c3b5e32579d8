"""Partitions as devices: their names, their published forms and the API's limits."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import (
    BoolAttribute,
    DeviceAttribute,
    IntAttribute,
    StringAttribute,
    TaintEffect,
    VersionAttribute,
    limits,
)
from kubelet_plugin.devices.conflict import DeviceHold, conflict
from kubelet_plugin.devices.counters import counter_set_name
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.name import PartitionName, UnknownName, gpu_name, parse_name
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, pool
from simulation.nvml import mig
from simulation.nvml.hardware import GpuModel
from simulation.nvml.state import GpuInstance
from tests.samples.gpus import LOST
from tests.samples.mig_models import MODELS, observed_with

SETTINGS = PublishSettings("gpu.carina.dev")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
H100 = MODELS["h100-sxm5-80gb"]
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def of(model: GpuModel, *profiles: tuple[int, int]) -> tuple[GpuDevice, ...]:
    """The devices of a GPU with an administrator's instances: profile ID and start of each."""
    instances: tuple[GpuInstance, ...] = ()
    for profile_id, start in profiles:
        profile = mig.profile_by_id(model, profile_id)
        assert profile is not None
        instances = mig.create(model, instances, profile, start)[1]
    return devices(DriverReady((observed_with(model, instances),)))


# --- names ---


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.5gb", "gpu-3-mig-1g5gb-19-4"),
        ("1g.5gb+me", "gpu-3-mig-1g5gb-me-19-4"),
        ("1g.24gb-me", "gpu-3-mig-1g24gb-me-19-4"),
        ("1g.24gb+gfx", "gpu-3-mig-1g24gb-gfx-19-4"),
        ("1g.24gb+me.all", "gpu-3-mig-1g24gb-meall-19-4"),
        ("7g.141GB", "gpu-3-mig-7g141gb-19-4"),
        ("1c.2g.20gb", "gpu-3-mig-1c2g20gb-19-4"),
    ],
)
def test_a_name_has_the_profile_without_what_the_api_does_not_allow(
    profile: str, name: str
) -> None:
    named = PartitionName.of(3, profile, 19, 4)

    assert str(named) == name
    assert parse_name(name) == named
    assert gpu_name(named) == "gpu-3"


@given(
    st.integers(0, 15),
    st.from_regex(r"[1-7]g\.[0-9]{1,3}gb([+-](me|gfx|me\.all))?", fullmatch=True),
    st.integers(0, 200),
    st.integers(0, 31),
)
def test_the_name_of_any_profile_is_read_back_and_allowed(
    minor: int, profile: str, profile_id: int, start: int
) -> None:
    named = PartitionName.of(minor, profile, profile_id, start)

    assert parse_name(str(named)) == named
    assert DNS_LABEL.fullmatch(str(named))


@pytest.mark.parametrize(
    "text",
    [
        "gpu-0-mig",
        "gpu-0-mig-",
        "gpu-0-mig-1g10gb",
        "gpu-0-mig-1g10gb-19",
        "gpu-0-mig--19-6",
        "gpu-0-mig-1g10gb-019-6",
        "gpu-0-mig-1g10gb-19-06",
        "gpu-0-mig-1G10gb-19-6",
        "gpu-0-mig-1g.10gb-19-6",
        "gpu-0-mig-1g10gb-19-6-",
        "gpu-0-mig-1g10gb-19-\N{ARABIC-INDIC DIGIT SIX}",
    ],
)
def test_a_name_that_is_not_written_so_is_unknown(text: str) -> None:
    assert parse_name(text) == UnknownName(text, 0)


@each_model
def test_names_of_all_devices_of_a_gpu_are_unique(model: GpuModel) -> None:
    names = [device.name for device in of(model)]

    assert len(names) == len(set(names))


# --- conflicts ---


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-6", False),
        ("gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-5", True),
        ("gpu-0-mig-1g10gb-19-6", "gpu-1-mig-1g10gb-19-6", True),
        ("gpu-0-mig-1g10gb-19-6", "gpu-0", False),
        ("gpu-0-mig-1g10gb-19-6", "gpu-1", True),
        ("gpu-0-mig-1g10gb-19-6", "gpu-0-share", False),
        ("gpu-0-mig-1g10gb-19-6", "gpu-0-monitor", True),
        ("gpu-0-mig-1g10gb-19-6", "gpu-0-later", False),
        ("gpu-0-mig-1g10gb-19-6", "gpu-1-later", True),
    ],
)
def test_which_devices_can_be_held_beside_a_partition(one: str, other: str, together: bool) -> None:
    first, second = DeviceHold(parse_name(one)), DeviceHold(parse_name(other))

    assert conflict(first, second) == conflict(second, first) == (not together)


# --- order ---


@each_model
def test_smaller_partitions_come_first_and_of_one_profile_the_last_placement(
    model: GpuModel,
) -> None:
    found = [device for device in of(model) if isinstance(device, Partition)]

    assert len(found) == sum(len(profile.starts) for profile in model.mig_profiles)
    for one, other in pairwise(found):
        if one.profile == other.profile:
            assert one.placement > other.placement
        else:
            assert one.profile.resources.memory_mib <= other.profile.resources.memory_mib


# --- published ---


def test_an_administrators_instance_is_published_with_its_uuid_and_consumes_nothing() -> None:
    (found,) = [device for device in of(H100, (9, 4)) if isinstance(device, FoundPartition)]
    published = found.published(SETTINGS)

    assert found.name == "gpu-0-mig-3g40gb-9-4"
    assert published.attributes["uuid"] == StringAttribute(found.uuid)
    assert published.attributes["parentUUID"] == StringAttribute(found.gpu.uuid)
    assert published.consumes_counters == ()
    slices = {name for name in published.capacity if name.startswith("memorySlice")}
    assert slices == {f"memorySlice{index}" for index in range(4, 8)}


def test_beside_an_administrators_instance_there_are_partitions_and_monitors_only() -> None:
    found = of(H100, (9, 4))

    assert {device.kind for device in found} == {"mig", "monitor"}
    assert {device.name for device in found if isinstance(device, Partition)} >= {
        "gpu-0-mig-4g40gb-5-0",
        "gpu-0-mig-3g40gb-9-0",
        "gpu-0-mig-1g10gb-19-3",
    }


@each_model
def test_a_partition_says_whose_it_is_and_what_it_has(model: GpuModel) -> None:
    for device in of(model):
        if isinstance(device, Partition):
            published = device.published(SETTINGS)
            assert published.attributes["type"] == StringAttribute("mig")
            assert published.attributes["profile"] == StringAttribute(device.profile.name)
            assert "uuid" not in published.attributes
            assert "nvlinkDomain" not in published.attributes
            memory = published.capacity["memory"].value.value()
            assert memory == device.profile.resources.memory_mib * 2**20
            (consumed,) = published.consumes_counters
            assert consumed.counter_set == counter_set_name(device.gpu)


@each_model
def test_a_gpu_with_a_problem_keeps_all_partitions_from_being_allocated_and_no_monitor(
    model: GpuModel,
) -> None:
    seen = observed_with(model, ())
    lost = type(seen)(seen.gpu, type(seen.state)(problems=frozenset({LOST})))

    tainted = {
        device.kind: {taint.effect for taint in device.published(SETTINGS).taints}
        for device in devices(DriverReady((lost,)))
    }

    assert tainted[DeviceKind.MIG] == {TaintEffect.NO_EXECUTE}
    assert tainted[DeviceKind.MONITOR] == set()


# --- the API's limits ---


@each_model
@pytest.mark.parametrize("found", [False, True], ids=["free", "with an administrator's instances"])
def test_a_node_with_eight_gpus_is_within_the_limits_of_the_api(
    model: GpuModel, found: bool
) -> None:
    largest = max(model.mig_profiles, key=lambda profile: profile.size)
    instances = mig.create(model, (), largest, 0)[1] if found else ()
    seen = tuple(observed_with(model, instances, minor) for minor in range(8))

    slices = pool(devices(DriverReady(seen)), SETTINGS, node="node-1").slices

    for content in slices:
        match content:
            case CounterSlice(sets):
                assert len(sets) <= limits.COUNTER_SETS_PER_SLICE
                for counters in sets:
                    assert 0 < len(counters.counters) <= limits.COUNTERS_PER_SET
                    assert all(DNS_LABEL.fullmatch(name) for name in counters.counters)
            case DeviceSlice(published):
                assert len(published) <= limits.DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES
                for device in published:
                    assert DNS_LABEL.fullmatch(device.name)
                    together = len(device.attributes) + len(device.capacity)
                    assert together <= limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
                    assert len(device.consumes_counters) <= limits.COUNTER_SETS_PER_DEVICE
                    for consumed in device.consumes_counters:
                        assert len(consumed.counters) <= limits.COUNTERS_PER_CONSUMPTION
                    for name in (*device.attributes, *device.capacity):
                        assert len(name.rpartition("/")[2]) <= limits.ATTRIBUTE_IDENTIFIER_LENGTH
                    assert all(map(_is_short, device.attributes.values()))


@each_model
def test_every_counter_that_a_device_consumes_is_in_its_set(model: GpuModel) -> None:
    slices = pool(devices(DriverReady((observed_with(model, ()),))), SETTINGS, node="n").slices
    (counters,) = [
        one
        for content in slices
        if isinstance(content, CounterSlice)
        for one in content.counter_sets
    ]

    for content in slices:
        if isinstance(content, DeviceSlice):
            for device in content.devices:
                for consumed in device.consumes_counters:
                    assert consumed.counters.keys() <= counters.counters.keys()


def _is_short(attribute: DeviceAttribute) -> bool:
    match attribute:
        case IntAttribute() | BoolAttribute():
            return True
        case StringAttribute(text) | VersionAttribute(text):
            return len(text.encode()) <= limits.ATTRIBUTE_TEXT_BYTES
        case _:
            raise AssertionError(f"{attribute} is of a type that devices have not")

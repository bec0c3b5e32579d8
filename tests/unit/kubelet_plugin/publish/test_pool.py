"""What the node publishes of its devices."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.capacity import consumed_capacity, fits
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    BoolAttribute,
    CapacityRequirements,
    Counter,
    Device,
    DeviceTaint,
    IntAttribute,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    StringAttribute,
    TaintEffect,
    ValidRange,
    VersionAttribute,
)
from kubelet_plugin.devices.attributes import semantic_version
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.order import DeviceOrder, groups
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.gpu import NvLink
from kubelet_plugin.inventory.health import GpuProblem
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.mig import MigLayout, MigSupported
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, PublishedPool, pool
from tests.samples import golden_slices
from tests.samples.gpus import LOST, MIG, UNREADABLE, monitor, observed, share, whole
from tests.samples.mig_models import MODELS, observed_with

DRIVER = "gpu.carina.dev"


def pool_of(*devices: GpuDevice, settings: PublishSettings | None = None) -> PublishedPool:
    return pool(devices, settings or PublishSettings(DRIVER), node="node-1")


def published(*devices: GpuDevice, settings: PublishSettings | None = None) -> list[Device]:
    slices = pool_of(*devices, settings=settings).slices
    return [device for each in slices if isinstance(each, DeviceSlice) for device in each.devices]


@pytest.mark.parametrize("profile", golden_slices.PROFILES)
def test_slices_of_a_simulated_node_are_as_in_the_golden_file(profile: str, tmp_path: Path) -> None:
    made = golden_slices.render(golden_slices.simulated_pool(profile, tmp_path))

    assert made == golden_slices.golden_file(profile).read_text()


def test_a_node_without_devices_has_no_slices() -> None:
    assert pool_of().slices == ()


def test_counter_sets_come_before_the_devices_that_consume_them() -> None:
    made = pool_of(whole(0), whole(1))

    counters, devices = made.slices
    assert isinstance(counters, CounterSlice)
    assert isinstance(devices, DeviceSlice)
    assert [counter_set.name for counter_set in counters.counter_sets] == ["gpu-0", "gpu-1"]
    assert [
        (consumption.counter_set, consumption.counters)
        for device in devices.devices
        for consumption in device.consumes_counters
    ] == [(available.name, available.counters) for available in counters.counter_sets]


@pytest.mark.parametrize(
    "number_of_gpus", [1, 8, 9, 16, 64, 65, 130], ids=lambda number: f"{number} GPUs"
)
def test_slices_stay_within_the_limits_of_the_api(number_of_gpus: int) -> None:
    made = pool_of(*(whole(minor) for minor in range(number_of_gpus)))

    counters = [content for content in made.slices if isinstance(content, CounterSlice)]
    devices = [content for content in made.slices if isinstance(content, DeviceSlice)]
    assert made.slices == (*counters, *devices)
    assert all(0 < len(content.counter_sets) <= 8 for content in counters)
    assert all(0 < len(content.devices) <= 64 for content in devices)
    names = [f"gpu-{minor}" for minor in range(number_of_gpus)]
    assert [found.name for content in counters for found in content.counter_sets] == names
    assert [found.name for content in devices for found in content.devices] == names


@pytest.mark.parametrize(("number_of_gpus", "slices"), [(1, 1), (8, 5), (9, 5), (16, 9)])
def test_a_policy_has_devices_of_one_size_in_as_few_slices_as_they_fit(
    number_of_gpus: int, slices: int
) -> None:
    gpus = [observed_with(MODELS["h100-sxm5-80gb"], (), minor) for minor in range(number_of_gpus)]
    found = devices(DriverReady(tuple(gpus)))

    made = pool(found, PublishSettings(DRIVER), node="node-1", order=DeviceOrder.BINPACK)

    contents = [content.devices for content in made.slices if isinstance(content, DeviceSlice)]
    assert len(contents) == slices
    assert all(0 < len(content) <= 64 for content in contents)
    names = [device.name for content in contents for device in content]
    assert names == [
        device.name for group in groups(found, DeviceOrder.BINPACK) for device in group
    ]
    for group in groups(found, DeviceOrder.BINPACK):
        members = {device.name for device in group}
        having = [content for content in contents if members & {one.name for one in content}]
        assert len(having) == -(-len(group) // 64)


def test_monitor_consumes_nothing_and_is_tainted_by_no_problem() -> None:
    (device,) = published(monitor(0, LOST))

    assert device.attributes["type"] == StringAttribute("monitor")
    assert (device.capacity, device.consumes_counters, device.taints) == ({}, (), ())


def test_shares_consume_all_of_their_gpu_and_have_its_taints() -> None:
    of_whole, of_shares = published(whole(0, LOST, mig=MIG), share(0, LOST, mig=MIG))

    assert of_shares.allow_multiple_allocations is True
    assert of_shares.consumes_counters == of_whole.consumes_counters
    assert of_shares.taints == of_whole.taints != ()


@pytest.mark.parametrize(
    ("capability", "level"),
    [((7, 0), "time-slice"), ((9, 0), "time-slice"), ((6, 1), "none"), (None, "none")],
)
def test_shares_say_how_firmly_their_limits_are_enforced(
    capability: tuple[int, int] | None, level: str
) -> None:
    of_whole, of_shares = published(
        whole(0, cuda_compute_capability=capability), share(0, cuda_compute_capability=capability)
    )

    assert of_shares.attributes == {
        **of_whole.attributes,
        "type": StringAttribute("share"),
        "memoryEnforcement": StringAttribute("none"),
        "coreEnforcement": StringAttribute(level),
        "memoryEnforcementKernel": BoolAttribute(value=False),
        "memoryEnforcementMPS": BoolAttribute(value=False),
        "memoryEnforcementWatchdog": BoolAttribute(value=False),
        "coreEnforcementMPS": BoolAttribute(value=False),
        "coreEnforcementTimeSlice": BoolAttribute(value=level == "time-slice"),
    }
    assert list(of_shares.attributes) == sorted(of_shares.attributes)


@pytest.mark.parametrize(
    ("memory", "share_cores", "value", "default"),
    [
        (81559 * 2**20, 10, "81559Mi", "8155Mi"),
        (80 * 2**30, 25, "80Gi", "20Gi"),
        (80 * 2**30 + 1, 100, "80Gi", "80Gi"),
        (2 * 2**20, 10, "2Mi", "1Mi"),
    ],
)
def test_shares_get_by_default_memory_in_proportion_to_their_cores(
    memory: int, share_cores: int, value: str, default: str
) -> None:
    settings = PublishSettings(DRIVER, share_cores)
    (device,) = published(share(0, memory_bytes=memory), settings=settings)

    shown = {
        name: (str(found.value), str(found.request_policy.default))
        for name, found in device.capacity.items()
        if found.request_policy is not None
    }
    assert shown == {"cores": ("100", str(share_cores)), "memory": (value, default)}


least_shares = st.fractions(Fraction(1, 1000), Fraction(1))


@given(
    memory=st.integers(2 * 2**20, 2**45), share_cores=st.integers(1, 100), least_share=least_shares
)
def test_request_policies_follow_the_rules_of_the_api(
    memory: int, share_cores: int, least_share: Fraction
) -> None:
    """Validation of ResourceSlices in Kubernetes 1.37, `validateRequestPolicyRange`."""
    settings = PublishSettings(DRIVER, share_cores, least_share=least_share)
    (device,) = published(share(0, memory_bytes=memory), settings=settings)

    for capacity in device.capacity.values():
        policy = capacity.request_policy
        assert policy is not None
        assert policy.default is not None
        assert isinstance(policy.valid, ValidRange)
        least, most, step = policy.valid.range.min, policy.valid.range.max, policy.valid.range.step
        assert most is not None
        assert step is not None
        assert least <= policy.default <= most <= capacity.value
        assert Quantity.of(0) < step
        assert least + step <= capacity.value
        assert (policy.default.value() - least.value()) % step.value() == 0
        assert (most.value() - least.value()) % step.value() == 0


@given(memory=st.integers(200 * 2**20, 2**45), share_cores=st.integers(1, 100))
def test_as_many_default_shares_fit_as_their_cores_say(memory: int, share_cores: int) -> None:
    settings = PublishSettings(DRIVER, share_cores)
    (device,) = published(share(0, memory_bytes=memory), settings=settings)

    amounts = consumed_capacity(device.capacity, None, fractional=False)
    assert amounts is not None
    number = 100 // max(share_cores, 10)
    in_use = {name: amount.nanos * (number - 1) for name, amount in amounts.items()}
    assert fits(amounts, device.capacity, in_use)


TINY = CapacityRequirements({"memory": Quantity.of(1), "cores": Quantity.of(1)})


@given(memory=st.integers(1000 * 2**20, 2**45), parts=st.integers(2, 100))
def test_a_request_for_less_gets_the_least_share_of_which_as_many_fit_as_it_says(
    memory: int, parts: int
) -> None:
    settings = PublishSettings(DRIVER, least_share=Fraction(1, parts))
    (device,) = published(share(0, memory_bytes=memory), settings=settings)

    amounts = consumed_capacity(device.capacity, TINY, fractional=False)
    assert amounts is not None
    assert amounts["cores"] == Quantity.of(100 // parts)
    assert memory / parts - 2 * 2**20 < amounts["memory"].value() <= memory / parts
    in_use = {name: amount.nanos * (parts - 1) for name, amount in amounts.items()}
    assert fits(amounts, device.capacity, in_use)


def test_a_default_share_is_not_less_than_the_least() -> None:
    settings = PublishSettings(DRIVER, share_cores=10, least_share=Fraction(1, 7))
    (device,) = published(share(0, memory_bytes=70 * 2**30), settings=settings)
    amounts = consumed_capacity(device.capacity, None, fractional=False)
    assert amounts == {"cores": Quantity.of(14), "memory": Quantity.of(10 * 2**30)}


def test_devices_that_count_in_queues_say_exactly_what_they_count_at_least() -> None:
    kinds = devices(DriverReady((observed(0, mig=MIG),)))
    settings = PublishSettings(DRIVER, least_share=Fraction(1, 7))

    shown = published(*kinds, settings=settings)
    least = StringAttribute("1/7")
    assert {device.name: device.attributes.get("leastShare") for device in shown} == {
        "gpu-0": least,
        "gpu-0-mig-7g80gb-0-0": least,
        "gpu-0-share": least,
        "gpu-0-monitor": None,
    }


def test_devices_on_which_pods_compute_say_what_memory_of_the_host_they_cost() -> None:
    kinds = devices(DriverReady((observed(0, mig=MIG),)))
    settings = PublishSettings(DRIVER, host_memory_mib=512)

    shown = published(*kinds, settings=settings)
    per_pod = NodeAllocatableOverhead(per_pod=Quantity.parse("512Mi"))
    cost = {"memory": NodeAllocatableResource(overhead=per_pod)}
    assert {device.name: device.node_allocatable_resources for device in shown} == {
        "gpu-0": cost,
        "gpu-0-mig-7g80gb-0-0": cost,
        "gpu-0-share": cost,
        "gpu-0-monitor": {},
    }


def test_devices_cost_no_memory_of_the_host_unless_it_is_set() -> None:
    kinds = devices(DriverReady((observed(0, mig=MIG),)))

    assert not any(device.node_allocatable_resources for device in published(*kinds))


def test_counter_set_that_no_device_consumes_is_left_out() -> None:
    counters, _ = pool_of(whole(1), monitor(0), monitor(1)).slices

    assert isinstance(counters, CounterSlice)
    assert [each.name for each in counters.counter_sets] == ["gpu-1"]


def test_a_gpu_that_can_be_partitioned_counts_engines_and_memory_slices() -> None:
    (device,) = published(whole(0, mig=MIG))

    expected = {
        "multiprocessors": 132,
        "copy-engines": 8,
        "decoders": 7,
        "jpeg-engines": 7,
        "ofa-engines": 1,
        **{f"memory-slice-{index}": 1 for index in range(8)},
    }
    (consumption,) = device.consumes_counters
    assert consumption.counters == {
        name: Counter(Quantity.of(number)) for name, number in expected.items()
    }


@pytest.mark.parametrize(
    "device",
    [whole(0), whole(0, mig=MigSupported(MigLayout(()), toggles_without_reset=False))],
    ids=["no MIG", "a driver that tells no profiles"],
)
def test_a_gpu_that_cannot_be_partitioned_counts_itself(device: GpuDevice) -> None:
    (shown,) = published(device)

    (consumption,) = shown.consumes_counters
    assert consumption.counters == {"gpu": Counter(Quantity.of(1))}


def test_attributes_have_the_names_that_users_know() -> None:
    (device,) = published(whole(0, nvlink=NvLink(peers=(1, 2), domain="GPU-1")))

    assert device.attributes == {
        "type": StringAttribute("gpu"),
        "uuid": StringAttribute("GPU-00000000-0000-0000-0000-000000000000"),
        "productName": StringAttribute("NVIDIA L40S"),
        "brand": StringAttribute("Nvidia"),
        "architecture": StringAttribute("Ada Lovelace"),
        "addressingMode": StringAttribute("HMM"),
        "cudaComputeCapability": VersionAttribute("8.9.0"),
        "cudaDriverVersion": VersionAttribute("12.4.0"),
        "driverVersion": VersionAttribute("550.163.1"),
        "leastShare": StringAttribute("1/10"),
        "nvlinkDomain": StringAttribute("GPU-1"),
        "nvlinkPeers": StringAttribute("1,2"),
        "resource.kubernetes.io/numaNode": IntAttribute(0),
        "resource.kubernetes.io/pciBusID": StringAttribute("0000:00:00.0"),
        "resource.kubernetes.io/pcieRoot": StringAttribute("pci0000:00"),
    }
    assert list(device.attributes) == sorted(device.attributes)
    assert {name: str(found.value) for name, found in device.capacity.items()} == {"memory": "45Gi"}


def test_values_that_the_driver_does_not_give_are_left_out() -> None:
    silent = whole(
        0,
        product_name=None,
        brand=None,
        architecture=None,
        cuda_compute_capability=None,
        memory_bytes=None,
        driver_version=None,
        cuda_driver_version=None,
        addressing_mode=None,
        numa_node=None,
        pcie_root=None,
    )

    (device,) = published(silent)

    known = {"type", "uuid", "leastShare", "resource.kubernetes.io/pciBusID"}
    assert set(device.attributes) == known
    assert device.capacity == {}


@given(st.text(min_size=1))
def test_texts_are_cut_to_64_bytes(text: str) -> None:
    (device,) = published(whole(0, product_name=text))

    shown = device.attributes["productName"]
    assert isinstance(shown, StringAttribute)
    assert text.startswith(shown.value)
    assert len(shown.value.encode()) <= 64
    assert len(shown.value) == len(text) or len(shown.value.encode()) > 60


@pytest.mark.parametrize(
    ("peers", "shown"), [(25, True), (26, False)], ids=["64 bytes", "67 bytes"]
)
def test_peers_that_do_not_fit_are_left_out_and_not_cut(peers: int, *, shown: bool) -> None:
    (device,) = published(whole(peers, nvlink=NvLink(tuple(range(peers)), "GPU-0")))

    assert ("nvlinkPeers" in device.attributes) == shown
    assert "nvlinkDomain" in device.attributes


@pytest.mark.parametrize(
    ("problem", "state", "value", "effect"),
    [
        (LOST, "lost", "NVML_ERROR_GPU_IS_LOST", TaintEffect.NO_EXECUTE),
        (UNREADABLE, "unreadable", "NVML_ERROR_UNKNOWN", TaintEffect.NO_SCHEDULE),
    ],
    ids=["lost", "unreadable"],
)
def test_a_gpu_that_does_not_answer_is_tainted(
    problem: GpuProblem, state: str, value: str, effect: TaintEffect
) -> None:
    (device,) = published(whole(0, problem))

    assert device.taints == (DeviceTaint(f"gpu.carina.dev/{state}", effect, value, problem.since),)


@pytest.mark.parametrize(
    ("version", "semantic"),
    [
        ("550.163.01", "550.163.1"),
        ("535.54.03", "535.54.3"),
        ("470.82", "470.82.0"),
        ("600", "600.0.0"),
        ("550.90.07.01", "550.90.7"),
        ("580.65.06-custom", "580.65.6"),
        ("0.0.00", "0.0.0"),
        ("", None),
        ("N/A", None),
    ],
)
def test_semantic_version_of_a_driver(version: str, semantic: str | None) -> None:
    assert semantic_version(version) == semantic

"""The partition types of devices, and which slices declare them.

The rules of Kubernetes 1.37 are `validatePartitionTypeAttribute` of pkg/apis/resource/validation,
for a slice, and `computePartitionSummary` of pkg/controller/resourcepoolstatusrequest, for a pool.
"""

from collections import defaultdict
from itertools import chain

import pytest

from carina_dra.resource import Device, DeviceCounterConsumption, StringAttribute, limits
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish.partition_type import typed_runs
from kubelet_plugin.publish.pool import DeviceSlice, PublishedPool, pool
from simulation.nvml.state import GpuInstance as Instance
from tests.samples.gpus import LAYOUT, MIG, monitor, observed, share, whole
from tests.samples.mig_models import MODELS, gpu_of, observed_with

DRIVER = "gpu.carina.dev"
TYPED = PublishSettings(DRIVER, partition_types=True)
H100 = MODELS["h100-sxm5-80gb"]
NODES: dict[str, tuple[ObservedGpu, ...]] = {
    "without MIG": tuple(observed(minor) for minor in range(8)),
    "one GPU with partitions": (observed(0, mig=gpu_of(H100).mig),),
    "some with partitions": tuple(
        observed(minor, mig=gpu_of(H100).mig) if minor < 2 else observed(minor)
        for minor in range(4)
    ),
    "eight GPUs with partitions": tuple(
        observed(minor, mig=gpu_of(H100).mig) for minor in range(8)
    ),
    "partitions of an administrator": (
        observed_with(H100, (Instance(1, 2, 4, 4),)),
        *(observed(minor, mig=gpu_of(H100).mig) for minor in (1, 2)),
    ),
    "many GPUs": tuple(observed(minor) for minor in range(33)),
}


def pool_of(*of: GpuDevice, settings: PublishSettings = TYPED) -> PublishedPool:
    return pool(of, settings, node="node-1")


def node(name: str, settings: PublishSettings = TYPED) -> PublishedPool:
    return pool_of(*devices(DriverReady(NODES[name])), settings=settings)


def slices(of: PublishedPool) -> list[DeviceSlice]:
    return [content for content in of.slices if isinstance(content, DeviceSlice)]


def published(of: PublishedPool) -> list[Device]:
    return [device for content in slices(of) for device in content.devices]


def type_of(device: Device) -> str | None:
    attribute = device.attributes.get("partitionType")
    return attribute.value if isinstance(attribute, StringAttribute) else None


def declared_types(of: PublishedPool) -> dict[str, list[tuple[DeviceCounterConsumption, ...]]]:
    """What the devices of each declared type consume."""
    found = defaultdict(list)
    for content in slices(of):
        for device in content.devices:
            type_ = type_of(device)
            if content.partition_type_attribute is not None and type_ is not None:
                found[type_].append(device.consumes_counters)
    return found


def test_slices_declare_no_types_unless_it_is_set() -> None:
    made = node("one GPU with partitions", PublishSettings(DRIVER))

    assert all(content.partition_type_attribute is None for content in slices(made))
    assert all(type_of(device) is None for device in published(made))


@pytest.mark.parametrize("name", NODES)
def test_a_slice_that_declares_types_has_one_on_each_device_that_consumes_counters(
    name: str,
) -> None:
    for content in slices(node(name)):
        consuming = [device for device in content.devices if device.consumes_counters]
        assert content.partition_type_attribute in {None, f"{DRIVER}/partitionType"}
        if content.partition_type_attribute is not None:
            assert consuming
            assert all(type_of(device) is not None for device in consuming)


@pytest.mark.parametrize("name", NODES)
def test_devices_of_one_type_consume_the_same(name: str) -> None:
    for consumptions in declared_types(node(name)).values():
        assert all(consumption == consumptions[0] for consumption in consumptions)


@pytest.mark.parametrize("name", NODES)
def test_a_pool_declares_no_more_types_than_can_be_counted(name: str) -> None:
    assert len(declared_types(node(name))) <= limits.PARTITION_TYPES_PER_POOL


@pytest.mark.parametrize("name", NODES)
def test_devices_keep_their_order_and_what_else_they_publish(name: str) -> None:
    plain = published(node(name, PublishSettings(DRIVER)))
    typed = published(node(name))

    assert [device.name for device in typed] == [device.name for device in plain]
    for before, after in zip(plain, typed, strict=True):
        attributes = {key: value for key, value in after.attributes.items() if key != TYPE}
        assert attributes == before.attributes
        assert list(after.attributes) == sorted(after.attributes)
        count = len(after.attributes) + len(after.capacity)
        assert count <= limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE


TYPE = "partitionType"


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("without MIG", {f"gpu-{minor}" for minor in range(8)}),
        ("eight GPUs with partitions", {f"gpu-{minor}" for minor in range(8)}),
        ("some with partitions", {f"gpu-{minor}" for minor in range(4)}),
        ("many GPUs", set()),
    ],
)
def test_of_many_types_those_of_whole_gpus_are_declared_if_these_can_be_counted(
    name: str, types: set[str]
) -> None:
    assert declared_types(node(name)).keys() == types


def test_each_placement_of_a_profile_is_a_type_since_it_consumes_other_memory_slices() -> None:
    types = declared_types(node("one GPU with partitions"))

    assert {"gpu-0", "gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1"} <= types.keys()


def test_all_devices_that_use_a_whole_gpu_have_one_type() -> None:
    made = devices(DriverReady((observed(0, mig=MIG),)))
    types = {device.name: type_of(device) for device in published(pool_of(*made))}

    (profile,) = LAYOUT.profiles
    assert types == {
        "gpu-0": "gpu-0",
        f"gpu-0-mig-7g80gb-{profile.id}-0": "gpu-0",
        "gpu-0-share": "gpu-0",
        "gpu-0-monitor": None,
    }


def test_a_slice_of_devices_that_consume_nothing_declares_no_types() -> None:
    made = pool_of(*(monitor(minor) for minor in range(3)))

    assert [content.partition_type_attribute for content in slices(made)] == [None]


def test_slices_are_split_only_where_partitions_are_not_declared() -> None:
    made = node("eight GPUs with partitions")

    declaring = [content.partition_type_attribute is not None for content in slices(made)]
    of_whole_gpus, *others = declaring
    assert of_whole_gpus
    assert not any(others)
    kinds = [{device.attributes["type"] for device in content.devices} for content in slices(made)]
    assert kinds[0] == {StringAttribute(DeviceKind.GPU), StringAttribute(DeviceKind.SHARE)}
    assert set(chain.from_iterable(kinds[1:])) == {
        StringAttribute(DeviceKind.MIG),
        StringAttribute(DeviceKind.MONITOR),
    }
    unsplit = pool_of(*(whole(minor) for minor in range(8)), *(share(minor) for minor in range(8)))
    assert len(slices(unsplit)) == 1


@pytest.mark.parametrize(("types", "declared"), [(32, True), (33, False)])
def test_thirty_two_types_can_be_counted(types: int, declared: bool) -> None:
    devices_ = [
        Device(f"gpu-{n}", consumes_counters=(DeviceCounterConsumption(f"gpu-{n}", {}),))
        for n in range(types)
    ]
    assert [run.declared for run in typed_runs(devices_, partitions=())] == [declared]

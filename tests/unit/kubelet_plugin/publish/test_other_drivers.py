"""Which GPUs are published beside other drivers."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import (
    Device as PublishedDevice,
)
from carina_dra.resource import (
    DeviceAttribute,
    IntAttribute,
    OnNode,
    ResourcePool,
    ResourceSliceSpec,
    StringAttribute,
    StringsAttribute,
)
from kubelet_plugin.inventory.mig import ComputeInstance, GpuInstance, MigPlacement, MigSite
from kubelet_plugin.publish.other_drivers import (
    BesideOtherDrivers,
    Contested,
    Decision,
    DevicePlugin,
    DraDriver,
    ExtendedResource,
    OfferedElsewhere,
    PodDevice,
    PodsOfDevicePlugin,
    PublishedGpu,
    SameNamePlugin,
    decide,
    extended_resources,
    published_gpus,
    remembered,
)
from tests.samples.gpus import gpu, whole

NVIDIA = "gpu.nvidia.com"
GPUS = (gpu(0), gpu(1), gpu(2))
DEVICES = tuple(whole(each.minor) for each in GPUS)
GPU_RESOURCE, MIG_RESOURCE = (
    ExtendedResource("nvidia.com/gpu"),
    ExtendedResource("nvidia.com/mig-1g.10gb"),
)
SAME_NAME = SameNamePlugin(
    "/plugins/gpu.carina.dev/dra.sock", "/plugins/gpu.carina.dev/checkpoint.json"
)
UUID_1, PCI_2 = GPUS[1].uuid.lower(), GPUS[2].pci_bus_id


@pytest.mark.parametrize(
    ("allocatable", "found"),
    [
        ({}, set()),
        ({"cpu": "64", "memory": "1Ti", "hugepages-2Mi": "0"}, set()),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu"}),
        ({"nvidia.com/gpu": "0"}, set()),
        ({"nvidia.com/gpu.shared": "40"}, {"nvidia.com/gpu.shared"}),
        (
            {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb.shared": "2"},
            {"nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb.shared"},
        ),
        ({"volcano.sh/vgpu-number": "10"}, {"volcano.sh/vgpu-number"}),
        ({"aliyun.com/gpu-mem": "80"}, {"aliyun.com/gpu-mem"}),
        ({"nvidia.com/hostdev": "8", "rdma/hca": "1k"}, set()),  # network adapters
        ({"nvidia.com/pgpu": "4"}, set()),  # bound to VFIO: NVML does not see them
        ({"amd.com/gpu": "8"}, set()),
    ],
)
def test_extended_resources_of_gpus_above_zero_are_found(
    allocatable: Mapping[str, str], found: set[str]
) -> None:
    node = {"status": {"allocatable": allocatable}}

    assert {resource.name for resource in extended_resources(node)} == found


def test_a_node_without_a_status_has_no_extended_resources() -> None:
    assert extended_resources({"metadata": {"name": "node-1"}}) == frozenset()


@pytest.mark.parametrize(
    ("name", "attribute", "identity"),
    [
        ("uuid", StringAttribute("GPU-ABC"), "gpu-abc"),
        ("gpu.nvidia.com/uuid", StringAttribute("GPU-ABC"), "gpu-abc"),
        ("parentUUID", StringAttribute("GPU-abc"), "gpu-abc"),
        ("resource.kubernetes.io/pciBusID", StringAttribute("0000:1B:00.0"), "0000:1b:00.0"),
        ("pciBusID", StringAttribute("00000000:1B:00.0"), "0000:1b:00.0"),
        ("pciBusID", StringAttribute("00010000:1B:00.0"), "10000:1b:00.0"),
        ("pciBusID", StringsAttribute(("0000:1b:00.0",)), "0000:1b:00.0"),
        ("pciBusID", IntAttribute(27), None),
        ("productName", StringAttribute("0000:1b:00.0"), None),
        ("uuid.example.com/model", StringAttribute("GPU-abc"), None),
    ],
)
def test_a_published_device_is_known_by_its_uuid_and_pci_address(
    name: str, attribute: DeviceAttribute, identity: str | None
) -> None:
    spec = ResourceSliceSpec(
        driver=NVIDIA,
        nodes=OnNode("node-1"),
        pool=ResourcePool("node-1", 1, 1),
        devices=(PublishedDevice("gpu-0", attributes={name: attribute}),),
    )

    expected = {PublishedGpu(NVIDIA, identity)} if identity else set()
    assert published_gpus(spec) == expected


@pytest.mark.parametrize(
    ("offers", "contested", "published"),
    [
        pytest.param([], (), (0, 1, 2), id="nobody else"),
        pytest.param(
            [GPU_RESOURCE],
            (Contested(DevicePlugin(("nvidia.com/gpu",)), GPUS),),
            (),
            id="a device plugin may mean any GPU",
        ),
        pytest.param(
            [MIG_RESOURCE, GPU_RESOURCE],
            (Contested(DevicePlugin(("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")), GPUS),),
            (),
            id="one with several resources is one",
        ),
        pytest.param(
            [PublishedGpu(NVIDIA, UUID_1)],
            (Contested(DraDriver(NVIDIA), (GPUS[1],)),),
            (0, 2),
            id="a driver with the UUID of one",
        ),
        pytest.param(
            [PublishedGpu(NVIDIA, PCI_2)],
            (Contested(DraDriver(NVIDIA), (GPUS[2],)),),
            (0, 1),
            id="a driver with the PCI address of one",
        ),
        pytest.param(
            [PublishedGpu(NVIDIA, UUID_1), PublishedGpu("vfio.example.com", PCI_2)],
            (
                Contested(DraDriver(NVIDIA), (GPUS[1],)),
                Contested(DraDriver("vfio.example.com"), (GPUS[2],)),
            ),
            (0,),
            id="two drivers",
        ),
        pytest.param(
            [PublishedGpu("nic.example.com", "0000:99:00.0")], (), (0, 1, 2), id="other hardware"
        ),
        pytest.param([SAME_NAME], (Contested(SAME_NAME, GPUS),), (), id="a plugin of our name"),
    ],
)
def test_what_is_withheld_and_why(
    offers: list[OfferedElsewhere], contested: tuple[Contested, ...], published: tuple[int, ...]
) -> None:
    decision = decide(DEVICES, offers, "withhold")

    assert decision == Decision(tuple(DEVICES[index] for index in published), contested, "withhold")


@given(
    st.sets(
        st.sampled_from(
            [GPU_RESOURCE, PublishedGpu(NVIDIA, UUID_1), PublishedGpu(NVIDIA, PCI_2), SAME_NAME]
        )
    )
)
def test_the_setting_publish_publishes_all_gpus_and_still_names_the_contested(
    offers: set[OfferedElsewhere],
) -> None:
    decision = decide(DEVICES, offers, "publish")

    assert decision.devices == DEVICES
    assert decision.slices_are_ours
    assert decision.contested == decide(DEVICES, offers, "withhold").contested


@pytest.mark.parametrize(
    ("offer", "policy", "ours"),
    [
        (SAME_NAME, "withhold", False),
        (SAME_NAME, "publish", True),
        (GPU_RESOURCE, "withhold", True),
    ],
)
def test_slices_are_not_ours_while_another_plugin_uses_our_name(
    offer: OfferedElsewhere, policy: BesideOtherDrivers, ours: bool
) -> None:
    for devices in ((), DEVICES):
        assert decide(devices, [offer], policy).slices_are_ours == ours


def test_without_gpus_none_is_contested() -> None:
    assert decide((), [GPU_RESOURCE, PublishedGpu(NVIDIA, UUID_1)], "withhold").contested == ()


def test_an_offer_counts_for_a_time_after_it_was_last_seen() -> None:
    first = remembered({}, [GPU_RESOURCE], now=100, seconds=300)
    away = remembered(first, [MIG_RESOURCE], now=399, seconds=300)
    over = remembered(away, [], now=400, seconds=300)

    assert first == {GPU_RESOURCE: 100}
    assert away == {GPU_RESOURCE: 100, MIG_RESOURCE: 399}
    assert over == {MIG_RESOURCE: 399}


def _held(identity: str, pod: str = "default/pod") -> PodDevice:
    return PodDevice("nvidia.com/gpu", identity, pod)


@pytest.mark.parametrize("suffix", ["", "::3"], ids=["whole", "replica"])
def test_gpus_that_pods_have_from_a_device_plugin_that_is_gone_are_withheld(suffix: str) -> None:
    decision = decide(DEVICES, [_held(GPUS[1].uuid + suffix)], "withhold")

    assert [device.gpu for device in decision.devices] == [GPUS[0], GPUS[2]]
    assert decision.contested == (Contested(PodsOfDevicePlugin(("default/pod",)), (GPUS[1],)),)


def test_id_that_names_no_gpu_may_be_that_of_any() -> None:
    offers = [_held(GPUS[1].uuid, "a/one"), _held("MIG-unknown", "b/two")]

    decision = decide(DEVICES, offers, "withhold")

    assert decision.devices == ()
    assert decision.contested == (Contested(PodsOfDevicePlugin(("a/one", "b/two")), GPUS),)


def test_mig_device_of_a_pod_withholds_its_gpu() -> None:
    site = MigSite(19, MigPlacement(0, 1))
    instance = GpuInstance(1, site, (ComputeInstance(0, 1, "MIG-1"),))
    divided = replace(DEVICES[0], state=replace(DEVICES[0].state, instances=(instance,)))

    decision = decide([divided, *DEVICES[1:]], [_held("MIG-1")], "withhold")

    assert [device.gpu for device in decision.devices] == [GPUS[1], GPUS[2]]


def test_pods_are_not_named_while_the_device_plugin_is_there() -> None:
    decision = decide(DEVICES, [GPU_RESOURCE, _held(GPUS[1].uuid)], "withhold")

    assert decision.contested == (Contested(DevicePlugin(("nvidia.com/gpu",)), GPUS),)

"""What is left of a GPU beside what claims hold, compared with its published counters."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.quantity import Quantity
from kubelet_plugin.devices.counters import counter_set
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.room import DeviceUse, GpuRoom, ProfileSize, gpu_room, size
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.inventory import DriverReady
from simulation.nvml.state import GpuInstance
from tests.samples.gpus import observed
from tests.samples.mig_models import MODELS, layout, observed_with

H100 = observed_with(MODELS["h100-sxm5-80gb"], ())
ONE_MADE = observed_with(MODELS["h100-sxm5-80gb"], (GpuInstance(3, 0, 2, 1),))
PLAIN = observed(0)
TOTAL_MIB = 45 * 1024


def devices_of(gpu: ObservedGpu) -> tuple[GpuDevice, ...]:
    return devices(DriverReady((gpu,)))


def share(memory_mib: int, cores: int) -> DeviceUse:
    consumed = {"memory": Quantity.of(memory_mib * 2**20), "cores": Quantity.of(cores)}
    return DeviceUse("gpu-0-share", consumed)


def room(gpu: ObservedGpu, *uses: DeviceUse | str) -> GpuRoom:
    named = [DeviceUse(use) if isinstance(use, str) else use for use in uses]
    return gpu_room(devices_of(gpu), named)


def names(of: GpuRoom) -> list[str]:
    return [one.name for one in of.free]


def lost(of: GpuRoom, device: str) -> set[str]:
    """The profiles of which the device rules out a placement; `gpu` for the whole GPU."""
    names_of: dict[ProfileSize, str] = {
        profile.size: profile.name for profile in layout(MODELS["h100-sxm5-80gb"]).profiles
    }
    (taken,) = (one for one in of.free if one.name == device)
    return {names_of.get(lost, "gpu") for lost in of.loss(taken) if lost[0] > 0}


@pytest.mark.parametrize(
    ("uses", "free"),
    [
        pytest.param([], ["gpu-0", "gpu-0-share"], id="nothing is held"),
        pytest.param(["gpu-0"], [], id="the whole GPU is held"),
        pytest.param([share(1024, 99)], ["gpu-0-share"], id="a share is left"),
        pytest.param([share(1024, 60), share(1024, 40)], [], id="no cores are left"),
        pytest.param([share(TOTAL_MIB, 10)], [], id="no memory is left"),
        pytest.param(["gpu-0-share"], [], id="a share whose amounts are not known"),
        pytest.param(["gpu-0-share", "gpu-0"], [], id="more is held than there is"),
        pytest.param(["gpu-0-vfio"], [], id="a kind of another version"),
    ],
)
def test_shares_and_the_whole_gpu_exclude_each_other(
    uses: list[DeviceUse | str], free: list[str]
) -> None:
    assert names(room(PLAIN, *uses)) == free


@pytest.mark.parametrize(
    ("gpu", "uses", "fullness"),
    [
        pytest.param(PLAIN, [], 0, id="idle"),
        pytest.param(PLAIN, ["gpu-0"], 1, id="whole"),
        pytest.param(PLAIN, [share(TOTAL_MIB // 4, 10), share(1, 10)], 0.25, id="by memory"),
        pytest.param(PLAIN, [share(1, 10), share(1, 20)], 0.3, id="by cores"),
        pytest.param(H100, ["gpu-0-mig-3g40gb-9-4", "gpu-0-mig-1g10gb-19-0"], 5 / 8, id="slices"),
        pytest.param(ONE_MADE, [], 0, id="an administrator's instance is not in use"),
        pytest.param(ONE_MADE, ["gpu-0-mig-1g10gb-19-2"], 1 / 8, id="now it is"),
    ],
)
def test_fullness_is_the_part_that_claims_hold(
    gpu: ObservedGpu, uses: list[DeviceUse | str], fullness: float
) -> None:
    assert room(gpu, *uses).fullness == pytest.approx(fullness, abs=1e-4)


def test_an_administrators_instance_is_free_until_a_claim_has_it() -> None:
    made = "gpu-0-mig-1g10gb-19-2"
    assert made in names(room(ONE_MADE))
    assert made not in names(room(ONE_MADE, made))
    assert lost(room(ONE_MADE), made) == set()


def test_the_first_partition_of_a_gpu_rules_out_the_whole_gpu() -> None:
    assert lost(room(H100), "gpu-0-mig-1g10gb-19-6") >= {"gpu", "7g.80gb", "1g.10gb"}
    assert "4g.40gb" not in lost(room(H100), "gpu-0-mig-1g10gb-19-6")
    assert "4g.40gb" in lost(room(H100), "gpu-0-mig-1g10gb-19-3")
    assert lost(room(H100, "gpu-0-mig-4g40gb-5-0"), "gpu-0-mig-1g10gb-19-6").isdisjoint({"gpu"})


CHOICES = st.lists(st.integers(0, 10**6), max_size=8)


def taken(gpu: ObservedGpu, choices: Sequence[int]) -> tuple[GpuRoom, list[str]]:
    """A room from which devices were taken one after another, and their names."""
    now, held = room(gpu), []
    for choice in choices:
        possible = [one for one in now.free if not one.name.endswith("-share")]
        if possible:
            chosen = possible[choice % len(possible)]
            held.append(chosen.name)
            now = now.taking(chosen)
    return now, held


def fit_together(gpu: ObservedGpu, held: Sequence[str]) -> bool:
    """Whether published devices consume no more than the GPU's counter set has, none twice."""
    published = {one.name: one.published(PublishSettings("a.example")) for one in devices_of(gpu)}
    consumed: Counter[str] = Counter()
    for name in held:
        for consumption in published[name].consumes_counters:
            consumed.update({key: each.value.value() for key, each in consumption.counters.items()})
    available = counter_set(gpu.gpu, gpu.state).counters
    return len(set(held)) == len(held) and all(
        key in available and number <= available[key].value.value()
        for key, number in consumed.items()
    )


@given(CHOICES, st.sampled_from([H100, ONE_MADE, PLAIN]))
def test_what_is_free_is_what_the_published_counters_allow(
    choices: list[int], gpu: ObservedGpu
) -> None:
    now, held = taken(gpu, choices)

    allowed = [
        device.name
        for device in devices_of(gpu)
        if not isinstance(device, Monitor) and fit_together(gpu, [*held, device.name])
    ]
    assert names(now) == allowed


@given(CHOICES, st.sampled_from([H100, ONE_MADE]))
def test_taking_devices_one_by_one_is_holding_them(choices: list[int], gpu: ObservedGpu) -> None:
    now, held = taken(gpu, choices)

    at_once = room(gpu, *held)
    assert names(now) == names(at_once)
    assert now.fullness == at_once.fullness


@given(CHOICES)
def test_the_loss_of_a_device_is_what_is_free_before_and_not_after(choices: list[int]) -> None:
    now, held = taken(H100, choices)
    sizes = {device.name: size(device) for device in devices_of(H100)}

    for one in now.free:
        after = names(room(H100, *held, one.name)) if not one.name.endswith("-share") else []
        gone = set(names(now)) - set(after)
        assert now.loss(one) == tuple(sorted((sizes[name] for name in gone), reverse=True))

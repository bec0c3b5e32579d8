"""Which devices are published."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.kind_choice import ByMinor, KindChoice, KindRule
from kubelet_plugin.publish.offer import DeviceOffer, offered
from tests.samples.golden_slices import simulated_devices

GPU, MIG, SHARE, MONITOR = DeviceKind


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> tuple[GpuDevice, ...]:
    folder: Path = tmp_path_factory.mktemp("node")
    return tuple(simulated_devices("dgx-h100", folder))


def choice(*kinds: DeviceKind, rules: tuple[KindRule, ...] = ()) -> KindChoice:
    return KindChoice(frozenset(kinds), rules)


def names(devices: Collection[GpuDevice]) -> set[str]:
    return {device.name for device in devices}


def test_devices_of_the_chosen_kinds_are_offered(devices: tuple[GpuDevice, ...]) -> None:
    assert {device.kind for device in offered(devices, choice(GPU, SHARE), ())} == {GPU, SHARE}


def test_a_gpu_that_a_rule_names_is_offered_as_it_says(
    devices: tuple[GpuDevice, ...],
) -> None:
    rules = (
        KindRule(ByMinor(0), frozenset({SHARE})),
        KindRule(ByMinor(1), frozenset()),
    )
    shown = names(offered(devices, choice(GPU, rules=rules), ()))
    assert shown == {"gpu-0-share", *(f"gpu-{minor}" for minor in range(2, 8))}


def test_a_device_of_a_claim_is_offered_though_a_rule_withholds_its_gpu(
    devices: tuple[GpuDevice, ...],
) -> None:
    rules = (KindRule(ByMinor(1), frozenset()),)
    assert "gpu-1-share" in names(offered(devices, choice(GPU, rules=rules), {"gpu-1-share"}))


def test_devices_of_claims_are_offered_whatever_their_kind(devices: tuple[GpuDevice, ...]) -> None:
    partition = next(device.name for device in devices if device.kind is MIG)
    held = {partition, "gpu-3-share", "gpu-3"}
    kept = names(offered(devices, choice(GPU), held)) - names(offered(devices, choice(GPU), ()))
    assert kept == {partition, "gpu-3-share"}


class Published:
    """What an offer has published, in order."""

    def __init__(self) -> None:
        self.sets: list[set[str]] = []

    def __call__(self, devices: Sequence[GpuDevice]) -> None:
        self.sets.append(names(devices))


def test_nothing_is_published_before_the_gpus_are_known() -> None:
    published = Published()
    DeviceOffer(choice(GPU), (), published).hold(["gpu-0-share"])
    assert published.sets == []


def test_claims_that_change_nothing_are_not_published(devices: tuple[GpuDevice, ...]) -> None:
    published = Published()
    offer = DeviceOffer(choice(GPU), {"gpu-1-share"}, published)
    offer.see(devices)
    offer.hold(["gpu-1-share", "gpu-2"])
    offer.hold(["gpu-2"])
    gpus = {f"gpu-{minor}" for minor in range(8)}
    assert published.sets == [gpus | {"gpu-1-share"}, gpus]

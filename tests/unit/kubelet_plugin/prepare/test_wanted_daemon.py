"""Which claims need an MPS daemon, and which are refused because they would need several."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.config.device import (
    DeviceConfig,
    Enforcement,
    GpuConfig,
    GpuSharing,
    MpsSharing,
    ShareConfig,
)
from carina_dra.config.mps import MpsLimits
from kubelet_plugin.claims.claim import AllocatedDevice
from kubelet_plugin.claims.failure import ClaimError, MpsConfigsDiffer, MpsMissing
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.prepare.resource import MpsControlDaemon, MpsOfDevices
from kubelet_plugin.prepare.wanted_daemon import mps_daemon
from tests.samples.claims import allocated, allocated_share, claim
from tests.samples.gpus import share, whole

CURRENT: dict[str, Any] = {"driver_version": "550.163.01", "cuda_compute_capability": (7, 0)}
DEVICES: dict[str, GpuDevice] = {
    device.name: device
    for minor in (0, 1)
    for device in (whole(minor, **CURRENT), share(minor, **CURRENT))
}
DEMANDS_MPS = ShareConfig(enforcement=Enforcement.model_validate({"memory": "mps"}))


def by_mps(percentage: int | None = None) -> GpuConfig:
    limits = MpsLimits(defaultActiveThreadPercentage=percentage)
    return GpuConfig(sharing=MpsSharing(strategy="MPS", mpsConfig=limits))


def gpu(minor: int, config: DeviceConfig) -> AllocatedDevice:
    return replace(allocated(f"gpu-{minor}", f"request-{minor}"), config=config)


def mps_share(share_id: str, memory: str, cores: int) -> AllocatedDevice:
    return allocated_share(
        "gpu-0-share", share_id=share_id, memory=memory, cores=cores, config=DEMANDS_MPS
    )


def daemons(
    *served: AllocatedDevice, devices: dict[str, GpuDevice] = DEVICES
) -> list[MpsControlDaemon | MpsOfDevices]:
    return list(mps_daemon(claim(*served), devices))


def test_requests_with_one_configuration_have_one_daemon() -> None:
    (daemon,) = daemons(gpu(0, by_mps(50)), gpu(1, by_mps(50)))
    assert isinstance(daemon, MpsOfDevices)
    assert [device.name for device in daemon.devices] == ["gpu-0", "gpu-1"]


def test_a_gpu_that_is_not_shared_by_mps_is_not_in_it() -> None:
    slicing = GpuConfig(sharing=GpuSharing(strategy="TimeSlicing"))
    (daemon,) = daemons(gpu(0, by_mps()), gpu(1, slicing))
    assert isinstance(daemon, MpsOfDevices)
    assert [device.name for device in daemon.devices] == ["gpu-0"]


@pytest.mark.parametrize(
    "other",
    [
        gpu(1, by_mps(25)),
        allocated_share("gpu-1-share", "request-1", share_id="s", config=DEMANDS_MPS),
    ],
    ids=["other limits", "a share"],
)
def test_requests_with_several_configurations_are_refused_by_name(other: AllocatedDevice) -> None:
    with pytest.raises(ClaimError, match="requests request-0 and request-1") as caught:
        daemons(gpu(0, by_mps(50)), other)
    assert isinstance(caught.value.failure, MpsConfigsDiffer)


@pytest.mark.parametrize(
    "facts",
    [
        {"cuda_compute_capability": (6, 1)},
        {"driver_version": "535.183.01"},
        {"driver_version": None},
        {"cuda_compute_capability": None},
    ],
    ids=str,
)
def test_a_gpu_or_driver_without_mps_is_refused_by_name(facts: dict[str, Any]) -> None:
    with pytest.raises(ClaimError, match=r"NVIDIA L40S with driver .*; MPS needs CUDA") as caught:
        daemons(gpu(0, by_mps()), devices={"gpu-0": whole(0, **{**CURRENT, **facts})})
    assert isinstance(caught.value.failure, MpsMissing)


def test_a_gpu_whose_product_is_not_known_is_refused_by_its_uuid() -> None:
    unknown = whole(0, **CURRENT | {"driver_version": None, "product_name": None})
    with pytest.raises(ClaimError, match=f"{unknown.gpu.uuid} with driver unknown"):
        daemons(gpu(0, by_mps()), devices={"gpu-0": unknown})


@pytest.mark.parametrize(
    ("cores", "percentage"), [((40, 30), 70), ((60, 40), 100), ((60, 60), 100)], ids=str
)
def test_a_daemon_has_the_sum_of_the_shares_and_no_more_than_the_gpu(
    cores: tuple[int, int], percentage: int
) -> None:
    (daemon,) = daemons(
        *(mps_share(f"s-{number}", "1Gi", part) for number, part in enumerate(cores))
    )
    assert isinstance(daemon, MpsControlDaemon)
    assert daemon.wanted.thread_percentage == percentage
    assert [device.memory_mib for device in daemon.wanted.devices] == [2048]


def test_a_share_without_an_amount_has_no_daemon() -> None:
    assert daemons(mps_share("s", "1Gi", 0)) == []


def test_without_mps_there_is_no_daemon() -> None:
    assert daemons(gpu(0, GpuConfig()), allocated_share("gpu-1-share", share_id="s")) == []

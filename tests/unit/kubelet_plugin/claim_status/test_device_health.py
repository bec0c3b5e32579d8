"""The health of devices, as it follows from the problems of their GPU."""

from dataclasses import replace

import pytest

from carina_dra.config.enforcement import Levels
from kubelet_plugin.claim_status.device_health import (
    GpusNow,
    HealthUnknown,
    Healthy,
    Unhealthy,
)
from kubelet_plugin.devices.share import Share
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    PROBLEMS,
    Degraded,
    Draining,
    DriverVerdict,
    GpuLost,
    GpuProblem,
    GpuUnreadable,
    NvmlHang,
)
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    UnknownGpu,
)
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from tests.samples.gpus import LOST, MIG, NOTICED, UNREADABLE, observed

SLOW = Degraded(DriverVerdict("hw-slowdown", "is throttled"), NOTICED)
ILL = {
    GpuLost.state: LOST,
    GpuUnreadable.state: UNREADABLE,
    **{
        kind.state: kind(DriverVerdict("xid-95", "had a fault"), NOTICED)
        for kind in FOUND_BY_DRIVER
    },
}


def seen(*problems: GpuProblem) -> GpusNow:
    return GpusNow(DriverReady((observed(0, *problems, mig=MIG),)))


@pytest.mark.parametrize(
    "device", ["gpu-0", "gpu-0-share", "gpu-0-monitor", "gpu-0-mig-7g80gb-0-0"]
)
def test_every_device_has_the_health_of_its_gpu(device: str) -> None:
    assert seen().health(device) == Healthy()

    health = seen(LOST).health(device)

    assert isinstance(health, Unhealthy)
    assert health.reason == "GPULost"
    assert "GPU 0 (GPU-00000000" in health.message
    assert LOST.remedy in health.message


def test_nothing_is_known_of_a_gpu_that_does_not_answer() -> None:
    hang = replace(UNREADABLE, failure=NvmlHang(30))
    for problem in (UNREADABLE, hang):
        health = seen(problem).health("gpu-0")
        assert isinstance(health, HealthUnknown)
        assert health.reason == "GPUUnreadable"


def test_a_gpu_that_only_got_slower_is_healthy_and_says_so() -> None:
    assert seen(SLOW).health("gpu-0") == Healthy(
        "GPUDegraded", "GPU 0 (GPU-00000000-0000-0000-0000-000000000000) is throttled"
    )


def test_the_worst_of_several_problems_decides() -> None:
    health = seen(SLOW, LOST, UNREADABLE).health("gpu-0")
    assert isinstance(health, Unhealthy)
    assert health.reason == "GPULost"
    assert "is throttled" in health.message


def test_a_gpu_that_is_gone_is_unhealthy() -> None:
    assert isinstance(seen().health("gpu-1"), Unhealthy)
    assert isinstance(seen().health("other"), Unhealthy)


def test_every_problem_but_a_harmless_one_makes_a_device_unhealthy_or_unknown() -> None:
    assert ILL.keys() == {kind.state for kind in PROBLEMS}
    healths = {state: type(seen(problem).health("gpu-0")) for state, problem in ILL.items()}
    others = ILL.keys() - {"degraded", "unreadable"}
    assert healths == {
        "degraded": Healthy,
        "unreadable": HealthUnknown,
        **dict.fromkeys(others, Unhealthy),
    }


def test_a_fault_of_one_gpu_instance_is_that_of_its_partition_alone() -> None:
    site = MigSite(0, MigPlacement(0, 8))
    gpus = seen(Draining(DriverVerdict("xid-94", "had a contained error"), NOTICED, site))
    assert isinstance(gpus.health("gpu-0-mig-7g80gb-0-0"), Unhealthy)
    assert gpus.health("gpu-0-mig-1g10gb-19-0") == Healthy()


def test_nothing_is_known_of_a_gpu_that_never_answered() -> None:
    gpus = GpusNow(DriverReady((observed(1),), (UnknownGpu(0, LOST.failure),)))
    health = gpus.health("gpu-0")
    assert isinstance(health, HealthUnknown)
    assert health.reason == "GPUUnreadable"
    assert gpus.health("gpu-1") == Healthy()


def test_a_gpu_that_is_gone_has_vanished() -> None:
    health = GpusNow(DriverReady((observed(1),))).health("gpu-0")
    assert isinstance(health, Unhealthy)
    assert health.reason == "GPUVanished"


@pytest.mark.parametrize("memory", ["none", "mps"])
def test_who_may_compute_by_mps_is_told_that_processes_of_a_claim_end_together(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = Levels(memory=frozenset({"mps"}) if memory == "mps" else frozenset())
    monkeypatch.setattr(Share, "levels", levels)
    assert ("MPS" in seen(LOST).health("gpu-0-share").message) is (memory == "mps")
    assert "MPS" not in seen(LOST).health("gpu-0").message
    assert "MPS" not in seen(SLOW).health("gpu-0-share").message


def test_a_device_that_is_not_offered_now_has_the_health_of_its_gpu() -> None:
    assert isinstance(seen(LOST).health("gpu-0-mig-1g10gb-19-0"), Unhealthy)


@pytest.mark.parametrize(
    ("inventory", "reason"),
    [
        (None, "GPUsNotRead"),
        (DriverMissing("no library"), "GPUDriverMissing"),
        (DriverUnusable(LOST.failure), "GPUDriverFailed"),
        (DriverReplaced("/lib"), "GPUDriverReplaced"),
    ],
)
def test_nothing_is_known_without_a_driver(inventory: Inventory | None, reason: str) -> None:
    health = GpusNow(inventory).health("gpu-0")
    assert isinstance(health, HealthUnknown)
    assert health.reason == reason


def test_the_message_says_how_long_a_gpu_that_flaps_has_to_be_well() -> None:
    well = observed(0, LOST)
    flapping = replace(well, state=replace(well.state, flapping=240.0))

    health = GpusNow(DriverReady((flapping,))).health("gpu-0")

    assert isinstance(health, Unhealthy)
    assert health.message.endswith(". It is flapping, so it has to be well for 240 s")

"""The amounts of shares: what a claim has of a GPU, and what it gets by default."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.config.enforcement import Levels
from carina_dra.quantity import Quantity
from carina_dra.resource import BoolAttribute, StringAttribute
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.share import Share, ShareAmounts, share_amounts
from kubelet_plugin.inventory.share_guard import ShareGuard
from tests.samples.gpus import share

MIB = 2**20


@pytest.mark.parametrize(
    ("memory", "cores", "amounts"),
    [
        (MIB, 1, ShareAmounts(1, 1)),
        (2 * MIB - 1, 1, ShareAmounts(1, 1)),
        (MIB - 1, 1, None),
        (0, 1, None),
        (MIB, 0, None),
        (-MIB, 1, None),
        (MIB, -1, None),
    ],
)
def test_a_share_has_whole_steps_of_both(
    memory: int, cores: int, amounts: ShareAmounts | None
) -> None:
    consumed = {"memory": Quantity.of(memory), "cores": Quantity.of(cores)}
    assert share_amounts(consumed) == amounts


def test_what_the_driver_reserves_is_no_capacity_and_no_claim_that_has_it_is_refused() -> None:
    device = share(0, memory_bytes=81559 * MIB, memory_reserved_bytes=600 * MIB)
    published = device.published(PublishSettings("gpu.carina.dev"))
    assert published.capacity["memory"].value == Quantity.of(80959 * MIB)
    assert device.total == ShareAmounts(81559, 100)


@pytest.mark.parametrize(("mib", "default"), [(2, 1), (19, 1), (20, 2), (46080, 4608)])
def test_the_default_memory_is_in_proportion_to_the_default_cores_and_at_least_a_step(
    mib: int, default: int
) -> None:
    settings = PublishSettings("gpu.carina.dev", share_cores=10)
    policy = share(0, memory_bytes=mib * MIB).published(settings).capacity["memory"].request_policy
    assert policy is not None
    assert policy.default == Quantity.of(default * MIB)


@pytest.mark.parametrize(("limits", "level"), [(True, "kernel"), (False, "none")])
def test_the_kernel_enforces_memory_where_the_driver_limits_cgroups(
    limits: bool, level: str
) -> None:
    device = share(0, memory_limits=limits)
    attributes = device.published(PublishSettings("gpu.carina.dev")).attributes
    assert attributes["memoryEnforcementKernel"] == BoolAttribute(limits)
    assert attributes["memoryEnforcement"] == StringAttribute(level)


@pytest.mark.parametrize("limits", [True, False])
def test_it_is_in_force_for_a_claim_whose_pod_is_limited(limits: bool) -> None:
    device = share(0, memory_limits=limits)
    assert device.levels_in_force(limited=True, mps=False).strongest_memory == "kernel"
    assert device.levels_in_force(limited=False, mps=False).strongest_memory == "none"
    assert device.levels_in_force(limited=False, mps=False).cores == device.levels.cores


@pytest.mark.parametrize(
    ("capability", "enforcement"),
    [(None, "none"), ((6, 1), "none"), ((7, 0), "time-slice"), ((9, 0), "time-slice")],
)
def test_equal_time_slices_begin_with_compute_capability_7(
    capability: tuple[int, int] | None, enforcement: str
) -> None:
    assert share(0, cuda_compute_capability=capability).levels.strongest_cores == enforcement


def _guarded(guard: ShareGuard, **facts: Any) -> Share:
    device = share(0, **facts)
    return replace(device, state=replace(device.state, guard=guard))


@pytest.mark.parametrize(
    ("driver", "capability", "guarded", "offered"),
    [
        ("550.163.01", (7, 0), True, True),
        ("580.95.05", (9, 0), True, True),
        ("535.288.01", (9, 0), True, False),
        ("550.163.01", (6, 1), True, False),
        ("550.163.01", (7, 0), False, False),
        (None, (7, 0), True, False),
        ("550.163.01", None, True, False),
        ("dev", (7, 0), True, False),
    ],
)
def test_mps_needs_driver_gpu_and_carina_sharing(
    driver: str | None, capability: tuple[int, int] | None, guarded: bool, offered: bool
) -> None:
    device = _guarded(
        ShareGuard(mps=guarded), driver_version=driver, cuda_compute_capability=capability
    )
    attributes = device.published(PublishSettings("gpu.carina.dev")).attributes
    assert attributes["memoryEnforcementMPS"] == BoolAttribute(offered)
    assert attributes["coreEnforcementMPS"] == BoolAttribute(offered)


@pytest.mark.parametrize("ends", [True, False])
def test_the_watchdog_is_a_level_where_it_ends_violators(ends: bool) -> None:
    device = _guarded(ShareGuard(ends_violators=ends))
    attributes = device.published(PublishSettings("gpu.carina.dev")).attributes
    assert attributes["memoryEnforcementWatchdog"] == BoolAttribute(ends)
    assert attributes["memoryEnforcement"] == StringAttribute("watchdog" if ends else "none")
    assert ("watchdog" in device.levels_in_force(limited=False, mps=False).memory) is ends


def test_mps_is_in_force_for_who_has_a_daemon_only() -> None:
    device = _guarded(ShareGuard(ends_violators=True, mps=True))
    without = device.levels_in_force(limited=False, mps=False)
    assert without == Levels(frozenset({"watchdog"}), frozenset({"time-slice"}))
    with_daemon = device.levels_in_force(limited=False, mps=True)
    assert with_daemon == Levels(frozenset({"mps", "watchdog"}), frozenset({"mps", "time-slice"}))


def test_it_stays_in_force_for_who_has_one_while_carina_sharing_is_away() -> None:
    device = _guarded(ShareGuard())
    assert device.levels_in_force(limited=False, mps=True).strongest_memory == "mps"

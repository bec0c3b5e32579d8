"""The amounts of shares: what a claim has of a GPU, and what it gets by default."""

import pytest

from carina_dra.quantity import Quantity
from carina_dra.resource import BoolAttribute, StringAttribute
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.share import ShareAmounts, share_amounts
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

"""Which GPUs get no further claims after a repair that failed."""

from typing import get_args

import pytest

from kubelet_plugin.claims.failure import ClaimFailure, DeviceMissing, NodeResourceFailed
from kubelet_plugin.claims.repair_failure import PREVENTS, Extent, FailedRepairs, prevented
from kubelet_plugin.claims.resource_failure import (
    DeviceNodeUnusable,
    DiskFull,
    DriverModuleMissing,
    MigInstanceDivided,
    ResourceFailure,
)
from tests.samples.claims import allocated, claim

NODE_WRONG = DeviceNodeUnusable("device node /dev/nvidia0", "is missing", "make it")
NO_MODULE = DriverModuleMissing("/dev/nvidia-uvm", "/proc/devices", "nvidia-uvm", "load it")
FULL = DiskFull("CDI specs", "written", "no space left", "make room")
TRAIN, OTHER = claim(), claim(allocated("gpu-1"), uid="uid-2", name="other")


def failed(cause: ResourceFailure) -> ClaimFailure:
    return NodeResourceFailed(TRAIN.reference, cause)


def test_a_wrong_device_node_concerns_the_gpus_of_its_claim() -> None:
    assert prevented([(OTHER, failed(NODE_WRONG))]) == {"gpu-1": "DeviceNodeUnusable"}


@pytest.mark.parametrize("cause", [NO_MODULE, FULL])
def test_what_every_claim_needs_concerns_all_gpus(cause: ResourceFailure) -> None:
    repairs = FailedRepairs()
    repairs.repaired([(TRAIN, failed(cause))])
    assert repairs.of(0) == repairs.of(7) == cause.reason


@pytest.mark.parametrize(
    "failure",
    [failed(MigInstanceDivided("task", 7, 2)), DeviceMissing(TRAIN, "gpu-0", ())],
)
def test_what_concerns_a_claim_alone_prevents_nothing(failure: ClaimFailure) -> None:
    assert prevented([(TRAIN, failure)]) == {}


def test_what_prevents_claims_is_a_failure_of_a_resource() -> None:
    assert set(PREVENTS) < set(get_args(ResourceFailure))
    assert set(PREVENTS.values()) == set(Extent)


def test_the_same_failures_in_another_order_change_nothing() -> None:
    changes = list[int]()
    repairs = FailedRepairs(changed=lambda: changes.append(1))
    failures = [(TRAIN, failed(NO_MODULE)), (OTHER, failed(FULL))]
    repairs.repaired(failures)
    repairs.repaired(failures[::-1])
    assert len(changes) == 1


def test_it_is_over_with_the_next_repair_that_succeeds() -> None:
    changes = list[int]()
    repairs = FailedRepairs(changed=lambda: changes.append(1))
    repairs.repaired([(TRAIN, failed(NODE_WRONG))])
    repairs.repaired([])
    assert repairs.of(0) is None
    assert len(changes) == 2

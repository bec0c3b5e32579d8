"""Shares whose pods the driver keeps within their memory: the limits of cgroups in simulated NVML.

Each call is that of a new plugin process. Claims have a GiB of GPU 0 for each share.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from kubelet_plugin.claims.drift import CdiSpecDrift, MemoryLimitDrift
from kubelet_plugin.claims.failure import (
    ClaimError,
    EnforcementMissing,
    NodeResourceFailed,
    PodUnclear,
)
from kubelet_plugin.claims.resource_failure import (
    MemoryLimitIgnored,
    NvmlCallFailed,
    PodCgroupMissing,
    ResourceFailure,
)
from simulation.nvml import SimulatedNode, uninstall
from tests.fakes.nvml_calls import nvml_calls
from tests.integration.memory_limits.limited import (
    DEMANDS_KERNEL,
    DRIVER,
    GIB,
    OTHER,
    POD,
    SHARE,
    Limited,
)

GET, SET = "nvmlDeviceGetMemoryLimits_v1", "nvmlDeviceSetMemoryLimits_v1"


def _cause(caught: pytest.ExceptionInfo[ClaimError]) -> ResourceFailure:
    failure = caught.value.failure
    assert isinstance(failure, NodeResourceFailed)
    return failure.cause


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Limited]:
    made = Limited.create(tmp_path, driver_version=DRIVER)
    made.cgroup_root.mkdir(parents=True)
    yield made
    uninstall()


@pytest.fixture
def started(node: Limited) -> Limited:
    """The node with a pod whose claim is prepared."""
    node.start_pod(POD)
    node.reserve("train", POD)
    node.prepare("train")
    return node


def test_a_pod_is_limited_to_the_memory_of_its_share_before_its_cdi_spec_is_there(
    node: Limited,
) -> None:
    node.start_pod(POD)
    node.reserve("train", POD)
    specs_at_a_change: list[set[str]] = []

    def at(_number: int, symbol: str) -> None:
        if symbol == SET and node.records():
            specs_at_a_change.append(node.specs())

    with nvml_calls(node.simulated.directory, at):
        node.prepare("train")
    assert specs_at_a_change == [set()]
    assert node.limits() == {POD: GIB}
    assert node.level("train") == "kernel"


def test_the_last_unprepare_removes_the_limit_while_the_pod_is_there(started: Limited) -> None:
    started.unprepare("train")
    assert started.limits() == {}
    assert started.records() == set()


def test_a_pod_that_is_gone_needs_no_call_of_nvml(started: Limited) -> None:
    started.end_pod(POD)
    started.simulated.fail(SET, pynvml.NVML_ERROR_UNKNOWN)
    started.unprepare("train")
    assert started.records() == set()


def test_a_limit_stays_recorded_while_the_cgroups_of_the_host_cannot_be_read(
    started: Limited,
) -> None:
    started.known = started.devices()
    away = started.cgroup_root.rename(started.cgroup_root.with_name("away"))
    started.unprepare("train")
    assert started.records() == {"train.gpu-0.json"}
    away.rename(started.cgroup_root)
    started.repair()
    assert started.records() == set()
    assert started.limits() == {}


def test_two_claims_of_a_pod_on_one_gpu_add_up(started: Limited) -> None:
    started.reserve("infer", POD)
    started.prepare("infer")
    assert started.limits() == {POD: 2 * GIB}
    started.unprepare("train")
    assert started.limits() == {POD: GIB}


def test_two_shares_of_a_claim_on_one_gpu_add_up(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD, devices=(SHARE, SHARE))
    node.prepare("train")
    assert node.limits() == {POD: 2 * GIB}


def test_the_gpus_of_a_claim_have_limits_of_their_own(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD, devices=(SHARE, "gpu-1-share"))
    node.prepare("train")
    assert node.limits(0) == node.limits(1) == {POD: GIB}


def test_pods_do_not_share_a_limit(started: Limited) -> None:
    started.start_pod(OTHER)
    started.reserve("infer", OTHER)
    started.prepare("infer")
    assert started.limits() == {POD: GIB, OTHER: GIB}


def test_a_whole_gpu_has_no_limit(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD, devices=("gpu-0",))
    node.prepare("train")
    assert node.limits() == {}


def test_a_claim_allocated_anew_leaves_no_limit_on_the_gpu_that_it_had(started: Limited) -> None:
    started.reserve("train", POD, devices=("gpu-1-share",))
    started.prepare("train")
    assert started.limits(0) == {}
    assert started.limits(1) == {POD: GIB}
    assert started.records() == {"train.gpu-1.json"}


def test_a_claim_that_goes_to_another_pod_limits_that_one(started: Limited) -> None:
    started.start_pod(OTHER)
    started.reserve("train", OTHER)
    started.prepare("train")
    assert started.limits() == {OTHER: GIB}


# --- which pods ---


def test_the_pods_of_a_claim_that_several_use_are_each_limited_and_told_none(
    started: Limited,
) -> None:
    started.start_pod(OTHER)
    started.reserve("train", OTHER, POD)
    started.prepare("train")
    assert started.limits() == {POD: GIB, OTHER: GIB}
    assert started.level("train") == "none"
    started.repair()
    assert started.limits() == {POD: GIB, OTHER: GIB}, "nothing was seen of its pods since"
    assert started.level("train") == "none"


def test_a_claim_of_several_pods_does_not_wait_for_the_cgroup_of_another(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD, OTHER)
    node.prepare("train")
    assert node.limits() == {POD: GIB}


def test_a_claim_that_demands_the_kernel_is_refused_to_several_pods(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD, OTHER)
    node.configs["train"] = DEMANDS_KERNEL
    with pytest.raises(ClaimError, match="ResourceClaimTemplate") as caught:
        node.prepare("train")
    assert isinstance(caught.value.failure, PodUnclear)
    assert node.limits() == {}
    assert node.records() == set()


def test_a_claim_that_demands_the_kernel_gets_it_for_one_pod(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD)
    node.configs["train"] = DEMANDS_KERNEL
    node.prepare("train")
    assert node.level("train") == "kernel"


def test_a_claim_that_demands_the_kernel_is_not_prepared_while_its_pod_is_not_known(
    node: Limited,
) -> None:
    node.start_pod(POD)
    node.reserve("train", POD)
    node.configs["train"] = DEMANDS_KERNEL
    node.prepare("train")
    node.simulated.reboot()
    node.known = node.devices()
    node.repair()
    ((_, failure),) = node.reporter.unrepaired
    assert failure.reason == "PodUnknown"
    node.prepare("train")
    assert node.limits() == {POD: GIB}


def test_a_demanded_limit_is_not_said_of_a_pod_that_replaced_the_known_one(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD)
    node.configs["train"] = DEMANDS_KERNEL
    node.prepare("train")
    node.end_pod(POD)
    node.start_pod(OTHER)
    node.api_away = True
    with pytest.raises(ClaimError) as caught:
        node.prepare("train")
    assert isinstance(_cause(caught), PodCgroupMissing)
    node.reserve("train", OTHER)
    node.api_away = False
    node.prepare("train")
    assert node.limits() == {OTHER: GIB}


def test_no_limit_is_said_of_a_pod_that_replaced_the_known_one(started: Limited) -> None:
    started.end_pod(POD)
    started.start_pod(OTHER)
    started.api_away = True
    started.prepare("train")
    assert started.level("train") == "none"


def test_a_pod_without_a_cgroup_does_not_start_unlimited(node: Limited) -> None:
    node.reserve("train", POD)
    with pytest.raises(ClaimError, match="set cgroup_root") as caught:
        node.prepare("train")
    assert isinstance(_cause(caught), PodCgroupMissing)
    assert caught.value.failure.retriable
    node.start_pod(POD)
    node.prepare("train")
    assert node.limits() == {POD: GIB}


def test_without_the_cgroups_of_the_host_it_is_said_what_to_set(node: Limited) -> None:
    node.known = node.devices()
    node.cgroup_root.rmdir()
    node.reserve("train", POD)
    with pytest.raises(ClaimError, match="set cgroup_root") as caught:
        node.prepare("train")
    assert isinstance(_cause(caught), PodCgroupMissing)


def test_a_group_below_that_of_a_pod_is_nobodys(node: Limited) -> None:
    (node.start_pod(OTHER) / f"kubepods/burstable/pod{POD}").mkdir(parents=True)
    node.reserve("train", POD)
    with pytest.raises(ClaimError):
        node.prepare("train")
    assert node.limits() == {}


# --- a pod that comes to use a prepared claim ---


def test_a_pod_that_joins_is_limited_by_itself_and_the_claim_is_told_none(
    started: Limited,
) -> None:
    started.start_pod(OTHER)
    started.seen_pods["train"] = (OTHER, POD)
    started.repair()
    assert started.limits() == {POD: GIB, OTHER: GIB}
    assert started.level("train") == "none"
    assert started.reporter.unrepaired == []
    started.unprepare("train")
    assert started.limits() == {}


def test_a_claim_that_demands_the_kernel_and_is_joined_is_a_failure_that_names_the_remedy(
    node: Limited,
) -> None:
    for pod in (POD, OTHER):
        node.start_pod(pod)
    node.reserve("train", POD)
    node.configs["train"] = DEMANDS_KERNEL
    node.prepare("train")
    node.seen_pods["train"] = (POD, OTHER)
    node.repair()
    ((_, failure),) = node.reporter.unrepaired
    assert "use a ResourceClaimTemplate" in str(failure)
    assert node.limits() == {POD: GIB, OTHER: GIB}


def test_a_claim_is_told_the_kernel_again_once_one_pod_uses_it(started: Limited) -> None:
    started.start_pod(OTHER)
    started.seen_pods["train"] = (POD, OTHER)
    started.repair()
    started.seen_pods["train"] = (OTHER,)
    started.repair()
    assert started.limits() == {OTHER: GIB}
    assert started.level("train") == "kernel"


def test_what_was_seen_of_a_claim_before_its_last_call_counts_no_longer(started: Limited) -> None:
    started.seen_pods["train"] = (OTHER,)
    started.repair()
    assert started.limits() == {POD: GIB}
    assert started.level("train") == "kernel"


def test_that_pods_come_and_go_is_no_drift_of_the_cdi_spec(started: Limited) -> None:
    started.start_pod(OTHER)
    claims = started.claims()
    claims.repair()
    for pods, level in (((POD, OTHER), "none"), ((OTHER,), "kernel")):
        started.seen_pods["train"] = pods
        claims.repair()
        assert started.level("train") == level
    assert {type(drift) for _, drift in started.reporter.repaired} == {MemoryLimitDrift}


@pytest.mark.parametrize("pods", [(POD,), (POD, OTHER)], ids=["one pod", "two pods"])
def test_a_cdi_spec_that_something_else_has_removed_is_a_drift(
    started: Limited, pods: tuple[str, ...]
) -> None:
    started.start_pod(OTHER)
    started.reserve("train", *pods)
    started.prepare("train")
    claims = started.claims()
    claims.repair()
    for spec in (started.folder / "cdi").iterdir():
        spec.unlink()
    claims.repair()
    assert [type(drift) for _, drift in started.reporter.repaired] == [CdiSpecDrift]


def test_a_repair_that_finds_nothing_records_nothing_and_sets_nothing(started: Limited) -> None:
    started.start_pod(OTHER)
    started.seen_pods["train"] = (POD, OTHER)
    started.repair()
    record = started.folder / "memory-limits/train.gpu-0.json"
    before = record.stat()
    symbols: list[str] = []

    started.known = started.devices()  # a look at the GPU sets a limit, too
    started.seen_pods["train"] = (OTHER, POD)
    with nvml_calls(started.simulated.directory, lambda _, symbol: symbols.append(symbol)):
        started.repair()

    assert GET in symbols
    assert SET not in symbols
    assert (record.stat().st_ino, record.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


# --- what the driver does ---


def test_a_limit_that_the_driver_refuses_fails_although_it_has_limits(started: Limited) -> None:
    started.known = started.devices()
    started.simulated.fail(SET, pynvml.NVML_ERROR_NOT_SUPPORTED)
    started.reserve("infer", POD)
    with pytest.raises(ClaimError) as caught:
        started.prepare("infer")
    assert isinstance(_cause(caught), NvmlCallFailed)


@pytest.mark.parametrize(
    ("breaks", "failure"),
    [
        (lambda node: node.fail(GET, pynvml.NVML_ERROR_UNKNOWN), NvmlCallFailed),
        (lambda node: node.hold_limits_at(7), MemoryLimitIgnored),
    ],
    ids=["an error", "another limit"],
)
def test_a_driver_that_fails_is_not_one_without_limits(
    started: Limited, breaks: Callable[[SimulatedNode], None], failure: type
) -> None:
    """Although the last look at the GPU has found none."""
    started.start_pod(OTHER)
    started.seen_pods["train"] = (POD, OTHER)
    started.simulated.fail(GET, pynvml.NVML_ERROR_NOT_SUPPORTED, times=4, minor=0)
    assert not started.devices()[SHARE].gpu.memory_limits
    breaks(started.simulated)
    started.repair()
    ((_, unrepaired),) = started.reporter.unrepaired
    assert isinstance(unrepaired, NodeResourceFailed)
    assert isinstance(unrepaired.cause, failure)


def test_a_limit_that_does_not_hold_fails_with_what_the_driver_says(node: Limited) -> None:
    node.start_pod(POD)
    node.reserve("train", POD)
    node.known = node.devices()
    node.simulated.hold_limits_at(7)
    with pytest.raises(ClaimError, match="a limit of 7 bytes") as caught:
        node.prepare("train")
    assert isinstance(_cause(caught), MemoryLimitIgnored)


@pytest.mark.parametrize("older", [True, False], ids=["driver r550", "driver without limits"])
def test_a_driver_without_limits_prepares_shares_as_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, older: bool
) -> None:
    node = Limited.create(tmp_path, driver_version=None if older else DRIVER)
    node.cgroup_root.mkdir(parents=True)
    node.simulated.limit_memory(by_cgroup=False)
    node.start_pod(POD)
    node.reserve("train", POD)
    node.prepare("train")
    assert node.level("train") == "none"
    assert node.records() == set()
    assert unlimited(caplog) == 0
    node.configs["infer"] = DEMANDS_KERNEL
    node.reserve("infer", POD)
    with pytest.raises(ClaimError) as caught:
        node.prepare("infer")
    assert isinstance(caught.value.failure, EnforcementMissing)
    uninstall()


def test_a_limit_stays_while_the_driver_does_not_say_that_it_has_limits(started: Limited) -> None:
    # Two in each of two looks.
    started.simulated.fail(GET, pynvml.NVML_ERROR_NOT_SUPPORTED, times=4, minor=0)
    assert not started.devices()[SHARE].gpu.memory_limits
    started.repair()
    assert started.limits() == {POD: GIB}
    assert started.level("train") == "kernel"


def test_a_driver_replaced_by_one_without_limits_keeps_no_claim(started: Limited) -> None:
    started.simulated.limit_memory(by_cgroup=False)
    started.repair()
    assert started.reporter.unrepaired == []
    assert started.level("train") == "none"
    started.prepare("train")
    started.unprepare("train")
    started.end_pod(POD)
    started.repair()
    assert started.records() == set()


def test_a_lost_gpu_does_not_keep_a_claim(started: Limited) -> None:
    started.simulated.lose_gpu(0)
    started.unprepare("train")
    assert started.records() == {"train.gpu-0.json"}
    started.simulated.reset_gpu(0)
    started.repair()
    assert started.records() == set()
    assert started.limits() == {}


def test_a_repair_sets_again_what_something_else_has_changed(started: Limited) -> None:
    path = started.cgroup_root / f"kubepods/burstable/pod{POD}"
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(str(path).encode(), 0, 5 * GIB)
    claims = started.claims()
    claims.repair()
    pynvml.nvmlDeviceSetMemoryLimits_v1(started.handle(0), limits)
    claims.repair()
    assert started.limits() == {POD: GIB}
    (drift,) = [drift for _, drift in started.reporter.repaired]
    assert str(drift) == (
        f"the memory of pod {POD} on {started.simulated.state.gpus[0].uuid} had a limit of "
        f"{5 * GIB} bytes and not a limit of {GIB} bytes"
    )


def test_a_repair_does_not_need_the_cgroup_of_a_pod_that_has_ended(started: Limited) -> None:
    claims = started.claims()
    claims.repair()
    started.end_pod(POD)
    claims.repair()
    assert started.reporter.unrepaired == []
    assert started.reporter.repaired == [], "nobody has changed anything"
    assert started.level("train") == "none"


def test_after_a_reboot_the_next_prepare_sets_the_limit_again(started: Limited) -> None:
    started.simulated.reboot()
    started.repair()
    assert started.limits() == {}
    started.prepare("train")
    assert started.limits() == {POD: GIB}
    assert started.level("train") == "kernel"


def test_a_repair_removes_the_limit_of_a_claim_that_is_not_recorded(started: Limited) -> None:
    (started.folder / "checkpoint.jsonl").unlink()
    for spec in (started.folder / "cdi").iterdir():
        spec.unlink()
    started.repair()
    assert started.limits() == {}
    assert started.records() == set()


def unlimited(caplog: pytest.LogCaptureFixture) -> int:
    """How many times it was logged that a share is not limited."""
    return sum("is not limited" in record.message for record in caplog.records)


def test_a_claim_that_an_earlier_version_prepared_stays_without_a_limit(
    started: Limited, caplog: pytest.LogCaptureFixture
) -> None:
    started.unprepare("train")
    started.simulated.limit_memory(by_cgroup=False)
    started.prepare("train")
    started.simulated.limit_memory(by_cgroup=True)
    before = json.dumps(started.spec("train"))
    claims = started.claims()
    claims.repair()
    claims.repair()
    assert started.limits() == {}
    assert json.dumps(started.spec("train")) == before
    assert unlimited(caplog) == 1


def test_a_damaged_record_takes_no_memory_from_the_pod(started: Limited) -> None:
    started.reserve("infer", POD)
    started.prepare("infer")
    (started.folder / "memory-limits/train.gpu-0.json").write_text("{")
    started.repair()
    assert started.limits() == {POD: 2 * GIB}
    started.unprepare("train")
    started.repair()
    assert started.limits() == {POD: GIB}


def test_a_damaged_record_keeps_no_limit_too_low(started: Limited) -> None:
    started.reserve("infer", POD)
    started.prepare("infer")
    (started.folder / "memory-limits/train.gpu-0.json").write_text("{")
    path = started.cgroup_root / f"kubepods/burstable/pod{POD}"
    lower = pynvml.c_nvmlSetMemoryLimits_v1_t(str(path).encode(), 0, GIB // 2)
    pynvml.nvmlDeviceSetMemoryLimits_v1(started.handle(0), lower)
    started.repair()
    assert started.limits() == {POD: GIB}


def test_a_damaged_record_does_not_keep_a_claim(started: Limited) -> None:
    (started.folder / "memory-limits/train.gpu-0.json").write_text("{")
    started.repair()
    started.unprepare("train")
    assert started.records() == set()

"""Groups with a device that its driver has tainted."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from carina_dra.resource import (
    DeviceResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
    ObjectMeta,
    TaintEffect,
    TolerationOperator,
)
from controller.engine.decide.cycle import plan
from controller.engine.explain import explain, lines
from controller.engine.model.failed_device import FailedDevice, TaintTolerance
from controller.engine.model.group import OnDeviceFailure, PodSet
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting
from controller.engine.model.queue import Hold
from tests.unit.controller.engine.scene import NOW, TAINT, Scene, evicted, gpus_of, tainted

TEXT = "gpu.carina.dev/drain=recovery-action-4:NoSchedule"
REPLACE = OnDeviceFailure.REPLACE
INTERVAL = 600.0


def gang(on_device_failure: OnDeviceFailure = REPLACE, **fields: Any) -> Scene:
    """A gang of two pods, each with a GPU of the node, and a free one."""
    scene = Scene().node("n", 3).queue("q", quota=8)
    return scene.runs("g", "n", "n", on_device_failure=on_device_failure, **fields)


def tolerating(scene: Scene, pod: str, *, allocated: float | None) -> Scene:
    """A scene in which the claim of a pod tolerates the taint, and was allocated at a time."""
    claim = scene.claims[pod]
    assert claim.status.allocation is not None
    toleration = DeviceToleration(TAINT.key, TolerationOperator.EXISTS)
    results = tuple(
        replace(result, tolerations=(toleration,))
        for result in claim.status.allocation.devices.results
    )
    allocation = replace(
        claim.status.allocation,
        devices=replace(claim.status.allocation.devices, results=results),
        allocation_timestamp=None if allocated is None else datetime.fromtimestamp(allocated, UTC),
    )
    scene.claims[pod] = replace(claim, status=replace(claim.status, allocation=allocation))
    return scene


# Which are degraded ------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE])
def test_a_group_with_a_tainted_device_is_degraded(effect: TaintEffect) -> None:
    found = tainted(gang(), gpu=1, taint=replace(TAINT, effect=effect)).plan().degraded
    text = f"gpu.carina.dev/drain=recovery-action-4:{effect}"
    assert found == {"g": (FailedDevice("t/g-1", "n", "gpu.carina.dev/n/gpu-1", text),)}


def test_taints_without_an_effect_degrade_nobody() -> None:
    scene = tainted(gang(), taint=replace(TAINT, effect=TaintEffect.NONE))
    assert scene.plan().degraded == {}


def test_the_device_of_somebody_else_degrades_nobody() -> None:
    assert tainted(gang(), gpu=2).plan().degraded == {}


def test_the_taint_of_an_administrator_says_nothing_of_the_device() -> None:
    spec = DeviceTaintRuleSpec(
        DeviceTaintSelector(pool="n"), taint=replace(TAINT, effect=TaintEffect.NO_EXECUTE)
    )
    rule = DeviceTaintRule(ObjectMeta(name="out"), spec=spec)
    assert plan(replace(gang().snapshot(), rules=(rule,))).degraded == {}


def test_a_pod_that_is_leaving_still_degrades_its_group() -> None:
    scene = tainted(gang(OnDeviceFailure.WAIT))
    scene.pods["g-0"] = replace(scene.pods["g-0"], state=Evicting("n"))
    assert [failed.pod for failed in scene.plan().degraded["g"]] == ["t/g-0"]


def test_the_device_of_a_pod_without_a_group_degrades_nobody() -> None:
    found = tainted(gang().pod(None, "n", name="alone"), gpu=2).plan()
    assert (found.degraded, found.failures) == ({}, ())


def sharing(scene: Scene, node: str | None, *claims: str, gpu: int) -> Scene:
    """A scene with a group `h` of a pod with these claims, the first of which has a GPU of `n`."""
    scene.group("h", "q", PodSet("", 1)).pod("h", node, claims=claims)
    scene.claim(claims[0], 1)
    claim = scene.claims[claims[0]]
    scene.claims[claims[0]] = replace(
        claim, status=replace(claim.status, allocation=gpus_of("n", gpu))
    )
    return scene


def test_a_pod_that_does_not_run_yet_does_not_degrade_its_group() -> None:
    assert tainted(sharing(gang(), None, "a", gpu=2), gpu=2).plan().degraded == {}


def test_claims_that_are_not_allocated_or_not_there_say_nothing() -> None:
    scene = sharing(gang(), "n", "a", "unallocated", "missing", gpu=2).claim("unallocated")
    found = tainted(scene, gpu=2).plan()
    assert [failed.pod for failed in found.degraded["h"]] == ["t/h-0"]
    assert found.failures == ()


def test_sight_of_a_device_degrades_nobody() -> None:
    scene = sharing(gang(), "n", "a", gpu=2)
    claim = scene.claims["a"]
    allocation = gpus_of("n", 2)
    (result,) = allocation.devices.results
    seen = replace(allocation, devices=replace(allocation.devices, results=(_admin(result),)))
    scene.claims["a"] = replace(claim, status=replace(claim.status, allocation=seen))
    assert tainted(scene, gpu=2).plan().degraded == {}


def _admin(result: DeviceResult) -> DeviceResult:
    return replace(result, admin_access=True)


def test_the_devices_of_a_group_are_in_the_order_of_its_pods_ranks() -> None:
    scene = tainted(tainted(gang(OnDeviceFailure.WAIT)), gpu=1)
    scene.pods["g-0"] = replace(scene.pods["g-0"], rank=1)
    found = scene.plan().degraded["g"]
    assert [failed.pod for failed in found] == ["t/g-1", "t/g-0"]


def test_why_says_that_a_group_is_degraded() -> None:
    snapshot = tainted(gang(OnDeviceFailure.WAIT)).snapshot()
    said = list(lines(explain(snapshot, plan(snapshot), "g")))
    device = "device gpu.carina.dev/n/gpu-0"
    assert said[1] == f"it is degraded: pod g-0 on node n: {device} has the taint {TEXT}"


# Which are replaced ------------------------------------------------------------------------------


def test_a_group_that_waits_goes_on() -> None:
    assert tainted(gang(OnDeviceFailure.WAIT)).plan().evictions == ()


def test_a_group_that_asks_for_it_is_evicted_as_a_whole() -> None:
    found = tainted(gang()).plan()
    assert [(eviction.pod, eviction.action, eviction.group) for eviction in found.evictions] == [
        ("t/g-0", Action.REPLACE, "g"),
        ("t/g-1", Action.REPLACE, "g"),
    ]


def test_also_one_that_is_not_preemptible() -> None:
    assert len(tainted(gang(preemptible=False)).plan().evictions) == 2


def test_a_group_without_a_tainted_device_stays() -> None:
    scene = gang().runs("h", "n", on_device_failure=REPLACE)
    assert evicted(tainted(scene, gpu=2).plan()) == ["h-0"]


def test_groups_are_replaced_in_the_order_of_their_names() -> None:
    scene = Scene().node("n", 8).queue("q", quota=8)
    names = ("h", "d", "b", "g", "a", "a-", "c", "e")  # the claim a--0 comes before a-0
    for gpu, name in enumerate(names):
        tainted(scene.runs(name, "n", on_device_failure=REPLACE), gpu=gpu)
    found = scene.plan()
    assert evicted(found) == [f"{name}-0" for name in sorted(names)]
    assert list(found.degraded) == sorted(names)


def test_a_budget_that_keeps_a_pod_of_a_gang_keeps_the_gang() -> None:
    scene = tainted(gang(budgets=("b",)))
    scene.budgets = {"b": 1}
    found = scene.plan()
    assert (found.evictions, set(found.degraded)) == ((), {"g"})


@pytest.mark.parametrize("ago", [0.0, INTERVAL - 1])
def test_a_group_is_not_replaced_soon_after_an_eviction(ago: float) -> None:
    found = tainted(gang(evicted=NOW - ago)).plan()
    assert (found.evictions, found.wake) == ((), NOW - ago + INTERVAL)


def test_a_group_is_replaced_again_after_the_interval() -> None:
    assert len(tainted(gang(evicted=NOW - INTERVAL)).plan().evictions) == 2


def test_a_group_of_a_queue_that_starts_nothing_goes_on() -> None:
    scene = tainted(gang())
    scene.queues["q"] = replace(scene.queues["q"], hold=Hold.HOLD)
    assert scene.plan().evictions == ()


def test_a_group_that_tolerates_a_taint_that_has_come_is_replaced() -> None:
    taint = replace(TAINT, time_added=datetime.fromtimestamp(NOW - 10, UTC))
    scene = tolerating(tainted(gang(), taint=taint), "g-0", allocated=NOW - 20)
    found = scene.plan()
    assert len(found.evictions) == 2
    assert [failed.tolerance for failed in found.degraded["g"]] == [TaintTolerance.TOLERATES]


def test_a_group_that_started_in_spite_of_the_taint_goes_on() -> None:
    taint = replace(TAINT, time_added=datetime.fromtimestamp(NOW - 20, UTC))
    scene = tolerating(tainted(gang(), taint=taint), "g-0", allocated=NOW - 10)
    found = scene.plan()
    assert (found.evictions, set(found.degraded)) == ((), {"g"})


@pytest.mark.parametrize(
    ("added", "allocated", "tolerance"),
    [
        (NOW - 10, NOW - 10, TaintTolerance.STARTED_WITH),
        (None, NOW - 10, TaintTolerance.TOLERATES),
        (NOW - 10, None, TaintTolerance.TOLERATES),
    ],
)
def test_it_started_in_spite_of_a_taint_if_both_times_say_so(
    added: float | None, allocated: float | None, tolerance: TaintTolerance
) -> None:
    time = None if added is None else datetime.fromtimestamp(added, UTC)
    scene = tainted(gang(), taint=replace(TAINT, time_added=time))
    tolerating(scene, "g-0", allocated=allocated)
    (failed,) = scene.plan().degraded["g"]
    assert failed.tolerance is tolerance


def test_its_next_start_is_on_other_devices() -> None:
    scene = tainted(Scene().node("n", 3).queue("q", quota=8)).waits("g", 2, least=2)
    starts = {start.pod: start.allocations for start in scene.plan().starts}
    devices = {
        result.device
        for allocations in starts.values()
        for _, allocation in allocations
        for result in allocation.devices.results
    }
    assert devices == {"gpu-1", "gpu-2"}


def test_an_error_on_a_group_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = tainted(tainted(gang().runs("h", "n", on_device_failure=REPLACE)), gpu=2)
    monkeypatch.setattr("controller.engine.decide.victims.degraded.taint_text", _fails_for("gpu-0"))
    found = scene.plan()
    assert [failure.group for failure in found.failures] == ["g"]
    assert evicted(found) == ["h-0"]


def _fails_for(device: str) -> object:
    calls = iter([True, False])

    def text(taint: DeviceTaint) -> str:
        if next(calls):
            raise RuntimeError(device)
        return taint.key

    return text


def test_shares_of_one_device_degrade_all_who_have_one() -> None:
    scene = gang(OnDeviceFailure.WAIT).group("h", "q", PodSet("", 1))
    scene.pod("h", "n", claims=("shared",))
    scene.claim("shared", 0)
    claim = scene.claims["shared"]
    scene.claims["shared"] = replace(
        claim, status=replace(claim.status, allocation=gpus_of("n", 0))
    )
    assert set(tainted(scene).plan().degraded) == {"g", "h"}


# Which lost a pod to a device first --------------------------------------------------------------


def bereft(*, ago: float = 1.0, **fields: Any) -> Scene:
    """The gang without its first pod, which somebody else has evicted from its device."""
    scene = gang(device_eviction=NOW - ago, **fields)
    del scene.pods["g-0"], scene.claims["g-0"]
    return scene


def test_a_group_of_which_a_pod_is_being_evicted_by_others_goes_as_a_whole() -> None:
    scene = tainted(gang(device_eviction=NOW - 1))
    scene.pods["g-0"] = replace(scene.pods["g-0"], state=Evicting("n"))
    assert evicted(scene.plan()) == ["g-1"]


def test_also_once_that_pod_is_gone_and_no_device_of_the_others_has_failed() -> None:
    found = bereft().plan()
    assert [(eviction.pod, eviction.action) for eviction in found.evictions] == [
        ("t/g-1", Action.REPLACE)
    ]
    assert found.degraded == {}


def test_the_pod_that_takes_its_place_does_not_start_beside_those_that_go() -> None:
    found = bereft().pod("g", name="g-new").plan()
    assert (evicted(found), found.starts) == (["g-1"], ())


def test_a_group_that_waits_goes_on_without_that_pod() -> None:
    assert bereft(on_device_failure=OnDeviceFailure.WAIT).plan().evictions == ()


@pytest.mark.parametrize("ago", [INTERVAL - 1, 1.0])
def test_a_pod_that_is_lost_soon_after_an_eviction_does_not_replace_its_group(ago: float) -> None:
    assert bereft(ago=ago, evicted=NOW - INTERVAL).plan().evictions == ()


def test_a_pod_that_is_lost_late_after_an_eviction_replaces_its_group() -> None:
    assert evicted(bereft(ago=0.0, evicted=NOW - INTERVAL).plan()) == ["g-1"]


def test_a_group_of_a_queue_that_starts_nothing_goes_on_without_that_pod() -> None:
    scene = bereft()
    scene.queues["q"] = replace(scene.queues["q"], hold=Hold.HOLD)
    assert scene.plan().evictions == ()

"""Who has no devices keeps nobody from devices within a quota by cpu, memory or pods."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from controller.engine.model.plan import Action
from controller.engine.model.pod import PodNeeds
from controller.engine.model.queue import Entitlement
from controller.engine.model.resource import Cpu
from tests.unit.controller.engine.scene import Scene, evicted, nominated, only

HALF = PodNeeds(cpu=2_000)


def _scene(*, owner: int = 4, gpus: int = 0, theirs: int = 0, **fields: Any) -> Scene:
    """Two pods of `other` have all of a node's cpu; the owner asks for one of its GPUs."""
    scene = Scene(**only(Action.RECLAIM)).node("n", 4, cpu=4_000)
    scene.queue("q", quota=owner).queue("other", quota=theirs)
    for name, created in (("old", 1), ("young", 2)):
        scene.group(name, "other", created=created, **fields)
        scene.pod(name, "n", gpus=gpus, needs=HALF)
    return scene.waits("new", needs=HALF)


def test_they_go_for_a_group_within_its_quota_of_devices() -> None:
    plan = _scene().plan()
    assert (evicted(plan), nominated(plan)) == (["young-0"], {"new-0": "n"})


@pytest.mark.parametrize(
    "scene",
    [
        _scene(owner=0),
        _scene(preemptible=False),
        _scene(gpus=1, theirs=2),
    ],
    ids=["beyond the quota", "not preemptible", "with devices within their quota"],
)
def test_they_stay_otherwise(scene: Scene) -> None:
    plan = scene.plan()
    assert (evicted(plan), nominated(plan)) == ([], {})


@pytest.mark.parametrize(("quota", "gone"), [(4_000, []), (2_000, ["young-0"])])
def test_a_queue_that_names_cpu_keeps_its_quota_of_it(quota: int, gone: list[str]) -> None:
    scene = _scene()
    other = scene.queues["other"]
    named = {**other.entitlements, Cpu(): Entitlement(quota, weight=Fraction(0))}
    scene.queues["other"] = replace(other, entitlements=named)
    assert evicted(scene.plan()) == gone


def test_they_go_for_no_group_without_devices() -> None:
    scene = _scene()
    scene.group("bare").pod("bare", gpus=0, needs=HALF)
    del scene.groups["new"], scene.pods["new-0"]
    assert evicted(scene.plan()) == []


def test_whether_a_group_has_devices_follows_its_pods_and_is_undone() -> None:
    scene = Scene().node("n", 4).queue("q", quota=4).group("g")
    scene.pod("g", "n", gpus=0).pod("g", "n", gpus=1)
    state = scene.state()
    mark = state.occupancy.mark()
    assert state.occupancy.has_devices("g")
    assert state.occupancy.without_devices == {"q": 1}
    state.occupancy.evict("t/g-1", here=True)
    assert not state.occupancy.has_devices("g")
    state.occupancy.evict("t/g-0", here=True)
    assert state.occupancy.without_devices == {"q": 0}
    state.occupancy.rollback(mark)
    assert state.occupancy.has_devices("g")
    assert state.occupancy.without_devices == {"q": 1}

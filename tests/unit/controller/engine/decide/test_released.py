"""Nodes whose devices are released: who leaves, in which order, and what starts there."""

from dataclasses import replace

import pytest

from controller.engine.model.group import OnDeviceFailure, PodSet
from controller.engine.model.node import NodeRelease
from controller.engine.model.plan import Action
from controller.engine.model.pod import PodNeeds, PodTolerationOperator, Toleration
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene, evicted, started, tainted


def released(scene: Scene, *nodes: str) -> Scene:
    """A scene in which nodes are released."""
    for node in nodes or ("n",):
        known = scene.nodes[node]
        scene.nodes[node] = replace(known, release=NodeRelease.QUEUES, unschedulable=True)
    return scene


def cluster() -> Scene:
    return Scene().node("n", 40).node("m", 40).queue("q", quota=80)


def test_groups_with_devices_of_the_node_leave() -> None:
    scene = cluster().runs("g", "n").runs("h", "m").runs("cpu", "n", gpus=0)
    found = released(scene).plan()
    assert [(eviction.pod, eviction.action, eviction.group) for eviction in found.evictions] == [
        ("t/g-0", Action.RELEASE, "g")
    ]


def test_nobody_leaves_a_node_in_service() -> None:
    assert evicted(cluster().runs("g", "n").plan()) == []


def test_a_gang_leaves_as_a_whole() -> None:
    assert sorted(evicted(released(cluster().runs("g", "n", "m")).plan())) == ["g-0", "g-1"]


def test_of_a_group_that_does_not_need_them_only_the_pods_there_leave() -> None:
    assert evicted(released(cluster().runs("g", "n", "m", least=1)).plan()) == ["g-0"]


def test_groups_that_are_not_preemptible_leave_last() -> None:
    scene = cluster().runs("firm", "n", preemptible=False).runs("high", "n", priority=5)
    scene.runs("old", "n", created=1).runs("young", "n", created=2)
    assert evicted(released(scene).plan()) == ["young-0", "old-0", "high-0", "firm-0"]


def test_a_few_pods_leave_at_a_time() -> None:
    scene = cluster()
    for index in range(20):
        scene.runs(f"g{index:02}", "n")
    assert len(evicted(released(scene).plan())) == 16


@pytest.mark.parametrize(("least", "expected"), [(1, 1), (2, 0)], ids=["one of them", "a gang"])
def test_budgets_are_respected(least: int, expected: int) -> None:
    scene = cluster().runs("g", "n", "n", least=least, budgets=("b",))
    scene.budgets = {"b": 1}
    assert len(evicted(released(scene).plan())) == expected


def test_a_gang_that_cannot_leave_takes_no_budget_from_others() -> None:
    scene = cluster().runs("gang", "n", "n", created=2, budgets=("b",))
    scene.runs("g", "n", created=1, budgets=("b",))
    scene.budgets = {"b": 1}
    assert evicted(released(scene).plan()) == ["g-0"]


def test_a_gang_that_lacks_pods_already_leaves_as_far_as_budgets_allow() -> None:
    scene = cluster().runs("g", "n", "n", least=3, budgets=("b",))
    scene.budgets = {"b": 1}
    assert len(evicted(released(scene).plan())) == 1


def test_a_group_that_is_to_be_replaced_leaves_once() -> None:
    scene = cluster().runs("g", "n", on_device_failure=OnDeviceFailure.REPLACE)
    found = tainted(released(scene)).plan()
    assert [eviction.action for eviction in found.evictions] == [Action.RELEASE]


def test_nothing_starts_there_whatever_it_tolerates() -> None:
    anything = Toleration(operator=PodTolerationOperator.EXISTS)
    needs = PodNeeds(tolerations=(anything,))
    scene = Scene().node("n", 8).queue("q", quota=8).group("g", root=PodSet("", 1))
    scene.pod("g", needs=needs)
    assert set(started(scene.plan())) == {"g-0"}
    found = released(scene).plan()
    assert started(found) == {}
    assert "released" in str(found.waiting["g"][0])


def test_a_node_that_is_restored_is_in_service() -> None:
    scene = cluster()
    state = State(released(scene).snapshot())
    assert list(state.released) == ["n"]
    state.put_node(replace(scene.nodes["n"], release=NodeRelease.NONE, unschedulable=False))
    assert not state.released

"""What moves keeps its place for the pod that replaces it."""

from dataclasses import replace
from typing import Any

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting, Pending, PodNeeds
from controller.engine.model.queue import Hold
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import GIB, NOW, Scene, evicted, gpus_of, only, started


def moving(line: str = "a-owner") -> Scene:
    """`a` has a pod on each of two nodes of 4 GPUs; one of them moves, so that `b` has a node."""
    scene = Scene(**only(Action.CONSOLIDATE)).queue("q").node("n1", 4).node("n2", 4)
    scene.group("a").pod("a", "n1", gpus=2, line=line).pod("a", "n2", gpus=2, line=line)
    scene.groups["a"] = replace(scene.groups["a"], created=NOW - 9)
    return scene.waits("b", gpus=4)


def after_the_plan(scene: Scene) -> str:
    """The pod that moves is being evicted; its name."""
    plan = scene.plan()
    scene.memory = plan.memory
    (eviction,) = plan.evictions
    name = eviction.pod.removeprefix("t/")
    scene.pods[name] = replace(scene.pods[name], state=Evicting(eviction.node))
    return name


def is_gone(scene: Scene, name: str) -> None:
    del scene.pods[name]
    del scene.claims[name]


def follows(scene: Scene, seconds: float = 1) -> list[str]:
    """What starts in the next cycle."""
    scene.now += seconds
    plan = scene.plan()
    scene.memory = plan.memory
    return list(started(plan))


def test_nobody_gets_the_place_until_the_replacement_has_come() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    scene.waits("c", 2)
    assert follows(scene) == []
    is_gone(scene, gone)
    assert follows(scene) == ["b-0"]


def test_the_replacement_gets_it_whatever_its_name() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    follows(scene)
    scene.waits("c", 2)
    scene.pod("a", gpus=2, name="again", line="a-owner")
    assert "again" in follows(scene)
    assert scene.memory.kept_places == ()


def test_a_replacement_that_is_a_group_of_its_own_gets_it_too() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    follows(scene)
    scene.waits("c", 2)
    scene.group("later").pod("later", gpus=2, line="a-owner")
    assert "later-0" in follows(scene)


@pytest.mark.parametrize(
    "stopped", [{"hold": Hold.HOLD}, {"hold": Hold.DRAIN}, {"deleted": NOW}], ids=str
)
def test_a_queue_that_is_stopped_meanwhile_keeps_no_place(stopped: dict[str, Any]) -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    scene.queue("q", **stopped).queue("other").waits("c", 2, queue="other")
    scene.pod("a", gpus=2, name="again", line="a-owner")
    assert follows(scene) == ["c-0", "c-1"]
    assert scene.memory.kept_places == ()


def test_a_replacement_in_a_queue_that_is_stopped_does_not_get_it() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    scene.queue("held", hold=Hold.HOLD)
    scene.group("later", "held").pod("later", gpus=2, line="a-owner")
    assert "later-0" not in follows(scene)


def test_a_pod_of_another_owner_is_no_replacement() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    follows(scene)
    scene.group("other").pod("other", gpus=2, line="other-owner")
    assert follows(scene) == ["b-0"]


@pytest.mark.parametrize(("seconds", "expected"), [(58, []), (60, ["c-0", "c-1"])])
def test_the_place_is_kept_for_a_time_from_when_the_pod_is_gone(
    seconds: float, expected: list[str]
) -> None:
    scene = moving()
    gone = after_the_plan(scene)
    scene.now += 300  # a long grace, in which nothing else happens
    is_gone(scene, gone)
    scene.pods["b-0"] = replace(scene.pods["b-0"], state=Pending())
    follows(scene, 0)
    scene.waits("c", 2)
    found = follows(scene, seconds)
    assert [name for name in found if name.startswith("c")] == expected


def test_a_queue_that_uses_what_the_moved_pod_had_keeps_no_place_for_it() -> None:
    scene = moving()
    scene.queue("q", limit=10)
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    scene.node("n3", 4).runs("more", "n3", gpus=4)
    follows(scene)
    assert scene.memory.kept_places == ()


def test_a_queue_that_does_not_keeps_it() -> None:
    scene = moving()
    scene.queue("q", limit=8)
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    follows(scene)
    (kept,) = scene.memory.kept_places
    assert kept.pod == f"t/{gone}"


def test_the_next_cycle_comes_when_the_time_is_over() -> None:
    scene = moving()
    is_gone(scene, after_the_plan(scene))
    assert scene.plan().wake == NOW + 60


def test_a_pod_that_is_not_evicted_after_all_leaves_the_place_to_others() -> None:
    scene = moving()
    after_the_plan(scene)
    for name in ("a-0", "a-1"):
        state = scene.pods[name].state
        if isinstance(state, Evicting):
            scene.pods[name] = replace(scene.pods[name], state=Pending())
    del scene.nodes["n1"], scene.slices["n1"]
    del scene.nodes["n2"], scene.slices["n2"]
    follows(scene)
    assert scene.memory.kept_places == ()


def test_it_moves_only_if_its_owner_replaces_it() -> None:
    (eviction,) = moving().plan().evictions
    assert eviction.moves
    (eviction,) = moving("").plan().evictions
    assert not eviction.moves
    assert evicted(moving("").plan()) == [eviction.pod.removeprefix("t/")]


def test_it_does_not_move_if_nobody_makes_its_pods_anew() -> None:
    scene = moving()
    scene.groups["a"] = replace(scene.groups["a"], moves=False)
    assert scene.plan().evictions == ()


def test_nothing_is_kept_for_a_namespace_that_is_gone() -> None:
    scene = moving()
    is_gone(scene, after_the_plan(scene))
    scene.waits("c", 2)
    state = State(replace(scene.snapshot(), namespaces={"t": {}}))
    decided = Engine(state).decide()
    assert list(started(decided)) == ["b-0"]
    state.memory = decided.memory
    state.put_namespace("t", None)
    assert set(started(Engine(state).decide())) == {"b-0", "c-0", "c-1"}


def test_no_place_is_kept_for_a_pod_that_was_not_evicted_after_all() -> None:
    scene = moving()
    scene.memory = scene.plan().memory
    del scene.groups["b"], scene.pods["b-0"], scene.claims["b-0"]
    assert follows(scene.waits("c", 4)) == ["c-0", "c-1", "c-2", "c-3"]


def test_a_place_whose_devices_others_have_is_kept_no_longer() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    (kept,) = scene.memory.kept_places
    follows(scene.runs("other", kept.node, gpus=2))
    assert scene.memory.kept_places == ()


def test_a_place_whose_memory_others_have_is_kept_no_longer() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    (kept,) = scene.memory.kept_places
    scene.memory = replace(scene.memory, kept_places=(replace(kept, needs=PodNeeds(memory=1)),))
    all_of_it = PodNeeds(memory=256 * GIB)
    follows(scene.group("other").pod("other", kept.node, gpus=0, needs=all_of_it))
    assert scene.memory.kept_places == ()


def test_a_place_of_which_others_have_a_part_is_kept_in_no_part() -> None:
    scene = moving()
    gone = after_the_plan(scene)
    is_gone(scene, gone)
    (kept,) = scene.memory.kept_places
    free, taken = gpus_of(kept.node, 2), gpus_of(kept.node, 3)
    scene.memory = replace(
        scene.memory, kept_places=(replace(kept, allocations=((0, free), (1, taken))),)
    )
    del scene.groups["b"], scene.pods["b-0"], scene.claims["b-0"]
    scene.group("other").pod("other", kept.node)
    other = scene.claims["other-0"]
    scene.claims["other-0"] = replace(other, status=replace(other.status, allocation=taken))
    assert "c-0" in follows(scene.waits("c", 5))

"""Places that earlier cycles have promised to pods that wait for others to leave."""

from dataclasses import replace

from carina_dra.resource import (
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
    ObjectMeta,
    TolerationOperator,
)
from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Action, CarriedOver, Nomination
from controller.engine.model.pod import Evicting, PodNeeds
from tests.unit.controller.engine.scene import (
    TAINT,
    Scene,
    devices_of,
    gpus_of,
    nominated,
    only,
    started,
    tainted,
)


def _promised(*promises: tuple[str, str, int], **settings: object) -> Scene:
    """Nodes a and b with two GPUs each; `leaver` leaves gpu-0 of a. Pods have promises there."""
    scene = Scene(**only(), **settings).node("a", 2).node("b", 2).queue("q").claim("old", 1, "a")
    scene.pod(None, name="leaver", claims=("old",), state=Evicting("a"))
    scene.memory = CarriedOver(
        tuple(
            Nomination(f"t/{pod}", node, ((f"t/{pod}", gpus_of(node, gpu)),))
            for pod, node, gpu in promises
        )
    )
    return scene


def test_a_pod_keeps_its_place_while_others_leave() -> None:
    plan = _promised(("new-0", "a", 0)).waits("new").plan()
    assert nominated(plan) == {"new-0": "a"}
    assert devices_of(plan, "new-0") == ["gpu-0"]
    assert [one.pod for one in plan.memory.nominations] == ["t/new-0"]


def test_nobody_else_gets_what_is_promised() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new").waits("first", 3, priority=9)
    plan = scene.plan()
    assert nominated(plan) == {"new-0": "a"}
    assert sorted(started(plan).values()) == ["a", "b", "b"]


def test_a_pod_starts_when_the_others_have_left() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new")
    del scene.pods["leaver"], scene.claims["old"]
    plan = scene.plan()
    assert (started(plan), devices_of(plan, "new-0")) == ({"new-0": "a"}, ["gpu-0"])
    assert plan.memory.nominations == ()


def test_a_promise_on_a_node_that_is_gone_is_dropped() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new")
    del scene.nodes["a"]
    assert started(scene.plan()) == {"new-0": "b"}


def test_a_promise_of_a_claim_that_is_gone_is_dropped() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new")
    del scene.claims["new-0"]
    plan = scene.plan()
    assert (started(plan), nominated(plan)) == ({}, {})


def test_a_promise_on_a_node_that_takes_no_pods_now_is_dropped() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new").node("a", 2, unschedulable=True)
    assert started(scene.plan()) == {"new-0": "b"}


def test_a_promise_is_dropped_if_the_node_has_no_room_for_the_pod() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new", needs=PodNeeds(cpu=50))
    scene.node("a", 2, cpu=100)
    scene.pod(None, "a", gpus=0, name="other", needs=PodNeeds(cpu=51))
    assert started(scene.plan()) == {"new-0": "b"}


def test_a_promise_is_dropped_if_others_have_the_devices() -> None:
    scene = _promised(("new-0", "a", 1)).waits("new").claim("theirs", 1, "a")
    scene.pod(None, "a", name="other", claims=("theirs",))
    assert started(scene.plan()) == {"new-0": "b"}


def test_a_promise_is_dropped_if_the_device_has_failed() -> None:
    scene = tainted(_promised(("new-0", "a", 0)).waits("new"), "a")
    assert started(scene.plan()) == {"new-0": "b"}


def test_a_promise_is_dropped_if_an_administrator_has_tainted_the_device() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new")
    selector = DeviceTaintSelector(pool="a", device="gpu-0")
    rule = DeviceTaintRule(ObjectMeta(name="out"), spec=DeviceTaintRuleSpec(selector, taint=TAINT))
    assert started(plan(replace(scene.snapshot(), rules=(rule,)))) == {"new-0": "b"}


def test_a_promise_is_kept_if_the_claim_tolerates_the_taint() -> None:
    scene = tainted(_promised(("new-0", "a", 0)).waits("new"), "a")
    toleration = DeviceToleration(TAINT.key, TolerationOperator.EXISTS)
    promised = gpus_of("a", 0)
    results = tuple(
        replace(result, tolerations=(toleration,)) for result in promised.devices.results
    )
    allocation = replace(promised, devices=replace(promised.devices, results=results))
    scene.memory = CarriedOver((Nomination("t/new-0", "a", (("t/new-0", allocation),)),))
    assert devices_of(scene.plan(), "new-0") == ["gpu-0"]


def test_a_promise_is_dropped_if_the_claim_has_devices_already() -> None:
    scene = _promised(("new-0", "a", 0)).group("new").claim("new-0", 1, "b")
    scene.pod("new", claims=("new-0",))
    plan = scene.plan()
    assert (nominated(plan), started(plan)) == ({}, {"new-0": "b"})


def test_a_promise_is_dropped_if_the_pod_no_longer_refers_to_the_claim() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new", gpus=0)
    scene.claim("new-0")
    assert devices_of(scene.plan(), "new-0") == []


def test_promises_of_pods_that_have_started_or_are_gone_are_dropped() -> None:
    scene = _promised(("new-0", "a", 0), ("gone-0", "a", 1)).runs("new", "b")
    plan = scene.plan()
    assert (nominated(plan), started(plan)) == ({}, {})


def test_promises_of_groups_that_are_gone_are_dropped() -> None:
    scene = _promised(("new-0", "a", 0)).waits("new")
    del scene.groups["new"]
    assert nominated(scene.plan()) == {}


class TestGangs:
    def test_a_group_keeps_all_of_its_promises_or_none(self) -> None:
        scene = _promised(("g-0", "a", 0), ("g-1", "c", 0)).waits("g", 2)
        plan = scene.plan()
        assert nominated(plan) == {}
        assert set(started(plan).values()) == {"b"}

    def test_all_of_a_gang_wait_until_the_last_can_start(self) -> None:
        scene = _promised(("g-0", "a", 0), ("g-1", "b", 0)).waits("g", 2)
        plan = scene.plan()
        assert (nominated(plan), started(plan)) == ({"g-0": "a", "g-1": "b"}, {})

    def test_a_pod_starts_that_its_group_stands_without(self) -> None:
        scene = _promised(("g-0", "a", 0), ("g-1", "b", 0)).waits("g", 2, least=0)
        plan = scene.plan()
        assert (nominated(plan), started(plan)) == ({"g-0": "a"}, {"g-1": "b"})


def test_a_promise_comes_back_after_the_next_cycle() -> None:
    scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q").runs("old", "n")
    scene.waits("new", priority=1)
    first = scene.plan()
    scene.memory = first.memory
    scene.pods["old-0"] = replace(scene.pods["old-0"], state=Evicting("n"))
    second = scene.plan()
    assert second.nominations == first.nominations
    assert second.evictions == ()

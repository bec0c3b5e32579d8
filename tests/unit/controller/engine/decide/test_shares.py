"""What there is for all queues, what each asks for, and what it may count on."""

from typing import Any

import pytest

from controller.engine.model.pod import PodNeeds
from controller.engine.model.resource import Cpu, Memory, Pods, Resource
from tests.unit.controller.engine.scene import GIB, Scene, shares_of


class TestTotals:
    def test_devices_that_no_queue_is_responsible_for_are_left_out(self) -> None:
        scene = Scene().node("n", 4).queue("q").pod(None, "n", gpus=1, name="theirs")
        assert shares_of(scene.state()).totals == (3,)

    def test_devices_of_cordoned_nodes_are_left_out(self) -> None:
        scene = Scene().node("n", 4).node("m", 2, unschedulable=True).queue("q")
        assert shares_of(scene.state()).totals == (4,)

    def test_they_are_never_less_than_nothing(self) -> None:
        scene = Scene().node("m", 2, unschedulable=True).queue("q").pod(None, "m", name="theirs")
        assert shares_of(scene.state()).totals == (0,)

    @pytest.mark.parametrize(
        ("resource", "total"), [(Cpu(), 2 * 64_000), (Memory(), 2 * 256 * GIB), (Pods(), 220)]
    )
    def test_cpu_memory_and_pods_are_those_of_the_nodes(
        self, resource: Resource, total: int
    ) -> None:
        scene = Scene().node("n").node("m").queue("q", resource=resource)
        assert shares_of(scene.state()).totals == (total,)


class TestRequests:
    def test_what_waits_and_what_runs_is_asked_for(self) -> None:
        scene = Scene().node("n", 8).queue("q").runs("old", "n").waits("new", 2)
        assert shares_of(scene.state()).fair("q") == (3,)

    def test_a_queue_asks_for_what_its_children_do_each_up_to_its_limit(self) -> None:
        scene = Scene().node("n", 20).queue("top").queue("other")
        scene.queue("a", "top", limit=3).queue("b", "top", limit=9)
        for queue in ("a", "b", "other"):
            scene.waits(f"of-{queue}", 6, queue=queue)
        shares = shares_of(scene.state())
        assert {name: shares.fair(name) for name in ("top", "a", "b")} == {
            "top": (9,),
            "a": (3,),
            "b": (6,),
        }

    def test_a_limit_above_caps_what_is_asked_for(self) -> None:
        scene = Scene().node("n", 20).queue("top", limit=4).queue("a", "top")
        assert shares_of(scene.waits("w", 9, queue="a").state()).fair("a") == (4,)


@pytest.mark.parametrize(
    ("entitlement", "waiting", "expected"),
    [
        ({"quota": 3, "weight": 0}, 0, 3),  # the quota, though nothing is asked for
        ({"quota": 3}, 8, 10),  # the fair share
        ({"quota": 9, "limit": 5}, 0, 5),
        ({"quota": None}, 0, 10),
        ({"quota": None, "limit": 4}, 0, 4),
    ],
)
def test_a_queue_may_count_on_its_quota_or_fair_share_up_to_its_limit(
    entitlement: dict[str, Any], waiting: int, expected: int
) -> None:
    scene = Scene().node("n", 10).queue("q", **entitlement)
    if waiting:
        scene.waits("w", 12)
    assert list(shares_of(scene.state()).allocatable("q")) == [expected]


def test_shares_follow_what_has_changed() -> None:
    scene = Scene().node("n", 10).queue("q")
    state = scene.state()
    shares = shares_of(state)
    assert shares.fair("q") == (0,)
    scene.waits("new", 2)
    for key in ("new-0", "new-1"):
        state.put_claim(scene.claims[key])
    state.put_group(scene.groups["new"])
    for key in ("new-0", "new-1"):
        state.put_pod(scene.pods[key])
    shares.refresh()
    assert shares.fair("q") == (2,)


def test_pods_ask_for_cpu() -> None:
    scene = Scene().node("n").queue("q", resource=Cpu())
    scene.waits("new", 2, gpus=0, needs=PodNeeds(cpu=50))
    assert shares_of(scene.state()).fair("q") == (100,)

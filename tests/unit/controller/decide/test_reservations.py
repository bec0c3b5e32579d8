"""Reservations of groups that wait for room, and what must not hold up others."""

from dataclasses import replace
from typing import Any

import pytest

from controller.decide.cycle import Engine
from controller.model.plan import Plan
from controller.model.pod import PodNeeds
from controller.model.snapshot import Snapshot
from controller.state.state import State
from tests.unit.controller.decide.gpu_cluster import (
    CLASS,
    claim,
    gpus,
    group,
    node,
    queue,
    running,
    waiting,
)
from tests.unit.controller.scene import NOW, Scene, only, started

_ALL = tuple(f"n1/g{index}" for index in range(8))


class Cluster:
    """Two nodes of eight GPUs. One is in use until 1100; `q/big` asks for both, and reserves."""

    def __init__(self, **fields: Any) -> None:
        defaults = {
            "now": 1000,
            "nodes": (node(), node("n2")),
            "slices": (gpus(), gpus("n2")),
            "classes": (CLASS,),
            "queues": (queue("q", reserves=True), queue("other")),
            "claims": (claim("q/run", 8, has=_ALL), claim("q/b0", 8), claim("q/b1", 8)),
            "groups": (
                group("q/run", started=1000, run_time=100, preemptible=False),
                group("q/big", least=2),
            ),
            "pods": (
                running("q/run-0", "q/run", "q/run"),
                waiting("q/big-0", "q/big", "q/b0"),
                waiting("q/big-1", "q/big", "q/b1"),
            ),
        }
        self.state = State(Snapshot(**{**defaults, **fields}))
        self._engine = Engine(self.state)

    def cycle(self) -> Plan:
        """Runs a cycle that the next one remembers."""
        plan = self._engine.decide()
        self.state.memory = plan.memory
        return plan

    def settle(self, cycles: int = 4) -> Plan:
        """Runs cycles as long as the last one asks for another one now."""
        for _ in range(cycles):
            plan = self.cycle()
            if plan.wake is None or plan.wake > self.state.now:
                return plan
            self.state.advance(self.state.now)
        raise AssertionError("the cycles do not settle")

    def ask(self, key: str, count: int, of_queue: str = "other", **fields: Any) -> None:
        """Has a group of one pod ask for GPUs."""
        self.state.put_group(group(key, of_queue, **fields))
        self.state.put_claim(claim(key, count))
        self.state.put_pod(waiting(f"{key}-0", key, key))


def test_a_reservation_keeps_out_what_says_not_how_long_it_runs() -> None:
    cluster = Cluster()

    assert cluster.cycle().memory.reservations == {"q/big": 1100}
    cluster.ask("other/long", 4)

    assert not cluster.settle().starts


def test_a_group_that_cannot_start_any_more_holds_up_nobody() -> None:
    cluster = Cluster()
    cluster.cycle()
    cluster.ask("other/long", 4)
    cluster.settle()

    cluster.state.remove_claim("q/b1")

    assert [start.pod for start in cluster.settle().starts] == ["other/long-0"]


def test_a_reservation_ends_with_the_queue_or_its_right_to_reserve() -> None:
    for queues in ((queue("other"),), (queue("q"), queue("other"))):
        cluster = Cluster()
        cluster.cycle()

        cluster.state.put_queues(queues)
        cluster.ask("other/long", 4)

        assert [start.pod for start in cluster.settle().starts] == ["other/long-0"]


def test_two_groups_with_reservations_do_not_wait_for_each_other() -> None:
    cluster = Cluster(queues=(queue("q", reserves=True), queue("other", reserves=True)))
    cluster.ask("other/big", 8)
    cluster.state.put_claim(claim("q/long", 8, has=tuple(f"n2/g{index}" for index in range(8))))
    cluster.state.put_group(group("q/long", started=1000, run_time=100, preemptible=False))
    cluster.state.put_pod(running("q/long-0", "q/long", "q/long", on="n2"))
    assert set(cluster.settle().memory.reservations) == {"q/big", "other/big"}

    for name in ("run", "long"):
        cluster.state.remove_pod(f"q/{name}-0")
        cluster.state.remove_claim(f"q/{name}")

    assert cluster.settle().starts


def test_who_was_behind_a_reservation_is_asked_again_when_it_has_ended() -> None:
    cluster = Cluster()
    cluster.cycle()
    cluster.ask("other/long", 4)
    assert cluster.settle().waiting["other/long"]

    cluster.state.remove_pod("q/big-0")
    cluster.state.remove_pod("q/big-1")

    assert [start.pod for start in cluster.settle().starts] == ["other/long-0"]


def _reserved(**low: Any) -> Scene:
    """Two GPUs, one in use for 100 s; `low` waits for both, and holds a reservation."""
    scene = Scene(**only()).node("n", 2).queue("q", reserves=True).queue("other")
    scene.runs("runs", "n", run_time=100, started=NOW)
    scene.waits("low", gpus=2, created=1, **low)
    scene.memory = scene.plan().memory
    assert scene.memory.reservations == {"low": NOW + 100}
    return scene


class TestWhoMayStart:
    """A pod with one GPU, for which there is room, beside a reservation."""

    @pytest.mark.parametrize(
        ("group", "starts"),
        [
            ({}, False),
            ({"run_time": 100}, True),
            ({"run_time": 101}, False),
            ({"queue": "other", "priority": 9}, False),
            ({"priority": 1}, True),  # it comes before `low` in their queue
            ({"priority": -1}, True),  # `low` may preempt it
            ({"priority": -1, "preemptible": False}, False),
            ({"priority": -1, "queue": "other"}, False),
        ],
    )
    def test_by_run_time_queue_and_priority(self, group: dict[str, Any], starts: bool) -> None:
        scene = _reserved().queue("q", quota=9, reserves=True)
        assert bool(started(scene.waits("new", created=2, **group).plan())) is starts

    def test_a_group_that_does_not_preempt_holds_it_against_lower_priorities(self) -> None:
        scene = _reserved(preempts=False).waits("new", created=2, priority=-1)
        assert started(scene.plan()) == {}

    def test_who_leaves_room_starts(self) -> None:
        scene = _reserved().node("m", 1, labels={"kind": "m"})
        scene.waits("new", created=2, needs=PodNeeds(node_selector=(("kind", "m"),)))
        assert started(scene.plan()) == {"new-0": "m"}


class TestWhoHoldsIt:
    def test_the_first_group_of_a_queue_that_waits_for_room(self) -> None:
        scene = _reserved().waits("second", gpus=2, created=2)
        assert scene.plan().memory.reservations == {"low": NOW + 100}

    def test_a_higher_priority_takes_it_over(self) -> None:
        scene = _reserved().waits("high", gpus=2, created=2, priority=1)
        assert scene.plan().memory.reservations == {"high": NOW + 100}

    def test_each_queue_has_one_of_its_own(self) -> None:
        scene = _reserved().queue("other", reserves=True)
        plan = scene.waits("theirs", gpus=2, queue="other", created=2).plan()
        assert set(plan.memory.reservations) == {"low", "theirs"}

    def test_nobody_if_it_is_not_known_when_there_is_room(self) -> None:
        scene = Scene(**only()).node("n", 2).queue("q", reserves=True).runs("runs", "n")
        assert scene.waits("low", gpus=2).plan().memory.reservations == {}

    def test_nobody_if_there_is_never_room(self) -> None:
        scene = Scene(**only()).node("n", 2).queue("q", reserves=True)
        scene.runs("runs", "n", run_time=100)
        assert scene.waits("low", gpus=3).plan().memory.reservations == {}

    def test_the_time_is_the_first_at_which_there_is_room(self) -> None:
        scene = Scene(**only()).node("n", 4).queue("q", reserves=True)
        for seconds in (400, 100, 300, 200):
            scene.runs(f"r{seconds}", "n", run_time=seconds + 50, started=NOW - 50)
        plan = scene.waits("low", gpus=3).plan()
        assert plan.memory.reservations == {"low": NOW + 300}

    def test_it_ends_when_the_group_has_started(self) -> None:
        scene = _reserved()
        del scene.pods["runs-0"], scene.claims["runs-0"]
        scene.memory = replace(scene.memory, refusals={})
        plan = scene.plan()
        assert (started(plan), plan.memory.reservations) == ({"low-0": "n"}, {})

"""Reservations of groups that wait for room, and what must not hold up others."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.queues.overrun import Overruns
from controller.engine.model.plan import CarriedOver, Plan
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import NoRoom
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.costly import costly
from tests.unit.controller.engine.decide.gpu_cluster import (
    CLASS,
    claim,
    gpus,
    group,
    node,
    queue,
    running,
    waiting,
)
from tests.unit.controller.engine.scene import NOW, Scene, gpu_claim, only, started

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


class TestBesideAGang:
    """Nodes of two GPUs are full until 100, but for one GPU of four of them; a gang asks for both
    GPUs of eight.
    """

    def _scene(
        self, jobs: int, *, nodes: int = 16, reserves: bool = True, run_time: float | None = None
    ) -> Scene:
        scene = Scene(**only()).queue("q", quota=None, reserves=reserves)
        for index in range(nodes):
            scene.node(f"n{index:02}", 2)
            pods = (1 if index < 4 else 2) * [f"n{index:02}"]
            scene.runs(f"r{index:02}", *pods, run_time=100)
        scene.waits("gang", 8, gpus=2, created=1)
        for index in range(jobs):
            scene.waits(f"job{index:02}", created=2, run_time=run_time)
        return scene

    @pytest.mark.parametrize(("nodes", "starts"), [(12, 4), (11, 3), (9, 1), (8, 0)])
    def test_as_many_start_as_leave_it_room(self, nodes: int, starts: int) -> None:
        decided = self._scene(6, nodes=nodes).plan()
        assert decided.memory.reservations == {"gang": NOW + 100}
        assert len(started(decided)) == starts

    @pytest.mark.parametrize("run_time", [None, 50, 1_000])
    def test_it_costs_as_much_as_the_gang_more(self, run_time: float | None) -> None:
        without = self._scene(4, reserves=False, run_time=run_time).plan().steps
        assert self._scene(4, run_time=run_time).plan().steps <= without + 8 + 4

    def test_of_those_who_would_delay_it_alike_one_is_tried(self) -> None:
        few, many = (self._scene(jobs, nodes=8).plan() for jobs in (1, 40))
        assert many.steps == few.steps


class TestWhatItCosts:
    """A gang asks for two nodes of four, with costly selectors; a job may start beside it."""

    def _scene(self, selectors: str = "ab") -> Scene:
        scene = Scene(**only(), attempt_steps=2_000, attempt_steps_per_node=0)
        scene.queue("q", reserves=True).queue("other", quota=None)
        for name in "abcd":
            scene.node(name, 4).runs(f"runs-{name}", name, run_time=100)
        scene.node("beside", 2, labels={"kind": "beside"}).runs("runs", "beside")
        scene.waits("gang", 2, gpus=4)
        for name in ("gang-0", "gang-1"):
            chosen = tuple(map(costly, selectors))
            scene.claims[name] = gpu_claim(name, 4, selectors=chosen)
        reserved = {"gang": NOW + 100}
        refused = {"gang": (NoRoom("t/gang-0", 5, ()),)}
        scene.memory = CarriedOver(reservations=reserved, refusals=refused)
        needs = PodNeeds(node_selector=(("kind", "beside"),))
        return scene.waits("job", queue="other", needs=needs)

    def test_who_starts_beside_it_does_not_pay_for_its_selectors(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("controller.engine.decide.queues.decision_time._ALLOWANCE", 0)
        cheap, costs_much = (
            self._scene(selectors).plan().memory.debts for selectors in ("a", "ab")
        )
        assert costs_much["other"] == cheap["other"] < cheap["q"]

    def test_it_keeps_nobody_from_starting_if_it_costs_more_than_its_group_may(self) -> None:
        assert started(self._scene().plan()) == {"job-0": "beside"}

    def test_it_is_kept_for_a_group_that_may_cost_so_much(self) -> None:
        scene = self._scene()
        scene.memory = replace(scene.memory, attempt_limits={"gang": 2_000})
        plan = scene.waits("new", 3, gpus=3, queue="other").plan()
        assert started(plan) == {"job-0": "beside"}
        assert plan.memory.reservations == {"gang": NOW + 100}


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

    @pytest.mark.parametrize("small_ends", [range(100, 112), [100] * 12, range(100, 160, 5)])
    def test_free_devices_that_are_spread_are_no_room(self, small_ends: Iterable[int]) -> None:
        """Twelve nodes have a GPU free one after the other, and then one of them both."""
        scene = Scene(**only()).queue("q", reserves=True)
        for index, seconds in enumerate(small_ends):
            scene.node(f"n{index}", 2).runs(f"a{index}", f"n{index}", run_time=seconds)
            scene.runs(f"b{index}", f"n{index}", run_time=1_000 + index)
        plan = scene.waits("low", gpus=2).plan()
        assert plan.memory.reservations == {"low": NOW + 1_000}

    def test_it_ends_when_the_group_has_started(self) -> None:
        scene = _reserved()
        del scene.pods["runs-0"], scene.claims["runs-0"]
        scene.memory = replace(scene.memory, refusals={})
        plan = scene.plan()
        assert (started(plan), plan.memory.reservations) == ({"low-0": "n"}, {})


@pytest.mark.parametrize(
    ("overrun", "queue_of_it", "starts"),
    [("t/late", "other", False), ("u/late", "other", True), ("t/late", "q", False)],
)
def test_who_runs_longer_than_it_said_has_its_namespace_believed_no_more(
    overrun: str, queue_of_it: str, starts: bool
) -> None:
    cluster = Cluster()
    cluster.settle()
    assert cluster.state.memory.reservations
    cluster.state.put_group(group(overrun, queue_of_it, started=900, run_time=50))
    cluster.state.put_pod(running(f"{overrun}-0", overrun))
    cluster.state.put_claim(claim("t/small", 1))
    cluster.state.put_group(group("t/small", "other", run_time=50))
    cluster.state.put_pod(waiting("t/small-0", "t/small", "t/small"))
    plan = cluster.settle()
    assert ("t/small-0" in {one.pod for one in plan.starts}) is starts


class TestOverruns:
    """`q/run` has all of a node until 1100, and does not end then; `q/big` waits for it."""

    def _late(self, **fields: Any) -> Cluster:
        """The cluster when `q/run` should have ended a second ago."""
        declared = {"started": 1000, "run_time": 100, "preemptible": False, **fields}
        cluster = Cluster(
            groups=(group("q/run", **declared), group("q/big", least=2)),
            queues=(queue("q", reserves=True), queue("other")),
        )
        plan = cluster.settle()
        assert plan.memory.reservations == {"q/big": 1100}
        assert plan.wake == 1101
        cluster.state.advance(1101)
        return cluster

    def test_who_should_have_ended_goes_for_the_reservation_also_if_not_preemptible(self) -> None:
        plan = self._late().cycle()
        (eviction,) = plan.evictions
        assert (eviction.pod, eviction.group, eviction.overran) == ("q/run-0", "q/big", True)

    def test_it_stays_before_it_should_have_ended(self) -> None:
        cluster = Cluster()
        cluster.settle()
        cluster.state.advance(1100)
        assert cluster.cycle().evictions == ()

    def test_it_stays_if_it_is_more_important(self) -> None:
        assert self._late(priority=1).settle().evictions == ()

    def test_it_stays_for_who_has_no_reservation(self) -> None:
        cluster = self._late()
        cluster.state.remove_group("q/big")
        for name in ("q/big-0", "q/big-1"):
            cluster.state.remove_pod(name)
        cluster.ask("q/new", 8, "q")
        cluster.ask("q/next", 8, "q")
        assert cluster.settle().evictions == ()

    def test_a_reservation_that_only_waits_for_it_holds_up_nobody(self) -> None:
        cluster = self._late(priority=1)
        cluster.settle()
        cluster.ask("other/long", 4)
        plan = cluster.settle()
        assert [one.pod for one in plan.starts] == ["other/long-0"]
        assert plan.memory.delayed == ("q/big",)

    def test_who_has_lost_the_reservation_has_its_right_once_it_is_more_important(self) -> None:
        cluster = self._late(priority=1)
        cluster.settle()
        cluster.state.put_group(group("q/big", least=2, priority=1))
        assert [one.pod for one in cluster.settle().evictions] == ["q/run-0"]

    def test_a_longer_run_time_that_is_declared_later_does_not_help(self) -> None:
        cluster = Cluster()
        cluster.settle()
        late = group("q/run", started=1000, run_time=10_000, preemptible=False)
        cluster.state.put_group(late)
        cluster.settle()
        cluster.state.advance(1101)
        assert [one.pod for one in cluster.cycle().evictions] == ["q/run-0"]


class TestNamespacesThatAreNotBelieved:
    """A group of the namespace `t` has run for 300 s longer than it said, and has ended."""

    def _ended(self, after: float = 300) -> Cluster:
        run = group("q/run", started=1000, run_time=1_000_000, preemptible=False)
        late = group("t/late", "other", started=900, run_time=100)
        cluster = Cluster(
            groups=(run, group("q/big", least=2), late),
            pods=(
                running("q/run-0", "q/run", "q/run"),
                waiting("q/big-0", "q/big", "q/b0"),
                waiting("q/big-1", "q/big", "q/b1"),
                running("t/late-0", "t/late"),
            ),
        )
        cluster.settle()
        cluster.state.advance(1000 + after)
        cluster.state.remove_pod("t/late-0")
        cluster.state.remove_group("t/late")
        cluster.settle()
        return cluster

    @pytest.mark.parametrize(
        ("namespace", "later", "starts"),
        [("t", 0, False), ("t", 299, False), ("t", 301, True), ("u", 0, True)],
    )
    def test_they_start_before_no_reservation_for_as_long_again(
        self, namespace: str, later: float, starts: bool
    ) -> None:
        cluster = self._ended()
        cluster.state.advance(1300 + later)
        cluster.ask(f"{namespace}/small", 1, run_time=10)
        assert bool(cluster.settle().starts) is starts

    def test_not_longer_than_a_day(self) -> None:
        cluster = self._ended(after=200_000)
        assert cluster.state.memory.barred == {"t": 201_000 + 86_400}

    @pytest.mark.parametrize("barred", [0.0, 100.0, 500.0])
    @pytest.mark.parametrize("first", ["t/a", "t/b"])
    def test_of_several_groups_the_one_that_overran_longest_counts(
        self, first: str, barred: float
    ) -> None:
        scene = Scene().queue("q", reserves=True)
        ends = {"t/a": NOW - 300, "t/b": NOW - 10}
        ends = {first: ends.pop(first)} | ends
        scene.memory = CarriedOver(declared_ends=ends, barred={"t": NOW + barred})
        assert Overruns(scene.state()).barred == {"t": NOW + max(300, barred)}

    def test_they_are_asked_again_then(self) -> None:
        cluster = self._ended()
        cluster.ask("t/small", 1, run_time=10)
        assert cluster.settle().wake == 1601

    def test_nothing_is_remembered_where_no_queue_reserves(self) -> None:
        cluster = self._ended()
        cluster.state.put_queues((queue("q"), queue("other")))
        memory = cluster.settle().memory
        assert (memory.barred, memory.declared_ends) == ({}, {})

"""At whose cost room is made: who goes, who stays, and who moves."""

from typing import Any

import pytest

from carina_dra.allocator.preference import Order, Policy
from controller.engine.model.group import PodSet, SubGroups, TopologyConstraint
from controller.engine.model.plan import Action, Plan
from controller.engine.model.pod import Evicting, PodNeeds
from controller.engine.model.reason import (
    NoRoom,
    NoVictims,
    OverFairShare,
    OverLimit,
    OverQuota,
    TooFewDevices,
    Unfair,
)
from tests.unit.controller.engine.scene import NOW, Scene, evicted, nominated, only


def _preempting(gpus: int = 4, **settings: Any) -> Scene:
    return Scene(**only(Action.PREEMPT), **settings).node("n", gpus).queue("q")


def _why(plan: Plan, group: str = "new") -> object:
    return plan.waiting[group][-1]


class TestOrderOfVictims:
    """One GPU is wanted; one of two groups has to go."""

    def _first(self, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
        scene = _preempting(2).runs("a", "n", **a).runs("b", "n", **b)
        return evicted(scene.waits("new", priority=9).plan())

    def test_the_lowest_priority_goes_first(self) -> None:
        assert self._first({"priority": 2}, {"priority": 1}) == ["b-0"]

    def test_then_the_youngest(self) -> None:
        assert self._first({"created": 1}, {"created": 2}) == ["b-0"]

    def test_then_the_first_by_name(self) -> None:
        assert self._first({}, {}) == ["a-0"]

    def test_a_group_shrinks_before_another_falls(self) -> None:
        scene = _preempting(4).runs("falls", "n")
        scene.runs("shrinks", "n", "n", "n", least=1, priority=5)
        assert evicted(scene.waits("new", priority=9).plan()) == ["shrinks-2"]

    def test_a_group_at_its_minimum_falls_as_a_whole(self) -> None:
        scene = _preempting(3).runs("old", "n", "n", "n")
        assert evicted(scene.waits("new", priority=9).plan()) == ["old-0", "old-1", "old-2"]

    def test_a_group_shrinks_pod_by_pod_to_its_minimum(self) -> None:
        scene = _preempting(3).runs("old", "n", "n", "n", least=1)
        plan = scene.waits("new", gpus=2, priority=9).plan()
        assert evicted(plan) == ["old-2", "old-1"]

    def test_a_group_falls_when_shrinking_does_not_do(self) -> None:
        scene = _preempting(3).runs("old", "n", "n", "n", least=1)
        plan = scene.waits("new", gpus=3, priority=9).plan()
        assert set(evicted(plan)) == {"old-0", "old-1", "old-2"}

    def test_a_sub_group_goes_as_a_whole(self) -> None:
        scene = _preempting(4)
        parts = (PodSet("a", 2), PodSet("b", 2))
        scene.group("old", root=SubGroups("", parts, 1))
        for name in "aabb":
            scene.pod("old", "n", pod_set=name)
        assert evicted(scene.waits("new", priority=9).plan()) == ["old-3", "old-2"]

    def test_only_what_has_to_go_goes(self) -> None:
        """The big group frees enough, so the small one that went before it stays."""
        scene = _preempting(3).runs("small", "n").runs("big", "n", gpus=2, priority=1)
        assert evicted(scene.waits("new", gpus=2, priority=9).plan()) == ["big-0"]

    def test_the_node_where_it_costs_least_is_chosen(self) -> None:
        scene = _preempting(1).node("m", 1).runs("high", "n", priority=5).runs("low", "m")
        assert evicted(scene.waits("new", priority=9).plan()) == ["low-0"]

    def test_the_nodes_are_tried_in_the_order_of_their_costs(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q")
        for index, priority in enumerate([5, 4, 3, 6, 2, 7, 1, 8]):
            scene.node(f"n{index}", 1).runs(f"p{priority}", f"n{index}", priority=priority)
        plan = scene.waits("new", 8, least=0, priority=7).plan()
        assert evicted(plan) == ["p1-0", "p2-0", "p3-0", "p4-0", "p5-0", "p6-0"]

    def test_the_node_where_fewer_have_to_go_is_chosen(self) -> None:
        scene = _preempting(2).node("m", 2)
        scene.runs("a", "n").runs("b", "n").runs("c", "m", gpus=2)
        assert evicted(scene.waits("new", gpus=2, priority=9).plan()) == ["c-0"]

    def test_cpu_is_freed_as_well(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", cpu=100)
        scene.group("old").pod("old", "n", gpus=0, needs=PodNeeds(cpu=60))
        plan = scene.waits("new", gpus=0, priority=9, needs=PodNeeds(cpu=50)).plan()
        assert (evicted(plan), nominated(plan)) == (["old-0"], {"new-0": "n"})

    def test_pods_of_no_group_are_never_evicted(self) -> None:
        scene = _preempting(1).pod(None, "n", name="theirs")
        assert evicted(scene.waits("new", priority=9).plan()) == []

    def test_pods_that_are_leaving_are_not_evicted_again(self) -> None:
        scene = _preempting(1).claim("old", 1, "n").group("old")
        scene.pod("old", name="old", claims=("old",), state=Evicting("n", stuck=True))
        assert evicted(scene.waits("new", priority=9).plan()) == []

    def test_a_gang_gets_all_of_its_victims_or_none(self) -> None:
        scene = _preempting(2).runs("low", "n").runs("high", "n", priority=10)
        plan = scene.waits("new", 2, priority=9).plan()
        assert evicted(plan) == []
        why = NoRoom("t/new-1", 1, (("devices", 1),))
        assert _why(plan) == NoVictims("preempt", 1, why)

    def test_one_group_moves_rather_than_two(self) -> None:
        """The two go first, and would fit elsewhere; so does the one that frees as much."""
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 4, labels={"kind": "n"})
        scene.node("m", 2).runs("a", "n").runs("b", "n").runs("c", "n", gpus=2, priority=1)
        needs = PodNeeds(node_selector=(("kind", "n"),))
        plan = scene.waits("new", gpus=2, priority=9, needs=needs).plan()
        assert evicted(plan) == ["c-0"]
        assert nominated(plan) == {"new-0": "n", "c-0": "m"}

    def test_two_groups_move_rather_than_one_falls(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 4, labels={"kind": "n"})
        scene.node("m", 1).node("o", 1).runs("a", "n").runs("b", "n")
        scene.runs("c", "n", gpus=2, priority=1)
        needs = PodNeeds(node_selector=(("kind", "n"),))
        plan = scene.waits("new", gpus=2, priority=9, needs=needs).plan()
        assert set(nominated(plan)) == {"new-0", "a-0", "b-0"}

    def test_a_group_shrinks_on_the_node_where_room_is_made(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 1, labels={"kind": "n"})
        scene.node("m", 1).runs("old", "n", "m", least=1)
        needs = PodNeeds(node_selector=(("kind", "n"),))
        assert evicted(scene.waits("new", priority=9, needs=needs).plan()) == ["old-0"]

    def test_all_of_many_go_if_it_takes_all(self) -> None:
        scene = _preempting(11)
        for index in range(11):
            scene.runs(f"p{index:02}", "n")
        plan = scene.waits("new", gpus=11, priority=9).plan()
        assert len(evicted(plan)) == 11
        assert nominated(plan) == {"new-0": "n"}

    @pytest.mark.parametrize("gpus", [9, 10])
    def test_of_many_no_more_go_than_it_takes(self, gpus: int) -> None:
        scene = _preempting(20)
        for index in range(20):
            scene.runs(f"p{index:02}", "n")
        assert len(evicted(scene.waits("new", gpus=gpus, priority=9).plan())) == gpus

    def test_evictions_count_as_steps(self) -> None:
        few = _preempting(1).runs("old", "n").waits("new", priority=9).plan()
        many = _preempting(3).runs("old", "n", "n", "n").waits("new", priority=9).plan()
        assert many.steps - few.steps >= 2


class TestPreempt:
    @pytest.mark.parametrize(
        ("victim", "expected"),
        [
            ({"priority": 8}, ["old-0"]),
            ({"priority": 9}, []),
            ({"priority": 8, "preemptible": False}, []),
            ({"priority": 8, "queue": "other"}, []),
        ],
    )
    def test_only_lower_priorities_of_the_same_queue_go(
        self, victim: dict[str, Any], expected: list[str]
    ) -> None:
        scene = _preempting(1).queue("other").runs("old", "n", **victim)
        assert evicted(scene.waits("new", priority=9).plan()) == expected

    def test_a_group_that_never_preempts_waits(self) -> None:
        scene = _preempting(1).runs("old", "n").waits("new", priority=9, preempts=False)
        assert evicted(scene.plan()) == []

    def test_a_group_is_safe_for_its_min_runtime(self) -> None:
        scene = _preempting(1, preempt_min_runtime=10).runs("old", "n", started=NOW - 9)
        plan = scene.waits("new", priority=9).plan()
        assert (evicted(plan), plan.wake) == ([], NOW + 1)

    def test_a_safe_group_shrinks_all_the_same(self) -> None:
        scene = _preempting(2, preempt_min_runtime=10).runs("old", "n", "n", least=1, started=NOW)
        assert evicted(scene.waits("new", priority=9).plan()) == ["old-1"]

    def test_the_next_group_that_is_safe_no_longer_sets_the_time(self) -> None:
        scene = _preempting(2, preempt_min_runtime=10)
        scene.runs("a", "n", started=NOW - 2).runs("b", "n", started=NOW - 7)
        assert scene.waits("new", gpus=2, priority=9).plan().wake == NOW + 3

    def test_not_beyond_the_quota_if_it_is_not_preemptible(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 2).queue("q", quota=1)
        scene.runs("firm", "n", preemptible=False).runs("old", "n")
        plan = scene.waits("new", priority=9, preemptible=False).plan()
        assert evicted(plan) == []
        assert {type(one) for one in plan.waiting["new"]} == {OverQuota}


class TestLimits:
    """Where a limit is the obstacle, groups go until the queue lets the next one start."""

    def test_others_of_the_queue_make_way(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 4).queue("q", limit=2)
        scene.runs("a", "n").runs("b", "n", created=1).waits("new", priority=9)
        plan = scene.plan()
        assert (evicted(plan), nominated(plan)) == (["b-0"], {"new-0": "n"})

    def test_a_group_shrinks_first(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 4).queue("q", limit=3)
        scene.runs("a", "n", created=5).runs("b", "n", "n", least=1, priority=3)
        assert evicted(scene.waits("new", priority=9).plan()) == ["b-1"]

    def test_a_limit_above_is_met_by_groups_below_it(self) -> None:
        scene = Scene(**only(Action.RECLAIM)).node("n", 8).queue("top", limit=2)
        scene.queue("q", "top", quota=1).queue("other", "top", quota=1)
        scene.queue("far", weight=0, priority=1)  # it would give first
        scene.runs("theirs", "n", "n", queue="other", least=1).runs("else", "n", queue="far")
        assert evicted(scene.waits("new").plan()) == ["theirs-1"]

    def test_nobody_goes_if_that_does_not_do(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 4).queue("q", limit=2)
        scene.runs("a", "n").runs("firm", "n", preemptible=False)
        plan = scene.waits("new", 2, priority=9).plan()
        assert evicted(plan) == []
        assert isinstance(_why(plan), OverLimit)

    def test_nobody_moves_for_a_limit(self) -> None:
        scene = Scene(**only(Action.CONSOLIDATE)).node("n", 4).queue("q", limit=1)
        plan = scene.runs("a", "n").waits("new").plan()
        assert evicted(plan) == []
        assert isinstance(_why(plan), OverLimit)


def _reclaiming(**settings: Any) -> Scene:
    return Scene(**only(Action.RECLAIM), **settings)


class TestReclaim:
    def test_a_queue_below_its_fair_share_gets_it(self) -> None:
        scene = _reclaiming().node("n", 4).queue("q").queue("other")
        scene.runs("a", "n", "n", queue="other").runs("b", "n", "n", queue="other", created=1)
        plan = scene.waits("new", 2).plan()
        assert evicted(plan) == ["b-0", "b-1"]

    def test_a_group_beyond_the_fair_share_of_its_queue_waits(self) -> None:
        scene = _reclaiming().node("n", 4).queue("q").queue("other")
        scene.runs("old", "n", "n", "n", "n", queue="other").waits("more", 9, queue="other")
        plan = scene.waits("new", 3).plan()
        assert evicted(plan) == []
        assert isinstance(_why(plan), OverFairShare)

    def test_a_queue_within_its_fair_share_does_not_give(self) -> None:
        scene = _reclaiming().node("n", 2).queue("q").queue("a").queue("b")
        scene.runs("of-a", "n", queue="a", created=1).runs("of-b", "n", queue="b")
        assert evicted(scene.waits("new").plan()) == []

    def test_the_queue_with_most_beyond_its_share_gives_first(self) -> None:
        scene = _reclaiming().node("n", 6).queue("q", quota=1, weight=0)
        scene.queue("a", quota=1, weight=0).queue("b", quota=1, weight=0)
        scene.runs("a1", "n", "n", queue="a", least=0)
        scene.runs("b1", "n", "n", "n", "n", queue="b", least=0, priority=99)
        assert evicted(scene.waits("new").plan()) == ["b1-3"]

    def test_a_queue_gives_only_what_it_has_beyond_its_share(self) -> None:
        scene = _reclaiming().node("n", 4).queue("q", quota=2, weight=0)
        scene.queue("other", quota=2, weight=0)
        scene.runs("a", "n", "n", "n", "n", queue="other", least=0)
        plan = scene.waits("new", 2, least=0).waits("more", 4, queue="other").plan()
        assert sorted(evicted(plan)) == ["a-2", "a-3"]

    def test_groups_are_safe_for_their_min_runtime(self) -> None:
        scene = _reclaiming(reclaim_min_runtime=10).node("n", 1).queue("q", quota=1).queue("other")
        plan = scene.runs("old", "n", queue="other", started=NOW - 9).waits("new").plan()
        assert (evicted(plan), plan.wake) == ([], NOW + 1)

    def test_a_victim_with_another_place_moves(self) -> None:
        scene = _reclaiming(moves_reclaimed=False).node("a", 2).node("b", 2)
        scene.queue("q", quota=2).queue("other", weight=0)
        scene.runs("x", "a", queue="other").runs("y", "b", queue="other")
        plan = scene.waits("new", gpus=2).plan()
        assert len(evicted(plan)) == 1
        assert set(nominated(plan)) == {"new-0", *evicted(plan)}

    def test_those_whose_queue_need_not_give_may_move(self) -> None:
        scene = _reclaiming().node("a", 2).node("b", 2).queue("q", quota=2).queue("other", quota=2)
        scene.runs("x", "a", queue="other").runs("y", "b", queue="other")
        plan = scene.waits("new", gpus=2).plan()
        assert len(evicted(plan)) == 1
        assert set(nominated(plan).values()) == {"a", "b"}

    def test_they_stay_where_the_settings_forbid_it(self) -> None:
        scene = _reclaiming(moves_reclaimed=False).node("a", 2).node("b", 2)
        scene.queue("q", quota=2).queue("other", quota=2)
        scene.runs("x", "a", queue="other").runs("y", "b", queue="other")
        assert evicted(scene.waits("new", gpus=2).plan()) == []

    def test_the_reclaimer_ends_with_no_more_of_its_share_than_those_who_gave(self) -> None:
        """The only victim falls as a whole, which is more than its side has to give."""
        scene = _reclaiming().node("n", 8).queue("x").queue("y")
        scene.queue("x1", "x").queue("x2", "x").queue("y1", "y")
        scene.runs("kept", "n", "n", "n", queue="x2", preemptible=False)
        scene.runs("theirs", *["n"] * 5, queue="y1").waits("more", 5, queue="y1")
        plan = scene.waits("new", gpus=2, queue="x1").plan()
        assert evicted(plan) == []
        why = _why(plan)
        assert isinstance(why, NoVictims)
        assert why.why == Unfair()


def _apart(**settings: Any) -> Scene:
    """Two nodes with a free GPU each, and a group that wants both on one."""
    scene = Scene(**only(Action.CONSOLIDATE), **settings).queue("q").queue("other")
    return scene.node("a", 2).node("b", 2).runs("x", "a", queue="other").runs("y", "b")


class TestConsolidate:
    def test_a_group_moves_so_that_another_fits(self) -> None:
        plan = _apart().waits("new", gpus=2).plan()
        assert len(evicted(plan)) == 1
        assert len(nominated(plan)) == 2
        assert len(set(nominated(plan).values())) == 2

    def test_priority_does_not_matter(self) -> None:
        scene = Scene(**only(Action.CONSOLIDATE)).queue("q").node("a", 2).node("b", 2)
        scene.runs("x", "a", priority=9).runs("y", "b", priority=9)
        assert len(evicted(scene.waits("new", gpus=2).plan())) == 1

    def test_nobody_moves_who_has_no_other_place(self) -> None:
        scene = _apart().runs("z", "a")
        plan = scene.waits("new", gpus=2).plan()
        assert evicted(plan) == []
        assert _why(plan) == NoVictims("consolidate", 0, TooFewDevices(1, 2))

    def test_nobody_moves_who_is_not_preemptible(self) -> None:
        scene = Scene(**only(Action.CONSOLIDATE)).queue("q").node("a", 2).node("b", 2)
        scene.runs("x", "a", preemptible=False).runs("y", "b", preemptible=False)
        assert evicted(scene.waits("new", gpus=2).plan()) == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"preemptible": False},
            {"placement": Policy(nodes=Order.SPREAD)},
            {"placement": Policy(devices=Order.SPREAD)},
        ],
    )
    def test_nobody_moves_for_groups_that_are_firm_or_spread(self, fields: dict[str, Any]) -> None:
        scene = _apart().queue("q", quota=9)
        assert evicted(scene.waits("new", gpus=2, **fields).plan()) == []

    @pytest.mark.parametrize(("limit", "moved"), [(2, 2), (1, 0), (None, 2)])
    def test_no_more_pods_move_than_the_settings_allow(self, limit: int | None, moved: int) -> None:
        scene = Scene(**only(Action.CONSOLIDATE), consolidation_limit=limit).queue("q")
        scene.node("a", 4).node("b", 4).runs("x", "a", "a").runs("y", "b", "b")
        assert len(evicted(scene.waits("new", gpus=4).plan())) == moved

    def test_nobody_moves_who_need_not(self) -> None:
        """The small group goes first, and comes back when the big one has made the room."""
        scene = Scene(**only(Action.CONSOLIDATE)).queue("q").node("n", 3, labels={"kind": "n"})
        scene.node("m", 2).runs("a", "n").runs("b", "n", gpus=2)
        needs = PodNeeds(node_selector=(("kind", "n"),))
        plan = scene.waits("new", gpus=2, needs=needs).plan()
        assert (evicted(plan), nominated(plan)) == (["b-0"], {"new-0": "n", "b-0": "m"})

    def test_min_runtimes_keep_a_group_from_moving(self) -> None:
        """Else who has no quota could have the work of others begin anew again and again."""
        scene = Scene(**only(Action.CONSOLIDATE), preempt_min_runtime=99)
        scene.queue("q").node("a", 2).node("b", 2).runs("x", "a", started=NOW - 98)
        scene.runs("y", "b", started=NOW - 98).waits("new", gpus=2)
        plan = scene.plan()
        assert (evicted(plan), plan.wake) == ([], NOW + 1)
        scene.now += 1
        assert len(evicted(scene.plan())) == 1

    @pytest.mark.parametrize("action", [Action.CONSOLIDATE, Action.RECLAIM])
    def test_a_group_that_was_evicted_does_not_move_for_a_time(self, action: Action) -> None:
        """Anybody could else have it moved for ever by asking for one node after another."""
        scene = Scene(**only(action), move_interval=60).queue("q", quota=2)
        scene.queue("other", quota=2).node("a", 2).node("b", 2)
        for name, node in (("x", "a"), ("y", "b")):
            scene.runs(name, node, queue="other", evicted=NOW - 59)
        scene.waits("new", gpus=2)
        plan = scene.plan()
        assert (evicted(plan), plan.wake) == ([], NOW + 1)
        scene.now += 1
        assert len(evicted(scene.plan())) == 1


class TestBudgets:
    def _scene(self, left: int) -> Scene:
        scene = _preempting(2).runs("a", "n", budgets=("b",), created=1).runs("c", "n", priority=1)
        scene.budgets = {"b": left}
        return scene.waits("new", priority=9)

    @pytest.mark.parametrize(("left", "expected"), [(1, ["a-0"]), (0, ["c-0"])])
    def test_a_pod_whose_budget_is_spent_stays(self, left: int, expected: list[str]) -> None:
        assert evicted(self._scene(left).plan()) == expected

    def test_a_budget_that_is_not_known_is_spent(self) -> None:
        scene = self._scene(1)
        scene.budgets = {}
        assert evicted(scene.plan()) == ["c-0"]

    def test_a_group_goes_as_a_whole_or_not_at_all(self) -> None:
        scene = _preempting(2).runs("old", "n", "n", budgets=("b",))
        scene.budgets = {"b": 1}
        assert evicted(scene.waits("new", priority=9).plan()) == []

    def test_who_need_not_go_does_not_spend_it(self) -> None:
        scene = (
            _preempting(4).runs("small", "n", budgets=("b",)).runs("big", "n", gpus=2, priority=1)
        )
        scene.runs("last", "n", budgets=("b",), priority=2)
        scene.budgets = {"b": 1}
        scene.waits("new", gpus=2, priority=8).waits("then", priority=7)
        assert evicted(scene.plan()) == ["big-0", "small-0"]

    def test_an_attempt_that_fails_does_not_spend_it(self) -> None:
        scene = _preempting(2).runs("low", "n", budgets=("b",)).runs("high", "n", priority=10)
        scene.budgets = {"b": 1}
        plan = scene.waits("huge", gpus=2, priority=9).waits("new", priority=8).plan()
        assert evicted(plan) == ["low-0"]


class TestTopology:
    def test_victims_go_in_the_domain_where_they_cost_least(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q")
        scene.topologies = {"t": ("rack",)}
        for name in ("a1", "a2", "b1", "b2"):
            scene.node(name, 1, labels={"rack": name[0]})
        scene.runs("high", "a1", priority=5).runs("a", "a2", priority=5)
        scene.runs("low", "b1", priority=1).runs("b", "b2", priority=1)
        constraint = TopologyConstraint("t", required="rack")
        scene.group("new", root=PodSet("", 2, constraint), priority=9).pod("new").pod("new")
        assert sorted(evicted(scene.plan())) in (
            ["low-0", "b-0"],
            ["b-0", "low-0"],
            ["a-0", "high-0"],
        )


def test_room_that_is_made_for_one_group_is_not_given_to_the_next() -> None:
    scene = _preempting(1).runs("old", "n").waits("first", priority=9).waits("second", priority=8)
    plan = scene.plan()
    assert nominated(plan) == {"first-0": "n"}
    assert isinstance(_why(plan, "second"), NoVictims)


def test_each_pod_of_a_group_that_grows_makes_room_for_itself() -> None:
    scene = _preempting(2).runs("a", "n").runs("b", "n").waits("new", 2, least=1, priority=9)
    assert len(evicted(scene.plan())) == 2


def test_an_eviction_names_the_group_for_which_the_pod_goes() -> None:
    (eviction,) = _preempting(1).runs("old", "n").waits("new", priority=1).plan().evictions
    assert (eviction.node, eviction.action, eviction.group) == ("n", Action.PREEMPT, "new")


def test_a_group_for_which_others_go_is_not_evicted_in_the_same_plan() -> None:
    scene = Scene(**only(Action.RECLAIM, Action.PREEMPT)).node("n", 4).queue("q", quota=2, weight=0)
    scene.queue("other").runs("theirs", "n", "n", "n", queue="other", least=0).runs("mine", "n")
    plan = scene.waits("new").waits("high", gpus=2, priority=9).plan()
    assert evicted(plan) == ["theirs-2"]
    assert nominated(plan) == {"new-0": "n"}

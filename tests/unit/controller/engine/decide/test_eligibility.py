"""Who may be evicted for whom, rule by rule."""

from typing import Any

import pytest

from controller.engine.decide.queues.eligibility import Eligibility, Safe
from controller.engine.model.plan import Action
from controller.engine.model.reason import OverFairShare
from tests.unit.controller.engine.scene import GPU, NOW, Scene, shares_of


def _eligibility(scene: Scene, action: Action, group: str = "new", asked: int = 1) -> Eligibility:
    state = scene.state()
    return Eligibility(state, shares_of(state), state.occupancy.groups[group], (asked,), action)


class TestMayLose:
    @pytest.mark.parametrize(
        ("action", "victim", "expected"),
        [
            (Action.PREEMPT, {"priority": 4}, True),
            (Action.PREEMPT, {"priority": 5}, False),
            (Action.PREEMPT, {"priority": 4, "queue": "other"}, False),
            (Action.PREEMPT, {"priority": 4, "preemptible": False}, False),
            (Action.RECLAIM, {"queue": "other", "priority": 9}, True),
            (Action.RECLAIM, {}, False),
            (Action.RECLAIM, {"queue": "gone"}, True),
            (Action.RECLAIM, {"queue": "other", "preemptible": False}, False),
            (Action.CONSOLIDATE, {"priority": 9}, True),
            (Action.CONSOLIDATE, {"queue": "other"}, True),
            (Action.CONSOLIDATE, {"queue": "gone"}, False),
            (Action.CONSOLIDATE, {"preemptible": False}, False),
            (Action.STALE, {}, False),
        ],
    )
    def test_by_action(self, action: Action, victim: dict[str, Any], expected: bool) -> None:
        scene = Scene().node("n", 2).queue("q").queue("other")
        scene.runs("old", "n", **victim).waits("new", priority=5)
        eligibility = _eligibility(scene, action)
        assert eligibility.may_lose(scene.groups["old"]) is expected


class TestSafety:
    """Min-runtimes: a group is safe for a while since it started."""

    @pytest.mark.parametrize(
        ("action", "runs_for", "safe"),
        [
            (Action.PREEMPT, 9, True),
            (Action.PREEMPT, 10, False),
            (Action.RECLAIM, 19, True),
            (Action.RECLAIM, 20, False),
            (Action.CONSOLIDATE, 19, True),
            (Action.CONSOLIDATE, 20, False),
            (Action.STALE, 0, False),
        ],
    )
    def test_by_action(self, action: Action, runs_for: float, safe: bool) -> None:
        least = {Action.PREEMPT: 10}.get(action, 20)
        scene = Scene(preempt_min_runtime=10, reclaim_min_runtime=20).node("n", 2)
        scene.queue("q").queue("other").waits("new")
        started = NOW - runs_for
        scene.runs("old", "n", queue="other", started=started)
        expected = Safe(started + least) if safe else None
        assert _eligibility(scene, action).safety(scene.groups["old"]) == expected

    def test_the_queue_of_the_victim_says_it_before_the_default(self) -> None:
        scene = Scene(preempt_min_runtime=10).node("n", 2).queue("q", preempt_min_runtime=99)
        scene.runs("old", "n", started=NOW - 50).waits("new")
        assert _eligibility(scene, Action.PREEMPT).safety(scene.groups["old"]) == Safe(NOW + 49)

    def test_its_own_queue_has_it_move_as_late_as_it_is_preempted(self) -> None:
        scene = Scene(preempt_min_runtime=10, reclaim_min_runtime=20).node("n", 2).queue("q")
        scene.runs("old", "n", started=NOW - 9).waits("new")
        safe = _eligibility(scene, Action.CONSOLIDATE).safety(scene.groups["old"])
        assert safe == Safe(NOW + 1)

    def test_a_group_that_has_not_started_is_not_safe(self) -> None:
        scene = Scene(preempt_min_runtime=10).node("n", 2).queue("q")
        scene.runs("old", "n", started=None).waits("new")
        assert _eligibility(scene, Action.PREEMPT).safety(scene.groups["old"]) is None

    def test_a_group_of_no_queue_is_not_safe(self) -> None:
        scene = Scene(reclaim_min_runtime=10).node("n", 2).queue("q")
        scene.runs("old", "n", queue="gone", started=NOW).waits("new")
        assert _eligibility(scene, Action.RECLAIM).safety(scene.groups["old"]) is None


class TestMayReclaim:
    @pytest.mark.parametrize(
        ("asked", "expected"), [(2, None), (3, OverFairShare("q", GPU, 4, 2, 3))]
    )
    def test_only_up_to_the_fair_share_of_the_queue(self, asked: int, expected: object) -> None:
        scene = Scene().node("n", 8).queue("q").queue("other")
        scene.runs("mine", "n", gpus=2).waits("new", gpus=4)
        scene.runs("theirs", "n", gpus=6, queue="other")
        assert _eligibility(scene, Action.RECLAIM, asked=asked).may_reclaim() == expected

    @pytest.mark.parametrize("action", [Action.PREEMPT, Action.CONSOLIDATE])
    def test_other_actions_do_not_look_at_the_fair_share(self, action: Action) -> None:
        scene = Scene().node("n", 1).queue("q").waits("new")
        assert _eligibility(scene, action, asked=99).may_reclaim() is None

    def test_resources_that_are_not_asked_for_do_not_matter(self) -> None:
        scene = Scene().node("n", 1).queue("q", weight=0).runs("old", "n").waits("new")
        assert _eligibility(scene, Action.RECLAIM, asked=0).may_reclaim() is None


def _may_take(mine: dict[str, Any], theirs: dict[str, Any], *, has: int, gives: int) -> bool:
    """Whether `other` gives to `q`, on 10 GPUs of which they have so many."""
    scene = Scene().node("n", 10).queue("q", **mine).queue("other", **theirs)
    if has:
        scene.runs("mine", "n", gpus=has)
    scene.runs("theirs", "n", gpus=gives, queue="other").waits("new", gpus=10)
    return _eligibility(scene, Action.RECLAIM).may_take_from("other")


class TestMayTakeFrom:
    def test_a_queue_gives_that_has_more_than_its_fair_share(self) -> None:
        assert _may_take({}, {}, has=0, gives=6)

    def test_a_queue_at_its_fair_share_does_not_give(self) -> None:
        assert not _may_take({}, {}, has=0, gives=5)

    def test_a_queue_does_not_give_of_its_quota(self) -> None:
        assert not _may_take({"weight": 9}, {"quota": 5}, has=5, gives=5)

    def test_a_queue_gives_what_is_beyond_its_quota_to_one_below_its_own(self) -> None:
        both = {"quota": 2}
        assert _may_take(both, {"quota": 2, "weight": 3, "limit": 9}, has=1, gives=3)

    def test_what_is_asked_for_has_to_be_within_the_quota(self) -> None:
        assert not _may_take({"quota": 2}, {"quota": 2, "weight": 3}, has=2, gives=3)

    def test_a_quota_without_bound_covers_everything(self) -> None:
        assert _may_take({"quota": None}, {"quota": 1, "weight": 99}, has=9, gives=1) is False
        assert _may_take({"quota": None, "limit": 4}, {"quota": 1}, has=3, gives=2)

    def test_a_quota_without_bound_is_never_exceeded(self) -> None:
        assert not _may_take({"quota": 10}, {"quota": None}, has=0, gives=9)

    def test_the_queues_are_compared_just_below_where_their_ways_up_meet(self) -> None:
        scene = Scene().node("n", 10).queue("x").queue("y").queue("q", "x")
        # Of its own, the victim has more than its share; y has not.
        scene.queue("y1", "y", weight=0).queue("y2", "y")
        scene.runs("theirs", "n", gpus=5, queue="y1").waits("new", gpus=10)
        scene.waits("sibling", gpus=10, queue="y2")
        assert not _eligibility(scene, Action.RECLAIM).may_take_from("y1")
        state = scene.state()
        sibling = state.occupancy.groups["sibling"]
        own = Eligibility(state, shares_of(state), sibling, (1,), Action.RECLAIM)
        assert own.may_take_from("y1")

    def test_what_still_runs_in_a_queue_above_gives(self) -> None:
        scene = Scene().node("n", 10).queue("top", quota=10).queue("q", "top")
        scene.runs("old", "n", queue="top").waits("new")
        assert _eligibility(scene, Action.RECLAIM).may_take_from("top") is True

    @pytest.mark.parametrize("action", [Action.PREEMPT, Action.CONSOLIDATE])
    def test_other_actions_take_from_every_queue(self, action: Action) -> None:
        scene = Scene().node("n", 1).queue("q", limit=0).waits("new")
        assert _eligibility(scene, action).may_take_from("q")

    def test_the_quota_counts_what_is_asked_for_once(self) -> None:
        """Also when the group has its devices already, in the trial."""
        scene = Scene().node("n", 10).queue("q", quota=2).queue("other", quota=2, weight=3)
        scene.runs("mine", "n").runs("theirs", "n", gpus=3, queue="other").waits("new")
        state = scene.state()
        new = state.occupancy.groups["new"]
        eligibility = Eligibility(state, shares_of(state), new, (1,), Action.RECLAIM)
        state.occupancy.accounts.take("q", (1,), preemptible=True)
        assert eligibility.may_take_from("other")
        full = Eligibility(state, shares_of(state), new, (1,), Action.RECLAIM)
        assert not full.may_take_from("other")


class TestMayTakeFromAny:
    @pytest.mark.parametrize(
        ("action", "victim", "expected"),
        [
            (Action.PREEMPT, {"priority": 4}, True),
            (Action.PREEMPT, {"priority": 5}, False),
            (Action.PREEMPT, {"priority": 4, "queue": "over"}, False),
            (Action.RECLAIM, {"queue": "over"}, True),
            (Action.RECLAIM, {"queue": "within"}, False),
            (Action.RECLAIM, {"queue": "gone"}, True),
            (Action.RECLAIM, {}, False),
            (Action.CONSOLIDATE, {"queue": "within"}, True),
        ],
    )
    def test_by_who_has_a_place(
        self, action: Action, victim: dict[str, Any], expected: bool
    ) -> None:
        scene = Scene().node("n", 8).queue("q", weight=0).queue("over", weight=0)
        scene.queue("within", quota=8).runs("old", "n", **victim).waits("new", priority=5)
        assert _eligibility(scene, action).may_take_from_any() is expected

    def test_what_still_runs_in_a_queue_above_gives(self) -> None:
        scene = Scene().node("n", 10).queue("top", quota=10).queue("q", "top")
        scene.runs("old", "n", queue="top").waits("new")
        assert _eligibility(scene, Action.RECLAIM).may_take_from_any() is True


def _stays_fair(fair: tuple[int, int], has: tuple[int, int], *, gave: bool = True) -> bool:
    """Whether q stays fair beside `other` that gave, by fair shares and what they have then."""
    scene = Scene().node("n", 40)
    scene.queue("q", quota=fair[0], weight=0).queue("other", quota=fair[1], weight=0)
    for name, queue, amount in zip(("mine", "theirs"), ("q", "other"), has, strict=True):
        if amount:
            scene.runs(name, "n", gpus=amount, queue=queue)
        scene.waits(f"{name}-more", gpus=20, queue=queue)
    eligibility = _eligibility(scene, Action.RECLAIM, group="mine-more")
    return eligibility.stays_fair(["other"] if gave else [])


class TestStaysFair:
    @pytest.mark.parametrize(
        ("fair", "has", "expected"),
        [
            ((4, 4), (4, 0), True),  # not more than its share
            ((4, 4), (5, 6), True),  # more, but a smaller part of it
            ((4, 4), (5, 5), False),  # as large a part
            ((4, 8), (5, 8), False),  # a larger part
            ((4, 8), (5, 11), True),
            ((8, 4), (9, 5), True),
        ],
    )
    def test_by_the_part_that_each_has_of_its_share(
        self, fair: tuple[int, int], has: tuple[int, int], expected: bool
    ) -> None:
        assert _stays_fair(fair, has) is expected

    def test_siblings_that_gave_nothing_do_not_matter(self) -> None:
        assert _stays_fair((4, 4), (9, 0), gave=False)

    def test_every_level_counts(self) -> None:
        scene = Scene().node("n", 40).queue("x", quota=4, weight=0).queue("y", quota=4, weight=0)
        scene.queue("x1", "x", quota=9).queue("y1", "y", quota=9)
        scene.runs("mine", "n", gpus=5, queue="x1").waits("new", gpus=9, queue="x1")
        scene.runs("theirs", "n", queue="y1").waits("more", gpus=9, queue="y1")
        assert not _eligibility(scene, Action.RECLAIM).stays_fair(["y1"])

    def test_what_moves_below_one_queue_does_not_matter_above_it(self) -> None:
        scene = Scene().node("n", 8).queue("x", quota=1, weight=0)
        scene.queue("x1", "x", quota=4, weight=0).queue("x2", "x")
        scene.runs("mine", "n", queue="x1").waits("new", queue="x1")
        scene.runs("theirs", "n", gpus=2, queue="x2")
        assert _eligibility(scene, Action.RECLAIM).stays_fair(["x2"])

    @pytest.mark.parametrize("action", [Action.PREEMPT, Action.CONSOLIDATE])
    def test_other_actions_need_not_stay_fair(self, action: Action) -> None:
        scene = Scene().node("n", 8).queue("q", weight=0).queue("other")
        scene.runs("mine", "n").waits("new").runs("theirs", "n", queue="other")
        assert _eligibility(scene, action).stays_fair(["other"])

"""Queues that were deleted, or are emptied, and groups whose queue does not exist."""

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.model.group import PodSet
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting
from controller.engine.model.queue import Hold
from controller.engine.model.reason import ClosedQueue, Reason, StoppedQueue
from tests.unit.controller.engine.scene import NOW, Scene, evicted, only, started


def _closed(**queue: object) -> Scene:
    return Scene().node("n", 4).queue("q", quota=4, **queue)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ({"deleted": NOW}, ClosedQueue("q")),
        ({"hold": Hold.HOLD}, StoppedQueue("q")),
        ({"hold": Hold.DRAIN}, StoppedQueue("q")),
    ],
    ids=["deleted", "held", "emptied"],
)
def test_nothing_starts_in_it(queue: dict[str, object], reason: Reason) -> None:
    plan = _closed(**queue).waits("g").plan()
    assert plan.starts == ()
    assert plan.waiting == {"g": (reason,)}


def test_nothing_starts_below_it() -> None:
    scene = Scene().node("n", 4).queue("top", deleted=NOW).queue("q", "top", quota=4)
    assert scene.waits("g").plan().waiting == {"g": (ClosedQueue("top"),)}


def test_a_group_that_runs_in_it_gets_no_more_pods() -> None:
    scene = _closed(deleted=NOW).runs("g", "n", least=1).pod("g")
    assert scene.plan().starts == ()


def test_no_promise_is_kept_in_it() -> None:
    scene = _closed().waits("g", gpus=4).runs("away", "n", gpus=4, queue="other")
    scene.queue("other")
    scene.memory = scene.plan().memory
    assert scene.memory.nominations
    scene.queue("q", quota=4, deleted=NOW)
    assert scene.plan().nominations == ()


@pytest.mark.parametrize("quota", [4, None])
def test_what_it_has_is_beyond_any_quota(quota: int | None) -> None:
    scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=quota, deleted=NOW)
    scene.queue("owner", quota=2).runs("g", "n", "n", "n", "n", least=0)
    assert evicted(scene.waits("new", gpus=2, queue="owner").plan()) == ["g-3", "g-2"]


def test_it_may_count_on_no_share_of_what_is_left_over() -> None:
    scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", deleted=NOW)
    scene.queue("other").runs("g", "n", "n", "n", "n", least=0)
    plan = scene.waits("new", gpus=4, queue="other").plan()
    assert plan.fair_shares["q"] == {"deviceClass gpu": 0}
    assert len(evicted(plan)) == 4


def test_what_is_not_preemptible_stays_in_a_deleted_queue() -> None:
    scene = Scene().node("n", 4).queue("q", quota=4, deleted=NOW).queue("owner", quota=4)
    scene.runs("g", "n", gpus=4, preemptible=False)
    assert evicted(scene.waits("new", gpus=4, queue="owner").plan()) == []


def test_its_groups_do_not_move() -> None:
    scene = Scene(**only(Action.CONSOLIDATE)).node("a", 2).node("b", 2)
    scene.queue("q", deleted=NOW).queue("other").runs("g", "a").runs("h", "b", queue="other")
    plan = scene.waits("new", gpus=2, queue="other").plan()
    assert evicted(plan) == ["h-0"]


# Held --------------------------------------------------------------------------------------------


def test_what_runs_in_a_held_queue_keeps_its_quota() -> None:
    scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=2, hold=Hold.HOLD)
    scene.queue("owner", quota=2).runs("g", "n", "n", "n", "n", least=0)
    assert evicted(scene.waits("new", 4, least=1, queue="owner").plan()) == ["g-3", "g-2"]


def test_what_waits_in_a_held_queue_keeps_nothing_from_others() -> None:
    """Of 4 GPUs, `other` may count on what `q` does not have, whatever waits in it."""
    scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=3, hold=Hold.HOLD)
    scene.queue("other").runs("g", "n").waits("more", gpus=2)
    scene.waits("new", 3, queue="other")
    assert scene.plan().fair_shares == {
        "q": {"deviceClass gpu": 1},
        "other": {"deviceClass gpu": 3},
    }


def test_groups_start_again_once_it_is_resumed() -> None:
    scene = _closed(hold=Hold.HOLD).waits("g")
    state = scene.state()
    state.memory = Engine(state).decide().memory
    scene.queue("q", quota=4)
    state.put_queues(scene.queues.values())
    assert started(Engine(state).decide()) == {"g-0": "n"}


# Emptied -----------------------------------------------------------------------------------------


def test_an_emptied_queue_loses_its_groups_although_nobody_needs_the_room() -> None:
    plan = _closed(hold=Hold.DRAIN).runs("g", "n", "n").plan()
    assert [(each.pod, each.action, each.group) for each in plan.evictions] == [
        ("t/g-0", Action.DRAIN, "g"),
        ("t/g-1", Action.DRAIN, "g"),
    ]


def test_queues_below_an_emptied_one_are_emptied() -> None:
    scene = Scene().node("n", 4).queue("top", hold=Hold.DRAIN).queue("q", "top").runs("g", "n")
    assert evicted(scene.plan()) == ["g-0"]


def test_a_deleted_queue_is_not_emptied_by_itself() -> None:
    assert evicted(_closed(deleted=NOW).runs("g", "n").plan()) == []


def test_groups_go_by_priority_the_youngest_first_and_those_that_are_not_preemptible_last() -> None:
    scene = Scene().node("n", 40).queue("q", hold=Hold.DRAIN)
    scene.runs("firm", "n", preemptible=False, created=9)
    scene.runs("high", "n", priority=1, created=3)
    scene.runs("old", "n", created=1).runs("young", "n", created=2)
    assert [each.group for each in scene.plan().evictions] == ["young", "old", "high", "firm"]


def test_no_further_group_goes_while_many_pods_are_leaving() -> None:
    scene = Scene().node("n", 40).queue("q", hold=Hold.DRAIN)
    scene.runs("a", *["n"] * 20, created=3).runs("b", "n", created=2)

    plan = scene.plan()

    assert {each.group for each in plan.evictions} == {"a"}


@pytest.mark.parametrize(
    ("stuck", "leaving", "expected"),
    [(False, 16, []), (False, 15, ["b-0"]), (True, 16, ["b-0"])],
    ids=["leaving", "few", "stuck"],
)
def test_the_next_group_goes_when_enough_of_the_first_are_gone_or_do_not_end(
    leaving: int, expected: list[str], *, stuck: bool
) -> None:
    scene = Scene().node("n", 40).queue("q", hold=Hold.DRAIN).queue("other").group("a")
    for _ in range(leaving):
        scene.pod("a", "n", state=Evicting("n", stuck=stuck))
    scene.runs("not-of-it", *["n"] * 2, queue="other").runs("b", "n")
    assert evicted(scene.plan()) == expected


def test_of_a_group_that_lacks_pods_anyhow_those_go_that_no_budget_keeps() -> None:
    scene = _closed(hold=Hold.DRAIN).group("g", "q", PodSet("", 3))
    scene.pod("g", "n", budgets=("b",)).pod("g", "n")
    scene.budgets = {"b": 0}
    assert evicted(scene.plan()) == ["g-1"]


@pytest.mark.parametrize(
    ("least", "expected"), [(0, 1), (1, 1), (2, 0)], ids=["any", "one of them", "a gang"]
)
def test_a_budget_keeps_a_pod_and_with_it_what_needs_it(least: int, expected: int) -> None:
    scene = _closed(hold=Hold.DRAIN).runs("g", "n", "n", least=least, budgets=("b",))
    scene.budgets = {"b": 1}
    assert len(evicted(scene.plan())) == expected


def test_a_budget_that_keeps_a_gang_leaves_its_evictions_to_the_next_group() -> None:
    scene = _closed(hold=Hold.DRAIN).runs("gang", "n", "n", created=2, budgets=("b",))
    scene.runs("single", "n", created=1, budgets=("b",))
    scene.budgets = {"b": 1}
    assert evicted(scene.plan()) == ["single-0"]


# Queues that do not exist ------------------------------------------------------------------------


def test_a_group_of_a_queue_that_does_not_exist_gives_to_who_is_within_its_share() -> None:
    scene = Scene().node("n", 4).queue("owner", quota=4).runs("g", "n", "n", queue="gone")
    scene.runs("own", "n", "n", queue="owner")

    plan = scene.waits("new", 2, queue="owner").plan()

    assert evicted(plan) == ["g-0", "g-1"]
    assert {each.action for each in plan.evictions} == {Action.RECLAIM}


def test_its_group_goes_before_those_of_queues_that_have_too_much() -> None:
    scene = Scene().node("n", 4).queue("owner", quota=1).queue("much", weight=0)
    scene.runs("big", "n", "n", "n", queue="much").runs("g", "n", queue="gone")
    assert evicted(scene.waits("new", queue="owner").plan()) == ["g-0"]


def test_what_it_has_can_be_counted_on_by_the_queues_that_exist() -> None:
    scene = Scene().node("n", 4).queue("a").queue("b").runs("g", "n", gpus=4, queue="gone")
    plan = scene.waits("x", gpus=2, queue="a").waits("y", gpus=2, queue="b").plan()
    assert plan.fair_shares == {"a": {"deviceClass gpu": 2}, "b": {"deviceClass gpu": 2}}
    assert evicted(plan) == ["g-0"]


def test_a_group_of_a_queue_that_does_not_exist_does_not_move() -> None:
    scene = Scene(**only(Action.CONSOLIDATE)).node("a", 2).node("b", 2).queue("q")
    scene.runs("g", "a", queue="gone").runs("h", "b", queue="gone")
    assert evicted(scene.waits("new", gpus=2).plan()) == []


def test_a_group_of_a_queue_that_is_cut_off_gives_as_well() -> None:
    scene = Scene().node("n", 4).queue("owner", quota=4).queue("q", "gone", quota=4)
    scene.runs("g", "n", gpus=4)
    assert evicted(scene.waits("new", gpus=4, queue="owner").plan()) == ["g-0"]

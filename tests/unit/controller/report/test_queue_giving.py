"""A Queue that does not give back what others reclaim says what keeps it from that."""

from dataclasses import replace

import pytest

from controller.api.condition import StatusCondition
from controller.engine.model.plan import Action, BudgetClock
from controller.engine.model.pod import Evicting
from controller.report.giving_log import GivingLog
from controller.report.queue_giving import NO_HOLDUP, Holdup, gives_back, holdups
from tests.unit.controller.engine.scene import NOW, Scene, only


def _guarded(*budgets: str) -> Scene:
    """`q` has a quota of all GPUs, and waits for those that `thief` has behind budgets."""
    scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=4).queue("thief")
    scene.runs("old", "n", gpus=4, queue="thief", budgets=budgets)
    scene.budgets |= dict.fromkeys(budgets, 0)
    return scene


def _condition(scene: Scene, queue: str = "thief") -> StatusCondition:
    return gives_back(holdups(scene.state().occupancy, scene.plan()).get(queue, NO_HOLDUP), 1)


def test_budgets_that_refuse_a_reclaim_are_named() -> None:
    condition = _condition(_guarded("t/mine").waits("new", gpus=4))
    assert (condition.holds, condition.reason) == (False, "BudgetsRefuse")
    assert "t/mine" in condition.message


def test_those_that_let_their_pods_go_are_not() -> None:
    scene = _guarded("t/mine", "t/free").waits("new", gpus=4)
    scene.budgets["t/free"] = 1
    assert "t/free" not in _condition(scene).message


def test_a_queue_that_nothing_keeps_is_left_out() -> None:
    scene = _guarded("t/free").waits("new", gpus=4)
    plan = scene.plan()
    scene.budgets["t/free"] = 1
    assert holdups(scene.state().occupancy, plan) == {}


def test_of_many_budgets_some_are_named() -> None:
    names = [f"t/b{number}" for number in range(9)]
    condition = _condition(_guarded(*names).waits("new", gpus=4))
    assert "t/b0, t/b1, t/b2 and 6 more" in condition.message


def test_budgets_that_nobody_waits_for_are_not_in_the_way() -> None:
    assert _condition(_guarded("t/mine")).holds


@pytest.mark.parametrize(("groups", "holds"), [(("q/new",), False), ((), True)])
def test_they_are_while_a_group_waits_that_they_have_refused(
    groups: tuple[str, ...], *, holds: bool
) -> None:
    scene = _guarded("t/mine")
    plan = scene.plan()
    clocks = {"q": {"thief": BudgetClock(NOW, groups)}}
    plan = replace(plan, memory=replace(plan.memory, budget_refusals=clocks))
    found = holdups(scene.state().occupancy, plan).get("thief", NO_HOLDUP)
    assert gives_back(found, 1).holds is holds


def test_the_queue_that_waits_says_nothing_of_them() -> None:
    assert _condition(_guarded("t/mine").waits("new", gpus=4), "q").holds


@pytest.mark.parametrize(
    ("state", "is_named"),
    [
        (Evicting("n", stuck=True), True),
        (Evicting("n"), False),
        (Evicting("n", stuck=True, lingers=True), False),
    ],
    ids=["stuck", "leaving", "lingering"],
)
def test_nodes_where_deleted_pods_do_not_end_are_named(state: Evicting, *, is_named: bool) -> None:
    scene = Scene().node("n", 4).queue("q").group("old")
    condition = _condition(scene.pod("old", "n", state=state), "q")
    assert ("on these nodes: n:" in condition.message) is is_named
    assert condition.reason == ("PodsDoNotEnd" if is_named else "Free")


def test_each_thing_is_logged_once_and_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = GivingLog()
    for now, budget in ((0, "a"), (1, "a"), (2, "b"), (59, "c"), (60, "d"), (130, "d")):
        log.note({"q": Holdup(budgets=(budget,))}, now)
    assert [vars(record)["why"].split(": ")[1] for record in caplog.records] == ["a", "d"]

"""What follows for a group from what kube-scheduler has refused of it."""

import pytest

from controller.engine.model.group import SchedulerRefusal
from controller.engine.model.plan import Action
from controller.engine.model.reason import RefusedByScheduler
from tests.unit.controller.engine.scene import Scene, evicted, only, started

WORDS = "0/4 nodes are available"


def _refused(*, holds: bool, evicts: bool) -> SchedulerRefusal:
    return SchedulerRefusal(WORDS, holds=holds, evicts=evicts)


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        (None, ["old-0"]),
        (_refused(holds=False, evicts=True), ["old-0"]),
        (_refused(holds=False, evicts=False), []),
        (_refused(holds=True, evicts=True), []),
        (_refused(holds=True, evicts=False), []),
    ],
)
def test_nobody_is_evicted_for_what_would_be_refused_again(
    refusal: SchedulerRefusal | None, gone: list[str]
) -> None:
    scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 1).runs("old", "n")
    assert evicted(scene.waits("new", priority=1, refusal=refusal).plan()) == gone


def test_the_group_waits_for_what_kube_scheduler_has_said() -> None:
    scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 1).runs("old", "n")
    refusal = _refused(holds=False, evicts=False)
    decided = scene.waits("new", priority=1, refusal=refusal).plan()
    assert RefusedByScheduler(WORDS) in decided.waiting["new"]


@pytest.mark.parametrize(("holds", "starts"), [(False, ["new-0"]), (True, [])])
def test_it_starts_where_there_is_room_unless_it_is_held_back(
    holds: bool, starts: list[str]
) -> None:
    scene = Scene().queue("q").node("n", 1)
    scene.waits("new", refusal=_refused(holds=holds, evicts=False))
    assert list(started(scene.plan())) == starts


def test_pods_beyond_the_minimum_wait_while_the_minimum_is_tried() -> None:
    scene = Scene().queue("q").node("n", 4)
    refusal = _refused(holds=False, evicts=False)
    scene.runs("g", "n", least=1, refusal=refusal).pod("g")
    assert started(scene.plan()) == {}

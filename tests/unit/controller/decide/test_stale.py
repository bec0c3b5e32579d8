"""Groups that have some pods, but fewer than they need, are evicted after a while."""

from math import inf
from typing import Any

import pytest

from controller.model.group import PodSet
from controller.model.plan import Action
from controller.model.pod import Ended, Evicting
from tests.unit.controller.scene import NOW, Scene, evicted, only


def _broken(**fields: Any) -> Scene:
    """A group of two pods that needs three."""
    scene = Scene(**only(Action.STALE), staleness_grace=60).node("n", 4).queue("q")
    return scene.runs("g", "n", "n", least=3, **fields)


@pytest.mark.parametrize(
    ("fields", "gone", "wake"),
    [
        ({"stale_since": NOW - 60}, True, None),
        ({"stale_since": NOW - 59}, False, NOW + 1),
        ({"stale_since": None}, False, NOW + 60),  # since now
        ({"stale_since": NOW - 10, "staleness_grace": 10}, True, None),
        ({"stale_since": NOW - 60, "staleness_grace": 70}, False, NOW + 10),
        ({"stale_since": None, "staleness_grace": 0}, True, None),
        ({"stale_since": 0, "staleness_grace": inf}, False, None),
    ],
)
def test_after_their_grace(fields: dict[str, Any], gone: bool, wake: float | None) -> None:
    plan = _broken(**fields).plan()
    assert evicted(plan) == (["g-0", "g-1"] if gone else [])
    assert (plan.stale, plan.wake) == (("g",), wake)


def test_the_next_one_to_become_stale_sets_the_time() -> None:
    scene = _broken(stale_since=NOW - 20)
    scene.runs("h", "n", least=2, stale_since=NOW - 30)
    assert scene.plan().wake == NOW + 30


def test_the_eviction_names_the_group_itself() -> None:
    (first, _) = _broken(stale_since=0).plan().evictions
    assert (first.pod, first.node, first.action, first.group) == ("t/g-0", "n", Action.STALE, "g")


def test_a_group_with_its_minimum_is_not_stale() -> None:
    scene = _broken(stale_since=0).pod("g", "n")
    plan = scene.plan()
    assert (evicted(plan), plan.stale) == ([], ())


def test_a_group_without_pods_is_not_stale() -> None:
    scene = Scene(**only(Action.STALE)).queue("q").waits("g", 2, least=3, stale_since=0)
    assert scene.plan().stale == ()


@pytest.mark.parametrize(("succeeded", "expected"), [(True, []), (False, ["g-0", "g-1"])])
def test_a_group_of_which_a_pod_has_succeeded_ends_by_itself(
    succeeded: bool, expected: list[str]
) -> None:
    scene = _broken(stale_since=0).pod("g", gpus=0, state=Ended(succeeded))
    assert evicted(scene.plan()) == expected


def test_a_group_that_gets_its_minimum_in_this_cycle_is_not_stale() -> None:
    plan = _broken(stale_since=0).pod("g").plan()
    assert (evicted(plan), plan.stale) == ([], ())


def test_pods_that_do_not_end_are_not_evicted_again() -> None:
    scene = _broken(stale_since=0).group("g", root=PodSet("", 4), stale_since=0)
    scene.pod("g", gpus=0, name="stuck", state=Evicting("n", stuck=True))
    assert evicted(scene.plan()) == ["g-0", "g-1"]


def test_budgets_hold_for_stale_groups_too() -> None:
    scene = Scene(**only(Action.STALE)).node("n", 4).queue("q")
    scene.budgets = {"b": 1}
    scene.runs("g", "n", "n", least=3, stale_since=0, budgets=("b",))
    assert evicted(scene.plan()) == ["g-0"]


def test_without_the_action_nothing_is_stale() -> None:
    scene = Scene(**only()).node("n", 4).queue("q").runs("g", "n", least=3, stale_since=0)
    assert evicted(scene.plan()) == []

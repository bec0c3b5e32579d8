"""Groups that have some pods, but fewer than they need, are evicted after a while."""

from math import inf
from typing import Any

import pytest

from controller.engine.model.group import PodSet
from controller.engine.model.plan import Action
from controller.engine.model.pod import Ended, Evicting
from tests.unit.controller.engine.scene import NOW, Scene, evicted, only


def _broken(**fields: Any) -> Scene:
    """A group of two pods that needs three, and another one that needs the room of both."""
    scene = Scene(**only(Action.STALE), staleness_grace=60).node("n", 4).queue("q")
    return scene.runs("g", "n", "n", least=3, **fields).waits("other", gpus=4)


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
    scene.runs("g", "n", "n", least=3, stale_since=0, budgets=("b",)).waits("other", gpus=3)
    assert evicted(scene.plan()) == ["g-0"]


def test_nobody_is_evicted_whose_devices_nobody_needs() -> None:
    scene = Scene(**only(Action.STALE)).node("n", 4).queue("q")
    scene.runs("g", "n", "n", least=3, stale_since=0)
    plan = scene.plan()
    assert (evicted(plan), plan.stale) == ([], ("g",))


def test_nobody_is_evicted_whose_devices_would_not_do() -> None:
    scene = Scene(**only(Action.STALE)).node("n", 4).node("m", 8).queue("q")
    scene.runs("g", "n", "n", least=3, stale_since=0).runs("h", "m").waits("large", gpus=8)
    assert evicted(scene.plan()) == []


def test_the_first_that_needs_the_devices_ends_it_whenever_it_comes() -> None:
    scene = Scene(**only(Action.STALE)).node("n", 4).queue("q")
    scene.runs("g", "n", "n", least=3, stale_since=0).waits("large", gpus=8)
    scene.memory = scene.plan().memory
    scene.waits("other", gpus=3)
    assert evicted(scene.plan()) == ["g-0", "g-1"]


def test_a_group_whose_owner_replaces_pods_late_has_as_much_time() -> None:
    assert evicted(_broken(stale_since=NOW - 659, replacement_delay=660).plan()) == []
    assert evicted(_broken(stale_since=NOW - 660, replacement_delay=660).plan()) == ["g-0", "g-1"]


def test_what_a_group_says_itself_holds_whatever_its_owner_does() -> None:
    scene = _broken(stale_since=NOW - 10, staleness_grace=5, replacement_delay=660)
    assert evicted(scene.plan()) == ["g-0", "g-1"]


def test_without_the_action_nothing_is_stale() -> None:
    scene = Scene(**only()).node("n", 4).queue("q").runs("g", "n", least=3, stale_since=0)
    assert evicted(scene.plan()) == []


def _with_useless_stale_groups(number: int) -> Scene:
    """One node is full of work that cannot be evicted; stale groups have no devices."""
    scene = Scene().node("n", 8).queue("idle").queue("busy", quota=16)
    scene.runs("busy/full", "n", gpus=8, queue="busy", preemptible=False)
    for at in range(number):
        scene.group(f"idle/g{at}", "idle", PodSet("", 2), staleness_grace=0, stale_since=NOW - 100)
        scene.pod(f"idle/g{at}", "n", gpus=0)
    for at in range(64):
        scene.waits(f"busy/w{at}", queue="busy")
    return scene


def test_who_waits_is_not_charged_for_the_search_for_stale_groups() -> None:
    debts = [_with_useless_stale_groups(number).plan().memory.debts for number in (0, 200)]
    assert debts[0] == debts[1] == {}


def test_a_stale_group_of_use_is_found_among_many_of_no_use() -> None:
    scene = _with_useless_stale_groups(200).node("m", 1)
    scene.group("idle/useful", "idle", PodSet("", 2), staleness_grace=0, stale_since=NOW - 100)
    scene.pod("idle/useful", "m")
    assert evicted(scene.plan()) == ["idle/useful-0"]

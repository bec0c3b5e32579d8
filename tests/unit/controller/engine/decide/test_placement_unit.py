"""What of a group is placed next, and what it can lose."""

import pytest

from controller.engine.decide.gangs.placement_unit import (
    Fullness,
    PlacementUnit,
    active_pods,
    fullness,
    is_satisfied,
    next_chunk,
    surplus,
)
from controller.engine.model.group import PodSet, SubGroup, SubGroups, TopologyConstraint
from controller.engine.model.pod import Ended, Evicting, Gated, PodState
from controller.engine.model.reason import TooFewPods
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene, names, pods_of


def _scene(root: SubGroup) -> Scene:
    return Scene().node("n").queue("q").group("g", root=root)


def _next(scene: Scene) -> PlacementUnit | TooFewPods | None:
    state = scene.state()
    return next_chunk(state.occupancy, state.occupancy.groups["g"])


def _losses(scene: Scene) -> list[list[str]]:
    state = scene.state()
    return [names(unit) for unit in surplus(state.occupancy, state.occupancy.groups["g"])]


def _fullness(scene: Scene) -> Fullness:
    state = scene.state()
    return fullness(state.occupancy, state.occupancy.groups["g"])


def _fill(scene: Scene, pod_set: str, *, placed: int = 0, waiting: int = 0) -> Scene:
    """Adds pods `<pod set><number>`, those with a place first."""
    for number in range(placed + waiting):
        node = "n" if number < placed else None
        scene.pod("g", node, gpus=0, name=f"{pod_set}{number}", pod_set=pod_set)
    return scene


def _tree(*parts: tuple[str, int, int, int], least: int) -> Scene:
    """A group of pod sets (name, minimum, placed, waiting), of which it needs some."""
    sets = tuple(PodSet(name, minimum) for name, minimum, _, _ in parts)
    scene = _scene(SubGroups("", sets, least))
    for name, _, placed, waiting in parts:
        _fill(scene, name, placed=placed, waiting=waiting)
    return scene


class TestPodSet:
    def test_the_minimum_is_placed_at_once(self) -> None:
        assert pods_of(_next(_fill(_scene(PodSet("a", 2)), "a", waiting=3))) == ["a0", "a1"]

    def test_what_is_missing_of_the_minimum_is_placed_at_once(self) -> None:
        scene = _fill(_scene(PodSet("a", 3)), "a", placed=1, waiting=3)
        assert pods_of(_next(scene)) == ["a1", "a2"]

    def test_after_the_minimum_one_pod_after_the_other_is_placed(self) -> None:
        scene = _fill(_scene(PodSet("a", 2)), "a", placed=2, waiting=2)
        assert pods_of(_next(scene)) == ["a2"]

    def test_a_set_of_optional_pods_grows_from_nothing(self) -> None:
        assert pods_of(_next(_fill(_scene(PodSet("a", 0)), "a", waiting=2))) == ["a0"]

    def test_nothing_is_next_when_all_have_a_place(self) -> None:
        assert _next(_fill(_scene(PodSet("a", 1)), "a", placed=2)) is None

    def test_too_few_pods_are_a_reason_with_the_numbers(self) -> None:
        scene = _fill(_scene(PodSet("a", 4)), "a", placed=1, waiting=2)
        assert _next(scene) == TooFewPods("a", 3, 4)

    def test_pods_that_are_held_back_do_not_count(self) -> None:
        scene = _fill(_scene(PodSet("a", 2)), "a", waiting=1)
        scene.pod("g", gpus=0, name="held", pod_set="a", state=Gated())
        assert _next(scene) == TooFewPods("a", 1, 2)

    @pytest.mark.parametrize(
        "gone", [Ended(succeeded=True), Evicting("n"), Evicting("n", stuck=True)]
    )
    def test_pods_that_have_ended_or_leave_do_not_count_as_placed(self, gone: PodState) -> None:
        scene = _fill(_scene(PodSet("a", 1)), "a", waiting=1)
        scene.pod("g", gpus=0, name="gone", pod_set="a", state=gone)
        assert pods_of(_next(scene)) == ["a0"]

    def test_the_only_pod_set_takes_pods_of_every_name(self) -> None:
        assert pods_of(_next(_fill(_scene(PodSet("a", 1)), "", waiting=1))) == ["0"]

    def test_of_several_pod_sets_each_takes_the_pods_of_its_name(self) -> None:
        scene = _fill(_scene(SubGroups("", (PodSet("a", 1), PodSet("b", 1)), 2)), "", waiting=4)
        assert _next(scene) == TooFewPods("a", 0, 1)

    def test_rank_comes_before_age_and_age_before_name(self) -> None:
        scene = _scene(PodSet("", 4))
        scene.pod("g", gpus=0, name="young", created=2)
        scene.pod("g", gpus=0, name="zeta", created=1)
        scene.pod("g", gpus=0, name="alpha", created=1)
        scene.pod("g", gpus=0, name="last", rank=1)
        assert pods_of(_next(scene)) == ["alpha", "zeta", "young", "last"]

    @pytest.mark.parametrize(
        ("topology", "held"), [(None, frozenset()), (TopologyConstraint("tree", "rack"), {"n"})]
    )
    def test_the_chunk_says_where_pods_are_that_it_has_to_be_together_with(
        self, topology: TopologyConstraint | None, held: frozenset[str]
    ) -> None:
        chunk = _next(_fill(_scene(PodSet("a", 2, topology)), "a", placed=1, waiting=1))
        assert isinstance(chunk, PlacementUnit)
        assert chunk.held == held

    def test_only_the_pods_that_are_named_are_placed(self) -> None:
        state = _fill(_scene(PodSet("a", 2)), "a", waiting=3).state()
        chunk = next_chunk(state.occupancy, state.occupancy.groups["g"], {"t/a1", "t/a2"})
        assert pods_of(chunk) == ["a1", "a2"]


class TestSubGroups:
    def test_the_minimum_of_as_many_sub_groups_as_needed_is_placed_at_once(self) -> None:
        scene = _tree(("a", 1, 0, 2), ("b", 2, 0, 2), ("c", 1, 0, 1), least=2)
        assert pods_of(_next(scene)) == ["a0", "b0", "b1"]

    def test_a_sub_group_with_too_few_pods_is_passed_over_where_others_do(self) -> None:
        scene = _tree(("a", 2, 0, 1), ("b", 1, 0, 1), ("c", 1, 0, 1), least=2)
        assert pods_of(_next(scene)) == ["b0", "c0"]

    def test_the_first_sub_group_with_too_few_pods_is_the_reason(self) -> None:
        scene = _tree(("a", 2, 0, 1), ("b", 3, 0, 1), ("c", 1, 0, 1), least=2)
        assert _next(scene) == TooFewPods("a", 1, 2)

    def test_more_sub_groups_than_there_are_can_never_start(self) -> None:
        assert _next(_tree(("a", 1, 0, 1), least=2)) == TooFewPods("", 1, 2)

    def test_of_a_sub_group_that_has_some_pods_the_rest_is_missing(self) -> None:
        scene = _tree(("a", 2, 1, 1), ("b", 1, 1, 1), least=2)
        assert pods_of(_next(scene)) == ["a1"]

    def test_after_the_minimum_one_more_sub_group_is_placed_at_once(self) -> None:
        scene = _tree(("a", 1, 1, 1), ("b", 2, 0, 3), least=1)
        assert pods_of(_next(scene)) == ["b0", "b1"]

    def test_sub_groups_that_all_have_their_minimum_grow_pod_by_pod(self) -> None:
        scene = _tree(("a", 1, 1, 1), ("b", 1, 1, 1), least=1)
        assert pods_of(_next(scene)) == ["a1"]

    def test_the_emptiest_sub_group_grows_first(self) -> None:
        scene = _tree(("a", 1, 3, 1), ("b", 2, 4, 1), least=2)
        assert pods_of(_next(scene)) == ["b4"]

    def test_a_sub_group_that_cannot_grow_is_passed_over(self) -> None:
        scene = _tree(("a", 2, 0, 1), ("b", 1, 1, 1), least=1)
        assert pods_of(_next(scene)) == ["b1"]

    def test_optional_sub_groups_come_last(self) -> None:
        scene = _tree(("a", 0, 0, 1), ("b", 1, 1, 1), least=2)
        assert pods_of(_next(scene)) == ["b1"]

    def test_the_minimum_of_nested_sub_groups_is_placed_at_once(self) -> None:
        inner = SubGroups("in", (PodSet("a", 1), PodSet("b", 1)), 1)
        scene = _scene(SubGroups("", (inner, PodSet("c", 2)), 2))
        for name in "abc":
            _fill(scene, name, waiting=2)
        assert pods_of(_next(scene)) == ["c0", "c1", "a0"]

    def test_the_fill_of_nested_sub_groups_is_a_part_of_their_least(self) -> None:
        inner = SubGroups("a", (PodSet("x", 4), PodSet("y", 1)), 1)
        scene = _scene(SubGroups("", (inner, PodSet("z", 2)), 2))
        _fill(scene, "x", waiting=4)
        _fill(scene, "y", placed=2)  # twice what the sub-group can do with
        _fill(scene, "z", placed=3, waiting=1)
        assert pods_of(_next(scene)) == ["z3"]

    def test_a_sub_group_that_has_its_minimum_does_not_stand_in_for_another(self) -> None:
        assert _next(_tree(("a", 1, 1, 1), ("b", 2, 0, 1), least=2)) == TooFewPods("b", 1, 2)


def test_the_pods_that_have_a_place_come_in_their_order() -> None:
    scene = _scene(PodSet("", 1))
    scene.pod("g", "n", gpus=0, name="b", created=1).pod("g", "n", gpus=0, name="a", created=2)
    state = scene.pod("g", gpus=0, name="waits").state()
    assert names(active_pods(state.occupancy, "g")) == ["b", "a"]
    assert active_pods(state.occupancy, "gone") == []


class TestFullness:
    @pytest.mark.parametrize(
        ("placed", "expected"),
        [
            (0, Fullness.BELOW_MINIMUM),
            (1, Fullness.BELOW_MINIMUM),
            (2, Fullness.AT_MINIMUM),
            (3, Fullness.ABOVE_MINIMUM),
        ],
    )
    def test_of_a_pod_set(self, placed: int, expected: Fullness) -> None:
        assert _fullness(_fill(_scene(PodSet("a", 2)), "a", placed=placed)) is expected

    def test_a_pod_that_does_not_end_counts_for_nothing(self) -> None:
        scene = _fill(_scene(PodSet("a", 2)), "a", placed=1)
        scene.pod("g", gpus=0, name="stuck", pod_set="a", state=Evicting("n", stuck=True))
        assert _fullness(scene) is Fullness.BELOW_MINIMUM

    def test_a_sub_group_more_than_needed_is_above_the_minimum(self) -> None:
        assert _fullness(_tree(("a", 1, 1, 0), ("b", 1, 1, 0), least=1)) is Fullness.ABOVE_MINIMUM

    def test_a_pod_more_in_a_sub_group_is_above_the_minimum(self) -> None:
        assert _fullness(_tree(("a", 1, 2, 0), ("b", 1, 1, 0), least=2)) is Fullness.ABOVE_MINIMUM

    def test_as_many_sub_groups_as_needed_are_the_minimum(self) -> None:
        assert _fullness(_tree(("a", 1, 1, 0), ("b", 2, 0, 2), least=1)) is Fullness.AT_MINIMUM

    def test_a_sub_group_that_lacks_pods_does_not_count(self) -> None:
        assert _fullness(_tree(("a", 1, 1, 0), ("b", 2, 1, 0), least=2)) is Fullness.BELOW_MINIMUM

    def test_a_group_has_its_minimum_when_nothing_is_missing(self) -> None:
        def satisfied(state: State) -> bool:
            return is_satisfied(state.occupancy, state.occupancy.groups["g"])

        assert satisfied(_fill(_scene(PodSet("a", 1)), "a", placed=1).state())
        assert not satisfied(_fill(_scene(PodSet("a", 2)), "a", placed=1).state())


class TestSurplus:
    def test_a_pod_set_loses_the_last_pod_first(self) -> None:
        scene = _fill(_scene(PodSet("a", 1)), "a", placed=3)
        assert _losses(scene) == [["a2"], ["a1"], ["a0"]]

    def test_a_pod_set_at_its_minimum_can_lose_nothing(self) -> None:
        assert _losses(_fill(_scene(PodSet("a", 2)), "a", placed=2)) == []

    def test_a_sub_group_that_is_not_needed_goes_as_a_whole(self) -> None:
        scene = _tree(("a", 2, 2, 0), ("b", 2, 2, 0), least=1)
        assert _losses(scene) == [["b1", "b0"], ["a1", "a0"]]

    def test_a_sub_group_loses_single_pods_before_it_goes(self) -> None:
        scene = _tree(("a", 1, 1, 0), ("b", 1, 2, 0), least=1)
        assert _losses(scene) == [["b1"], ["b0"], ["a0"]]

    def test_sub_groups_that_are_needed_stay(self) -> None:
        assert _losses(_tree(("a", 1, 1, 0), ("b", 1, 1, 0), least=2)) == []

    def test_a_needed_sub_group_loses_what_it_has_beyond_its_minimum(self) -> None:
        assert _losses(_tree(("a", 1, 2, 0), ("b", 1, 1, 0), least=2)) == [["a1"], ["a0"]]

    def test_what_is_left_of_a_broken_sub_group_goes(self) -> None:
        scene = _tree(("a", 1, 1, 0), ("b", 2, 1, 0), least=1)
        assert _losses(scene) == [["b0"]]

    def test_a_sub_group_without_pods_has_nothing_to_lose(self) -> None:
        assert _losses(_tree(("a", 1, 1, 0), ("b", 2, 0, 2), least=1)) == []

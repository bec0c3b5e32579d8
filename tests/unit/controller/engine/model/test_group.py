"""The tree of a group."""

import pytest

from controller.engine.model.group import DEEPEST, Group, PodSet, SubGroup, SubGroups


def _nested(levels: int) -> SubGroup:
    root: SubGroup = PodSet("pods", 1)
    for level in range(levels - 1):
        root = SubGroups(f"level-{level}", (root,), 1)
    return root


def test_pod_sets_are_listed_in_the_order_of_the_tree() -> None:
    inner = SubGroups("inner", (PodSet("b", 1), PodSet("c", 1)), 2)
    group = Group("ns/g", "q", SubGroups("", (PodSet("a", 1), inner, PodSet("d", 1)), 3))
    assert [one.name for one in group.pod_sets] == ["a", "b", "c", "d"]


def test_a_tree_may_have_as_many_levels_as_the_limit() -> None:
    assert len(Group("ns/g", "q", _nested(DEEPEST)).pod_sets) == 1


@pytest.mark.parametrize("levels", [DEEPEST + 1, 100_000])
def test_a_deeper_tree_is_refused_by_the_name_of_its_group(levels: int) -> None:
    with pytest.raises(ValueError, match=r"^group ns/g: has more than 16 levels of sub-groups$"):
        Group("ns/g", "q", _nested(levels))

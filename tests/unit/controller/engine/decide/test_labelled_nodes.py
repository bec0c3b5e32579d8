"""Nodes are found by their labels, and little is remembered of what tenants ask for."""

import pytest

from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from carina_dra.step_budget import UNLIMITED, StepBudget
from controller.engine.decide.nodes.labelled_nodes import LabelledNodes
from controller.engine.model.label_selector import (
    LabelRequirement,
    LabelSelector,
    LabelSelectorOperator,
)
from tests.unit.controller.engine.decide.test_bounded_memory import objects_of
from tests.unit.controller.engine.scene import Scene

IN, NOT_IN = LabelSelectorOperator.IN, LabelSelectorOperator.NOT_IN


def _nodes() -> LabelledNodes:
    scene = Scene().node("n1", labels={"zone": "a"}).node("n2", labels={"zone": "b"}).node("n3")
    return LabelledNodes(scene.state().occupancy)


def _selector(key: str, *values: str, operator: str = "In") -> NodeSelector:
    requirement = NodeSelectorRequirement(key, NodeSelectorOperator(operator), values)
    return NodeSelector((NodeSelectorTerm((requirement,)),))


def test_by_a_value_of_a_label() -> None:
    assert _nodes().by_value("zone", StepBudget(UNLIMITED)) == {"a": {"n1"}, "b": {"n2"}}


def test_by_a_label() -> None:
    assert _nodes().with_key("zone", StepBudget(UNLIMITED)) == {"n1", "n2"}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        (_selector("zone", "a"), {"n1"}),
        (_selector("zone", "a", "b"), {"n1", "n2"}),
        (_selector("zone", operator="DoesNotExist"), {"n3"}),
        (_selector("zone", "no number", operator="Gt"), set()),
        (_selector("zone", operator="In"), set()),
    ],
)
def test_by_a_selector_which_selects_no_node_if_it_is_not_valid(
    selector: NodeSelector, found: set[str]
) -> None:
    assert _nodes().selected(selector, StepBudget(UNLIMITED)) == found


@pytest.mark.parametrize(
    ("requirements", "found"),
    [
        ((), {"n1", "n2", "n3"}),
        ((LabelRequirement("zone", IN, ("a", "b")),), {"n1", "n2"}),
        ((LabelRequirement("zone", NOT_IN, ("a",)),), {"n2", "n3"}),
        (
            (LabelRequirement("zone", IN, ("a", "b")), LabelRequirement("zone", NOT_IN, ("a",))),
            {"n2"},
        ),
    ],
)
def test_by_a_selector_of_labels(
    requirements: tuple[LabelRequirement, ...], found: set[str]
) -> None:
    assert _nodes().labelled(LabelSelector(requirements)) == found


def test_labels_that_pods_name_are_forgotten() -> None:
    nodes = _nodes()

    def ask_for(first: int, last: int) -> int:
        for number in range(first, last):
            nodes.with_key(f"key-{number}", StepBudget(UNLIMITED))
        return objects_of(nodes, depth=1)

    before = ask_for(0, 64)
    assert ask_for(64, 1_000) <= before


def test_selectors_that_pods_name_are_forgotten() -> None:
    nodes = _nodes()

    def ask_for(first: int, last: int) -> int:
        for number in range(first, last):
            nodes.selected(_selector("zone", str(number)), StepBudget(UNLIMITED))
        return objects_of(nodes, depth=1)

    before = ask_for(0, 1_024)
    assert ask_for(1_024, 3_000) <= before


@pytest.mark.parametrize(
    ("operator", "found"), [("In", {"n1"}), ("NotIn", {"n2", "n3"})], ids=["in", "not in"]
)
def test_by_their_names(operator: str, found: set[str]) -> None:
    requirement = NodeSelectorRequirement("metadata.name", NodeSelectorOperator(operator), ("n1",))
    selector = NodeSelector((NodeSelectorTerm(match_fields=(requirement,)),))
    assert _nodes().select(selector) == found

"""Which nodes a pod may be on (core/v1 selectors, affinity, taints and tolerations)."""

from typing import Any

import pytest

from carina_dra.allocator.node import Node
from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from controller.engine.decide.nodes.node_fit import unsuitable
from controller.engine.model.node import ClusterNode, Taint
from controller.engine.model.pod import PodNeeds, PodTolerationOperator, Toleration

EXISTS = PodTolerationOperator.EXISTS
LESS, GREATER = PodTolerationOperator.LESS, PodTolerationOperator.GREATER


def _node(**fields: Any) -> ClusterNode:
    return ClusterNode(Node("n", {"zone": "a"}), 1_000, 1_000, **fields)


def _affinity(operator: NodeSelectorOperator, key: str, *values: str) -> PodNeeds:
    requirement = NodeSelectorRequirement(key, operator, values)
    return PodNeeds(affinity=NodeSelector((NodeSelectorTerm((requirement,)),)))


def test_a_node_without_constraints_is_suitable() -> None:
    assert unsuitable(PodNeeds(), _node()) is None


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (None, "taint k"),
        (Toleration("k", "v"), None),
        (Toleration("k", "v", effect="NoSchedule"), None),
        (Toleration("k", "v", effect="NoExecute"), "taint k"),
        (Toleration("k", "other"), "taint k"),
        (Toleration("other", "v"), "taint k"),
        (Toleration("k", operator=EXISTS), None),
        (Toleration("other", operator=EXISTS), "taint k"),
        (Toleration(operator=EXISTS), None),
        (Toleration(operator=EXISTS, effect="NoExecute"), "taint k"),
        (Toleration("", "v"), "taint k"),  # an empty key needs the operator Exists
    ],
)
def test_a_taint_keeps_away_who_does_not_tolerate_it(
    toleration: Toleration | None, expected: str | None
) -> None:
    needs = PodNeeds(tolerations=() if toleration is None else (toleration,))
    assert unsuitable(needs, _node(taints=(Taint("k", "v"),))) == expected


@pytest.mark.parametrize(
    ("effect", "expected"),
    [("NoSchedule", "taint k"), ("NoExecute", "taint k"), ("PreferNoSchedule", None)],
)
def test_taints_that_are_preferences_do_not_matter(effect: str, expected: str | None) -> None:
    assert unsuitable(PodNeeds(), _node(taints=(Taint("k", effect=effect),))) == expected


@pytest.mark.parametrize(
    ("operator", "bound", "value", "expected"),
    [
        (LESS, "10", "9", None),
        (LESS, "10", "10", "taint k"),
        (LESS, "10", "-11", None),
        (GREATER, "10", "11", None),
        (GREATER, "10", "10", "taint k"),
        (GREATER, "10", "high", "taint k"),
        (GREATER, "high", "11", "taint k"),
        (GREATER, "", "", "taint k"),
    ],
)
def test_a_toleration_may_compare_numbers(
    operator: PodTolerationOperator, bound: str, value: str, expected: str | None
) -> None:
    needs = PodNeeds(tolerations=(Toleration("k", bound, operator),))
    assert unsuitable(needs, _node(taints=(Taint("k", value),))) == expected


def test_every_taint_has_to_be_tolerated() -> None:
    needs = PodNeeds(tolerations=(Toleration("a", operator=EXISTS),))
    assert unsuitable(needs, _node(taints=(Taint("a"), Taint("b")))) == "taint b"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("node.kubernetes.io/unschedulable", operator=EXISTS), None),
        (Toleration(operator=EXISTS), None),
        (
            Toleration("node.kubernetes.io/unschedulable", operator=EXISTS, effect="NoSchedule"),
            None,
        ),
        (Toleration("other", operator=EXISTS), "unschedulable"),
    ],
)
def test_a_cordoned_node_takes_who_tolerates_that(
    toleration: Toleration, expected: str | None
) -> None:
    needs = PodNeeds(tolerations=(toleration,))
    assert unsuitable(needs, _node(unschedulable=True)) == expected


def test_a_cordoned_node_takes_nobody_else() -> None:
    assert unsuitable(PodNeeds(), _node(unschedulable=True)) == "unschedulable"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ((("zone", "a"),), None),
        ((("zone", "b"),), "node selector"),
        ((("zone", "a"), ("rack", "1")), "node selector"),
    ],
)
def test_the_node_has_every_label_of_the_selector(
    selector: tuple[tuple[str, str], ...], expected: str | None
) -> None:
    assert unsuitable(PodNeeds(node_selector=selector), _node()) == expected


@pytest.mark.parametrize(("value", "expected"), [("a", None), ("b", "node affinity")])
def test_node_affinity_has_to_match(value: str, expected: str | None) -> None:
    assert unsuitable(_affinity(NodeSelectorOperator.IN, "zone", value), _node()) == expected


def test_an_affinity_that_is_not_valid_matches_no_node() -> None:
    needs = _affinity(NodeSelectorOperator.GREATER, "zone", "a", "b")
    assert unsuitable(needs, _node()) == "node affinity that is not valid"

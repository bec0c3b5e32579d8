"""Which nodes a selector chooses (component-helpers `nodeaffinity`)."""

from typing import Any

import pytest

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import Node, selects
from carina_dra.resource import NodeSelector, decode

_NODE = Node("n1", {"zone": "a", "gpus": "8"})


def _selects(*terms: dict[str, Any]) -> bool:
    return selects(decode(NodeSelector, {"nodeSelectorTerms": list(terms)}), _NODE)


def _label(key: str, operator: str, *values: str) -> dict[str, Any]:
    requirement = {"key": key, "operator": operator, "values": list(values)}
    return {"matchExpressions": [requirement]}


@pytest.mark.parametrize(
    ("term", "chosen"),
    [
        (_label("zone", "In", "a", "b"), True),
        (_label("zone", "In", "b"), False),
        (_label("rack", "In", "b"), False),
        (_label("zone", "NotIn", "a"), False),
        (_label("rack", "NotIn", "a"), True),
        (_label("zone", "Exists"), True),
        (_label("rack", "Exists"), False),
        (_label("rack", "DoesNotExist"), True),
        (_label("gpus", "Gt", "7"), True),
        (_label("gpus", "Gt", "8"), False),
        (_label("gpus", "Lt", "9"), True),
        (_label("zone", "Lt", "9"), False),
        ({}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
    ],
)
def test_term(term: dict[str, Any], chosen: bool) -> None:
    assert _selects(term) is chosen


def test_one_term_is_enough() -> None:
    assert _selects(_label("zone", "In", "b"), _label("zone", "In", "a"))


def test_all_requirements_of_a_term_must_match() -> None:
    both = (
        _label("zone", "Exists")["matchExpressions"] + _label("rack", "Exists")["matchExpressions"]
    )
    assert not _selects({"matchExpressions": both})


def test_bound_that_is_not_a_number_is_an_error() -> None:
    with pytest.raises(AllocationError, match="gpus Gt takes one whole number"):
        _selects(_label("gpus", "Gt", "many"))

"""Label selectors of Queues and of other objects become the same values."""

from typing import Any

import pytest

from controller.engine.files.label_selector import (
    QUEUE_SELECTOR,
    plain_selector,
    read_selector,
    selector_size,
)
from controller.engine.model.label_selector import (
    LabelRequirement,
    LabelSelector,
    LabelSelectorOperator,
    with_labels,
)


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_SELECTORS: list[dict[str, Any]] = [
    {},
    {"matchLabels": {"b": "1", "a": "2"}},
    {"matchExpressions": [_expression("c", "NotIn", "y", "x"), _expression("a", "Exists")]},
    {"matchLabels": {"a": "2"}, "matchExpressions": [_expression("a", "In", "3")]},
    {
        "matchLabels": {f"l{at:02}": "x" for at in range(16)},
        "matchExpressions": [_expression(f"m{at:02}", "In", "x") for at in range(16)],
    },
]


@pytest.mark.parametrize("selector", _SELECTORS)
def test_a_selector_of_a_queue_is_read_as_that_of_any_object(selector: dict[str, Any]) -> None:
    assert QUEUE_SELECTOR.read(selector) == read_selector(plain_selector(selector))


@pytest.mark.parametrize("selector", _SELECTORS)
def test_a_selector_of_a_queue_is_read_as_it_was_written(selector: dict[str, Any]) -> None:
    read = QUEUE_SELECTOR.read(selector)
    assert QUEUE_SELECTOR.read(QUEUE_SELECTOR.write(read)) == read


def test_labels_in_any_order_are_one_selector() -> None:
    assert QUEUE_SELECTOR.read(_SELECTORS[1]) == with_labels({"a": "2", "b": "1"})


def test_values_in_any_order_are_one_selector() -> None:
    requirement = LabelRequirement("c", LabelSelectorOperator.IN, ("x", "y"))
    expressions = [_expression("c", "In", "y", "x")]
    assert QUEUE_SELECTOR.read({"matchExpressions": expressions}) == LabelSelector((requirement,))


def test_the_size_counts_labels_requirements_and_values() -> None:
    assert [selector_size(selector) for selector in (None, *_SELECTORS)] == [0, 0, 2, 4, 3, 48]

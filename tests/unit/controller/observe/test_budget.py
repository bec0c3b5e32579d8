"""Which disruption budgets count a pod, and how many pods they let go."""

from typing import Any

import pytest

from controller.engine.model.label_selector import LabelSelector
from controller.observe.budget import read_budget

_ALL: dict[str, Any] = {}


def _body(
    selector: dict[str, Any] | None, name: str = "b", generation: int = 1, **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": name, "generation": generation},
        "spec": {"minAvailable": 1} | ({} if selector is None else {"selector": selector}),
        "status": {"observedGeneration": 1, "disruptionsAllowed": 2, **status},
    }


def _expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "app", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "counts"),
    [
        (None, {}, False),
        (None, {"app": "x"}, False),
        (_ALL, {}, True),
        (_ALL, {"app": "x"}, True),
        ({"matchLabels": {"app": "x"}}, {"app": "x", "tier": "1"}, True),
        ({"matchLabels": {"app": "x"}}, {"app": "y"}, False),
        ({"matchLabels": {"app": "x", "tier": "1"}}, {"app": "x"}, False),
        (_expression("In", "x", "y"), {"app": "y"}, True),
        (_expression("In", "x", "y"), {}, False),
        (_expression("NotIn", "x"), {"app": "y"}, True),
        (_expression("NotIn", "x"), {"app": "x"}, False),
        (_expression("NotIn", "x"), {}, True),
        (_expression("Exists"), {"app": ""}, True),
        (_expression("Exists"), {}, False),
        (_expression("DoesNotExist"), {}, True),
        (_expression("DoesNotExist"), {"app": "x"}, False),
        ({"matchLabels": {"app": "x"}, **_expression("NotIn", "x")}, {"app": "x"}, False),
        (_expression("Resembles", "x"), {"app": "x"}, False),
    ],
)
def test_a_budget_counts_the_pods_that_its_selector_matches(
    selector: dict[str, Any] | None, labels: dict[str, str], counts: bool
) -> None:
    assert read_budget(_body(selector)).counts("team", labels) is counts


def test_a_budget_counts_no_pods_of_other_namespaces() -> None:
    assert not read_budget(_body(_ALL)).counts("other", {})


@pytest.mark.parametrize(
    ("generation", "status", "allowed"),
    [
        (1, {}, 2),
        (2, {}, 0),
        (1, {"observedGeneration": 2}, 2),
        (1, {"disruptionsAllowed": -1}, 0),
    ],
)
def test_a_budget_allows_what_its_status_says_once_that_is_current(
    generation: int, status: dict[str, Any], allowed: int
) -> None:
    assert read_budget(_body(_ALL, generation=generation, **status)).allowed == allowed


def test_a_budget_that_was_never_counted_allows_nothing() -> None:
    body = _body(_ALL)
    del body["status"]
    assert read_budget(body).allowed == 0


def test_a_selector_too_large_to_be_asked_for_each_pod_counts_all_pods_of_its_namespace() -> None:
    expressions = [{"key": f"l{at}", "operator": "Exists"} for at in range(20_000)]
    budget = read_budget(_body({"matchExpressions": expressions}))
    assert budget.counts("team", {})
    assert not budget.counts("other", {})
    assert budget.selector == LabelSelector()

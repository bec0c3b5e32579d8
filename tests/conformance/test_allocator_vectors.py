"""The allocator answers each vector as it says, and under every policy with a valid allocation."""

from typing import Any

import pytest

from carina_dra.allocator.preference import Policy
from tests.conformance.answer import answer, attempt
from tests.model.checker import violation
from tests.model.problem import Problem
from tests.oracle.compare import difference, expected_of

_EVERY_POLICY = pytest.mark.parametrize(
    "policy", ["upstream", "binpack", "spread", "spread/binpack"]
)


def test_vector(allocation_vector: dict[str, Any]) -> None:
    assert difference(expected_of(allocation_vector), answer(allocation_vector)) is None


@_EVERY_POLICY
def test_policy_does_not_decide_whether_claims_are_allocated(
    allocation_vector: dict[str, Any], policy: str
) -> None:
    expected = expected_of(allocation_vector)
    given = answer(allocation_vector, Policy.parse(policy))
    if "error" not in expected:
        assert next(iter(given)) == next(iter(expected)), given
    elif " device " in expected["error"]:  # another order may not come to the device that fails
        assert "unsatisfiable" not in given, given
    else:
        assert difference(expected, given) is None


@_EVERY_POLICY
def test_allocation_is_valid(allocation_vector: dict[str, Any], policy: str) -> None:
    given = answer(allocation_vector, Policy.parse(policy)).get("allocations")
    if given:
        assert violation(Problem(allocation_vector), given) is None


def test_search_takes_no_more_steps_than_upstream(allocation_vector: dict[str, Any]) -> None:
    steps = allocation_vector.get("searchSteps", 0)
    if steps > 0:
        assert attempt(allocation_vector).steps <= steps

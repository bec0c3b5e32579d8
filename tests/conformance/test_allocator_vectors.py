"""The allocator answers each vector as it says."""

from typing import Any

from tests.conformance.answer import answer, attempt
from tests.oracle.compare import difference, expected_of


def test_vector(allocation_vector: dict[str, Any]) -> None:
    assert difference(expected_of(allocation_vector), answer(allocation_vector)) is None


def test_search_takes_no_more_steps_than_upstream(allocation_vector: dict[str, Any]) -> None:
    steps = allocation_vector.get("searchSteps", 0)
    if steps > 0:
        assert attempt(allocation_vector).steps <= steps

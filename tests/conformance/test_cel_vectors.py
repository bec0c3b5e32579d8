"""Selectors answer each vector as it says: true, false, or the kind of the error."""

from typing import Any

from tests.conformance.selector_answer import selector_answer
from tests.samples.expressions import device


def test_vector(selector_vector: dict[str, Any]) -> None:
    expected = selector_vector["expect"]
    answer = selector_answer(
        selector_vector["expression"], selector_vector.get("device") or device()
    )
    assert answer.keys() == expected.keys(), answer
    assert answer.get("match") == expected.get("match")

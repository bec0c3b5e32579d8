"""Quantities are read, written and added as Kubernetes' own code does it.

`data/quantities/answers.json` is what k8s.io/apimachinery v0.37.0 answers: made by the Go program
beside it, `go run . < texts`, where texts has one quantity a line.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.quantity import Format, Quantity, QuantityError

ANSWERS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "quantities" / "answers.json").read_text()
)
READABLE = [answer for answer in ANSWERS if not answer.get("error")]
INT64 = range(-(2**63), 2**63)

quantities = st.builds(
    Quantity, st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(Format)
)


@pytest.mark.parametrize("answer", READABLE, ids=lambda answer: answer["text"])
class TestAsKubernetes:
    def test_is_written_canonically(self, answer: dict[str, Any]) -> None:
        quantity = Quantity.parse(answer["text"])
        assert (str(quantity), quantity.format.value) == (answer["canonical"], answer["format"])

    def test_is_rounded_to_integers(self, answer: dict[str, Any]) -> None:
        quantity = Quantity.parse(answer["text"])
        for ours, theirs in (
            (quantity.value(), answer["value"]),
            (quantity.milli_value(), answer["milli"]),
        ):
            # Where Go's integers overflow ours do not, and how it rounds a negative number
            # depends on how it holds it.
            assert ours == theirs or ours not in INT64 or quantity.nanos < 0

    def test_is_added_and_subtracted(self, answer: dict[str, Any]) -> None:
        quantity = Quantity.parse(answer["text"])
        sums = {other: str(quantity + Quantity.parse(other)) for other in answer["plus"]}
        differences = {other: str(quantity - Quantity.parse(other)) for other in answer["minus"]}
        assert (sums, differences) == (answer["plus"], answer["minus"])


@pytest.mark.parametrize("text", [answer["text"] for answer in ANSWERS if answer.get("error")])
def test_what_kubernetes_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        Quantity.parse(text)


@given(quantities)
def test_canonical_text_reads_as_the_same_number(quantity: Quantity) -> None:
    if quantity.format is not Format.BINARY_SI or abs(quantity.value()) < 2**63:
        assert Quantity.parse(str(quantity)) == quantity


@given(quantities, quantities)
def test_subtraction_undoes_addition(one: Quantity, other: Quantity) -> None:
    assert one + other - other == one


@given(quantities, quantities)
def test_equal_numbers_are_equal_however_written(one: Quantity, other: Quantity) -> None:
    assert (one == other) == (one.nanos == other.nanos)
    assert (one < other) == (one.nanos < other.nanos)
    assert hash(Quantity(one.nanos, other.format)) == hash(one)

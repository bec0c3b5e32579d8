"""Quantities are read, written and added as Kubernetes' own code does it.

`data/quantities/answers.json` is what k8s.io/apimachinery v0.37.0 answers, written by the program
beside it; the texts are edge cases chosen by hand and a random sample.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from carina_dra.quantity import Format, Quantity, QuantityError
from tests.samples.strategies import quantities

ANSWERS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "quantities" / "answers.json").read_text()
)
READABLE = [answer for answer in ANSWERS if not answer.get("refused")]
REFUSED = [answer["text"] for answer in ANSWERS if answer.get("refused")]
INT64 = range(-(2**63), 2**63)


@pytest.mark.parametrize("answer", READABLE, ids=lambda answer: repr(answer["text"]))
class TestAsKubernetes:
    def test_is_written_canonically(self, answer: dict[str, Any]) -> None:
        quantity = Quantity.parse(answer["text"])
        assert (str(quantity), quantity.format.value) == (answer["canonical"], answer["format"])

    def test_is_rounded_away_from_zero_to_integers(self, answer: dict[str, Any]) -> None:
        quantity = Quantity.parse(answer["text"])
        for ours, theirs in (
            (quantity.value(), answer["value"]),
            (quantity.milli_value(), answer["milli"]),
        ):
            # Go's integers overflow, and of negative numbers that it holds as big ones it is wrong.
            assert ours == theirs or ours not in INT64 or quantity.nanos < 0

    def test_is_added_and_subtracted(self, answer: dict[str, Any]) -> None:
        quantity = Quantity.parse(answer["text"])
        sums = {other: str(quantity + Quantity.parse(other)) for other in answer["plus"]}
        differences = {other: str(quantity - Quantity.parse(other)) for other in answer["minus"]}
        assert (sums, differences) == (answer["plus"], answer["minus"])


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_what_kubernetes_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError) as refusal:
        Quantity.parse(text)
    assert str(refusal.value).startswith(f"{text!r} is not a quantity; write a number")


@pytest.mark.parametrize(
    "text",
    ["1" * 5000, "1..1" + "0" * 5000, "0." + "1" * 5000 + "Gi", "e" * 100_000],
)
def test_long_text_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(QuantityError) as refusal:
        Quantity.parse(text)
    assert len(str(refusal.value)) < 300


def test_largest_quantities_can_be_added_and_written() -> None:
    largest = Quantity.parse("9" * 96 + "e999")
    assert len(str(largest + Quantity.parse("1n"))) > 1000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("00", 0),
        ("1e3", 1000),
        ("80Gi", 80 * 2**30),
        ("9223372036G", 9223372036 * 10**9),
        ("92233720368G", None),
        ("999999999999999999", 10**18 - 1),
        ("9000000000000000000", None),
        ("9223372036854775807", None),
        ("1.5Gi", None),
        ("100000Gi", None),
        ("1Pi", None),
        ("8Ei", None),
        ("1000m", None),
        ("1.0", None),
        ("0m", None),
    ],
)
def test_as_int64_gives_what_go_holds_in_64_bits(text: str, number: int | None) -> None:
    assert Quantity.parse(text).as_int64() == number


@pytest.mark.parametrize(
    ("one", "other", "number"),
    [
        ("4Ti", "4Ti", 8 * 2**40),
        ("900P", "900P", 1800 * 10**15),
        ("900P", "900000P", None),
        ("500m", "500m", None),
        ("5", "0m", 5),
        ("0m", "5", 5),
        ("9G", "1n", None),
        ("9223372036854775807", "1", None),
    ],
)
def test_as_int64_of_a_sum_depends_on_how_it_was_written(
    one: str, other: str, number: int | None
) -> None:
    assert (Quantity.parse(one) + Quantity.parse(other)).as_int64() == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.1", 1.1),
        ("4.35", 4.3500000000000005),
        ("0.3Gi", 322122547.20000005),
        ("123456789n", 0.12345678900000001),
        ("1e999", float("inf")),
        ("-1e999", float("-inf")),
    ],
)
def test_approximate_has_the_rounding_errors_of_go(text: str, number: float) -> None:
    assert Quantity.parse(text).approximate() == number


@pytest.mark.parametrize(
    ("text", "rounded"), [("-1.5", -2), ("-1", -1), ("-0.1m", -1), ("0.1m", 1), ("1.5", 2)]
)
def test_fractions_are_rounded_away_from_zero(text: str, rounded: int) -> None:
    assert Quantity.parse(text).value() == rounded


def test_beyond_the_largest_suffix_the_number_grows() -> None:
    assert str(Quantity.parse("1E") + Quantity.parse("999E")) == "1000E"


@pytest.mark.parametrize(
    ("number", "form", "text"),
    [
        (1536 * 2**20, Format.BINARY_SI, "1536Mi"),
        (1023, Format.BINARY_SI, "1023"),
        (8000, Format.DECIMAL_SI, "8k"),
        (8000, Format.DECIMAL_EXPONENT, "8e3"),
    ],
)
def test_whole_numbers_are_written_in_the_format_asked_for(
    number: int, form: Format, text: str
) -> None:
    assert str(Quantity.of(number, form)) == text


@given(quantities)
def test_canonical_text_reads_as_the_same_number(quantity: Quantity) -> None:
    if quantity.format is not Format.BINARY_SI or abs(quantity.value()) in INT64:
        assert Quantity.parse(str(quantity)) == quantity


@given(quantities)
@example(Quantity.of(2000, Format.BINARY_SI))
def test_canonical_text_of_what_was_read_stays_as_it_is(quantity: Quantity) -> None:
    # A quantity that was not read may have a text of another format: 2000 bytes are read as "2k".
    if abs(quantity.value()) in INT64:
        canonical = str(Quantity.parse(str(quantity)))
        assert str(Quantity.parse(canonical)) == canonical


@given(quantities, quantities)
def test_subtraction_undoes_addition(one: Quantity, other: Quantity) -> None:
    assert one + other - other == one
    assert one - other == -(other - one)


@given(quantities, quantities)
def test_the_number_alone_decides_equality_order_and_hash(one: Quantity, other: Quantity) -> None:
    assert (one == other) == (one.nanos == other.nanos)
    assert (one < other) == (other > one) == (one.nanos < other.nanos)
    assert (one <= other) == (other >= one) == (one.nanos <= other.nanos)
    assert hash(Quantity(one.nanos, other.format)) == hash(one)

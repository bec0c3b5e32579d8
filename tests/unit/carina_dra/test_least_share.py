"""The least share is an exact fraction of a GPU, and nothing else is one."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.least_share import parse_least_share
from carina_dra.resource import limits


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("1/10", Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        ("1/7", Fraction(1, 7)),
        ("2/8", Fraction(1, 4)),
        ("0.125", Fraction(1, 8)),
        ("1", Fraction(1)),
        ("1/1000", Fraction(1, 1000)),
    ],
)
def test_fractions_and_decimals_are_read_exactly(text: str, share: Fraction) -> None:
    assert parse_least_share(text) == share


@pytest.mark.parametrize(
    "text",
    [
        *("", "tenth", "-1/10", "+1/10", "1/0", "0", "0/5", "1/1001", "0.0625", "1.001", "11/10"),
        *("1e-1", "1/-10", " 1/10", "1/10\n", "1/10/2", "1/2.5", "1_0/20", "nan", "inf"),
        "\u0661/\u0661\u0660",
        "1/" + "9" * 60,
    ],
)
def test_what_is_no_such_fraction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a fraction from 1/1000 to 1"):
        parse_least_share(text)


@given(st.fractions(Fraction(1, 1000), 1, max_denominator=9999))
def test_what_is_published_is_read_as_it_was_set(share: Fraction) -> None:
    assert parse_least_share(str(share)) == share
    assert len(str(share)) <= limits.ATTRIBUTE_TEXT_BYTES


@given(st.text(max_size=70))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 < parse_least_share(text) <= 1

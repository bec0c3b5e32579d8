"""Tests of random cases follow one factor and one seed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import length


@settings(max_examples=400)
@given(number=st.integers(), size=st.integers(1, 2000), part=st.integers(1, 100))
def test_parts_are_all_that_there_is_in_order(number: int, size: int, part: int) -> None:
    whole = range(number, number + size)
    parts = length.parts(whole, part)
    assert [seed for some in parts for seed in some] == list(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_examples_of_a_property_are_scaled() -> None:
    of_property = getattr(test_parts_are_all_that_there_is_in_order, length._SETTINGS)
    assert of_property.max_examples == length.scaled(400)


def test_numbers_are_scaled_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARINA_TEST_LENGTH", "0.1")
    assert [length.scaled(number) for number in (200, 15, 1)] == [20, 2, 1]


def test_the_seed_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARINA_TEST_SEED", "7")
    monkeypatch.setenv("CARINA_TEST_LENGTH", "1")
    length.seed.cache_clear()
    try:
        assert length.seeds(3) == range(7, 10)
        assert length.repeated_by() == "CARINA_TEST_SEED=7 CARINA_TEST_LENGTH=1"
    finally:
        length.seed.cache_clear()


@pytest.mark.parametrize("seed", ["-1", "1.5", "", "abc"])
def test_a_wrong_seed_is_refused(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("CARINA_TEST_SEED", seed)
    length.seed.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"CARINA_TEST_SEED=.* is not a whole number from 0"):
            length.seed()
    finally:
        length.seed.cache_clear()


@pytest.mark.parametrize("factor", ["0", "-1", "inf", "nan", "half"])
def test_a_wrong_length_is_refused(monkeypatch: pytest.MonkeyPatch, factor: str) -> None:
    monkeypatch.setenv("CARINA_TEST_LENGTH", factor)
    with pytest.raises(ValueError, match=r"CARINA_TEST_LENGTH=.* is not a positive number"):
        length.scaled(10)

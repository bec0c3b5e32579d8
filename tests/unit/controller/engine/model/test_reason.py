"""Texts of reasons that have a time."""

import math

import pytest

from controller.engine.model.reason import DecisionFailed, Delayed, Undecided
from controller.engine.model.time_reason import time_text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_764_000_000, "2025-11-24T16:00:00Z"),
        (1_764_000_000.2, "2025-11-24T16:00:01Z"),
        (1e18, "9999-12-31T23:59:59Z"),
        (math.inf, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_time_is_one_of_day(time: float, text: str) -> None:
    assert time_text(time) == text


@pytest.mark.parametrize(
    "reason",
    [
        Delayed(1_764_000_000),
        DecisionFailed("KeyError", 1_764_000_000),
        Undecided(5, "pod", 1_764_000_000),
    ],
)
def test_no_reason_says_a_unix_time(reason: Delayed | DecisionFailed | Undecided) -> None:
    assert "2025-11-24T16:00:00Z" in str(reason)

"""Starts that fail are tried again later and later."""

import pytest

from carina_dra.kube.errors import (
    ApiOperation,
    Conflict,
    Forbidden,
    NotFound,
    Unreachable,
)
from controller.run.retry import Retry, StartRetries, delay

_WHAT = ApiOperation("patch", "pods")


@pytest.mark.parametrize(
    ("error", "first", "keeps"),
    [
        (Conflict(_WHAT, ""), 0.1, True),
        (NotFound(_WHAT, ""), 0.1, True),
        (Unreachable(_WHAT, ""), 1.0, True),
        (Forbidden(_WHAT, ""), 1.0, False),
        (ValueError(), 1.0, False),
    ],
)
def test_a_start_keeps_its_devices_if_it_may_succeed_soon(
    error: Exception, first: float, keeps: bool
) -> None:
    assert delay(error) == first
    assert StartRetries().failed("t/g", error) == Retry(first, keeps=keeps)


def test_the_delay_doubles_with_each_failure_up_to_a_minute() -> None:
    retries = StartRetries()
    seconds = [retries.failed("t/g", Forbidden(_WHAT, "")).seconds for _ in range(12)]
    assert seconds == [1, 2, 4, 8, 16, 32, *[60] * 6]


def test_a_start_ends_the_delay_and_so_does_the_end_of_the_group() -> None:
    retries, error = StartRetries(), Forbidden(_WHAT, "")
    retries.failed("t/g", error)
    retries.started("t/g")
    assert retries.failed("t/g", error).seconds == 1
    retries.forget_all_but({"t/h"})
    assert retries.failed("t/g", error).seconds == 1
    retries.forget_all_but({"t/g"})
    assert retries.failed("t/g", error).seconds == 2


def test_nothing_is_delayed_without_an_error() -> None:
    assert delay(None) == 0

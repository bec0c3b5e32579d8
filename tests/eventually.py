"""Waiting for what happens in other threads and processes, without guessing how long it takes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.01


def eventually(condition: Callable[[], T], *, within: float = 30.0) -> T:
    """What the condition gives as soon as that is true; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: last seen {result!r}"
        time.sleep(_POLL_SECONDS)
    return result

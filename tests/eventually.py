"""Waiting for what happens in other threads and processes, without guessing how long it takes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_PAUSE_BY_CONDITION = 2.0
"""A condition may be costly: it leaves most of the processor's time to what is waited for."""


def eventually(condition: Callable[[], T], *, within: float = 30.0) -> T:
    """What the condition gives as soon as that is true; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        if result := condition():
            return result
        answered = time.monotonic()
        assert answered < deadline, f"not within {within} s: last seen {result!r}"
        pause = _PAUSE_BY_CONDITION * (answered - asked)
        time.sleep(min(max(pause, _LEAST_PAUSE_S), _LONGEST_PAUSE_S))

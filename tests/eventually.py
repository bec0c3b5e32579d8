"""Waiting for what happens in other threads and processes, without guessing how long it takes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_PAUSE_BY_CONDITION, _PAUSE_BY_WAIT = 2.0, 0.02
"""A condition may be costly: it leaves most of the processor's time to what is waited for, and
nearly all of it where that takes long."""


def eventually(condition: Callable[[], T], *, within: float = 30.0) -> T:
    """What the condition gives as soon as that is true; AssertionError after `within` seconds."""
    began = time.monotonic()
    deadline = began + within
    while True:
        asked = time.monotonic()
        if result := condition():
            return result
        answered = time.monotonic()
        assert answered < deadline, f"not within {within} s: last seen {result!r}"
        pause = max(_PAUSE_BY_CONDITION * (answered - asked), _PAUSE_BY_WAIT * (answered - began))
        time.sleep(min(max(pause, _LEAST_PAUSE_S), _LONGEST_PAUSE_S))

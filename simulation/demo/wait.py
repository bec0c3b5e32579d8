"""Waiting for what other processes do, with a time limit."""

import time
from collections.abc import Callable
from typing import TypeVar

from simulation.demo.console import DemoError

T = TypeVar("T")

_POLL_SECONDS = 0.02


def wait_for(what: str, condition: Callable[[], T | None], *, seconds: float = 15.0) -> T:
    """Polls a condition until it gives something true, and gives that.

    Raises:
        DemoError: the condition did not become true within `seconds`.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise DemoError(f"gave up waiting for {what} after {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)
    return found

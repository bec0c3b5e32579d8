"""Waiting for what other processes do, and no longer than makes sense."""

import time
from collections.abc import Callable
from typing import TypeVar

from simulation.demo.console import DemoError

T = TypeVar("T")

_POLL_SECONDS = 0.02


def wait_for(what: str, condition: Callable[[], T | None], *, seconds: float = 15.0) -> T:
    """Gives what the condition gives, as soon as that is true.

    Raises:
        DemoError: it is not within so many seconds.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise DemoError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(_POLL_SECONDS)
    return found

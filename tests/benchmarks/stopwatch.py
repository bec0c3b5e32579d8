"""How long a decision takes: the CPU time of this thread.

A decision waits for nothing, so on idle cores this is the time that passes. On busy ones it leaves
out what other processes take.
"""

import time
from collections.abc import Callable


def cpu_ms() -> float:
    """The CPU time of this thread so far."""
    return time.thread_time_ns() / 1e6


def took_ms(does: Callable[[], object]) -> float:
    """The CPU time of a call."""
    begun = cpu_ms()
    does()
    return cpu_ms() - begun

"""How long to wait before the next attempt: longer after each failure, and never in step.

Jitter keeps the clients of a cluster from returning all at once when an API server comes back.
"""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from `initial` up to `cap` seconds, until progress resets them.

    Each is spread by `jitter`: with 0.5, over its half to its one and a half. `draw` gives numbers
    in [0, 1). For one thread.
    """

    def __init__(
        self,
        *,
        initial: float = 0.2,
        cap: float = 30.0,
        jitter: float = 0.5,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._initial = initial
        self._cap = cap
        self._jitter = jitter
        self._draw = draw
        self._delay = initial

    def next(self) -> float:
        """Seconds to wait now; the delay after it is twice as long."""
        delay = self._delay
        self._delay = min(2 * delay, self._cap)
        return delay * (1 + self._jitter * (2 * self._draw() - 1))

    def reset(self) -> None:
        """There was progress: begin anew with the shortest delay."""
        self._delay = self._initial

"""How long to wait before the next attempt: longer after each failure, with jitter.

Jitter keeps the clients of a cluster from all returning at once when an API server comes back.
"""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from `initial` up to `cap` seconds, until `reset`.

    Each delay varies by the fraction `jitter`: by 0.5 means between half and one and a half times
    the delay. `draw` returns random numbers in [0, 1). Not thread-safe.
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
        """The next delay in seconds."""
        delay = self._delay
        self._delay = min(2 * delay, self._cap)
        return delay * (1 + self._jitter * (2 * self._draw() - 1))

    def reset(self) -> None:
        """Starts again with the shortest delay."""
        self._delay = self._initial

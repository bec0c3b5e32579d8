"""How often something may be done: a token bucket. Times are seconds of any steady clock."""


class TokenBucket:
    """Lets `burst` things happen at once, and then `rate` a second.

    A clock that is set back saves up nothing, and takes nothing away.
    """

    def __init__(self, *, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def take(self, now: float, count: int = 1) -> bool:
        """Takes tokens for that many things; false, and none taken, if there are too few."""
        if self.wait(now, count) > 0:
            return False
        self._tokens -= count
        return True

    def wait(self, now: float, count: int = 1) -> float:
        """In how many seconds there are that many tokens; 0 for now."""
        if self._filled_at is not None:
            grown = self._tokens + max(0.0, now - self._filled_at) * self._rate
            self._tokens = min(float(self._burst), grown)
        self._filled_at = now
        return max(0.0, (min(count, self._burst) - self._tokens) / self._rate)

"""Times at which keys are to be looked at again."""

import heapq


class Alarms:
    """At most one time for each key; the earliest that was set holds."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        """Also has times that hold no more, which are dropped when they come first."""

    def set(self, key: str, at: float) -> None:
        """Sets the time of a key, unless an earlier one is set."""
        known = self._at.get(key)
        if known is None or at < known:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))
            if len(self._heap) > 2 * len(self._at) + 64:
                self._heap = [(at, key) for key, at in self._at.items()]
                heapq.heapify(self._heap)

    def cancel(self, key: str) -> None:
        """Removes the time of a key."""
        self._at.pop(key, None)

    @property
    def next(self) -> float | None:
        """The earliest time."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[str]:
        """The keys that are due, which are due no more."""
        due: list[str] = []
        while (at := self.next) is not None and at <= now:
            key = heapq.heappop(self._heap)[1]
            del self._at[key]
            due.append(key)
        return due

"""What undoes the changes of a state, in the order in which they were made."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Journal:
    """Records the inverse of each change, so that a trial is the same code as the real thing."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def record(self, undo: Callable[[], object]) -> None:
        """Applies a change that has been made."""
        self._steps.append(undo)

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Sets an entry of a mapping; its position among others is not restored."""
        if key in mapping:
            self.record(partial(mapping.__setitem__, key, mapping[key]))
        else:
            self.record(partial(mapping.pop, key))
        mapping[key] = value

    def drop(self, mapping: dict[K, V], key: K) -> None:
        """Removes an entry of a mapping."""
        self.record(partial(mapping.__setitem__, key, mapping.pop(key)))

    def mark(self) -> int:
        """The present, for `rollback`."""
        return len(self._steps)

    def rollback(self, mark: int) -> None:
        """Undoes all changes since a mark, the last one first."""
        while len(self._steps) > mark:
            self._steps.pop()()

    def forget(self) -> None:
        """Makes all changes permanent."""
        self._steps.clear()

"""What undoes the changes of a state, in the order in which they were made."""

from collections.abc import Callable


class Journal:
    """Records the inverse of each change, so that a trial is the same code as the real thing."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def record(self, undo: Callable[[], object]) -> None:
        """Takes notice of a change that has been made."""
        self._steps.append(undo)

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

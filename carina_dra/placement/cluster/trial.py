"""A trial: changes of a cluster that are undone at its end, unless they are kept."""

from collections.abc import Callable


class Trial:
    """Undoes changes in reverse order; each change is recorded with its exact inverse."""

    def __init__(self, outer: "Trial | None") -> None:
        self._outer = outer
        self._inverses: list[Callable[[], None]] = []

    def record(self, inverse: Callable[[], None]) -> None:
        """Takes the inverse of a change that has just been made."""
        self._inverses.append(inverse)

    def keep(self) -> None:
        """Keeps all changes so far.

        They become changes of the outer trial, if there is one, which still undoes them at its end.
        """
        if self._outer is not None:
            for inverse in self._inverses:
                self._outer.record(inverse)
        self._inverses.clear()

    def undo(self) -> None:
        """Undoes all changes that were not kept."""
        while self._inverses:
            self._inverses.pop()()

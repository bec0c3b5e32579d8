"""A bound of work in steps: what a tenant asks for is worked on until its budget is spent.

Steps are counted, not seconds: the same question costs the same on every machine. One step is about
as much work as one decision of the search for devices, 10 microseconds on a core of 2025. What else
costs steps, and how many, is said in `price`.
"""

from collections.abc import Callable, Hashable
from typing import Final

UNLIMITED: Final = 1 << 62
"""A limit that no work reaches."""
_BETWEEN_LOOKS: Final = 2_000
"""Steps after which work that gives way looks whether it has to: a fiftieth of a second."""


class OutOfStepsError(Exception):
    """The budget is spent: what it was spent on is undecided."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} steps of work")
        self.limit = limit


class GaveWayError(Exception):
    """The work was given up for somebody who comes first: nothing is known yet."""


class StepBudget:
    """How many steps some work may take. It is spent in the innermost loops."""

    __slots__ = ("_gives_way", "_next_look", "charged", "limit", "spent")

    def __init__(self, limit: int, gives_way: Callable[[], bool] | None = None) -> None:
        """`gives_way` is asked again and again whether the work is given up."""
        self.limit = limit
        self._gives_way = gives_way
        self._next_look = limit if gives_way is None else min(limit, _BETWEEN_LOOKS)
        self.spent = 0
        """It exceeds the limit by the price of the last step at most."""
        self.charged: dict[Hashable, int] = {}
        """The devices, one a bit, that have been charged once for all of the work, by what for."""

    @classmethod
    def unlimited(cls) -> "StepBudget":
        """A budget without a limit, for work on questions of one's own."""
        return cls(UNLIMITED)

    def beside(self, limit: int) -> "StepBudget":
        """A budget for work beside this one, which gives way like this one."""
        return StepBudget(limit, self._gives_way)

    @property
    def is_limited(self) -> bool:
        """Whether it can be spent."""
        return self.limit < UNLIMITED

    @property
    def left(self) -> int:
        """How many steps are left."""
        return max(0, self.limit - self.spent)

    def spend(self, steps: int) -> None:
        """Charges work that is about to be done.

        Raises:
            OutOfStepsError: the budget does not suffice.
            GaveWayError: the work gives way.
        """
        self.spent += steps
        if self.spent > self._next_look:
            self._look()

    def _look(self) -> None:
        if self.spent > self.limit:
            raise OutOfStepsError(self.limit)
        if self._gives_way is not None and self._gives_way():
            raise GaveWayError
        self._next_look = min(self.limit, self.spent + _BETWEEN_LOOKS)

    def extend(self, steps: int) -> None:
        """Charges work beyond the limit, which is as much higher then."""
        self.spent += steps
        self.limit += steps
        self._next_look += steps

    def spend_once(self, what: Hashable, steps: int) -> None:
        """Charges work whose result is remembered, once; also where it is remembered already.

        So an attempt costs the same, whatever has been asked before.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if self.limit >= UNLIMITED:
            self.spent += steps
        elif what not in self.charged:
            self.charged[what] = 1
            self.spend(steps)

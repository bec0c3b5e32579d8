"""A bound of work in steps: what a tenant asks for is worked on until its budget is spent.

Steps are counted, not seconds: the same question costs the same on every machine. One step is about
as much work as one decision of the search for devices, 10 microseconds on a core of 2025. What else
costs steps, and how many, is said in `price`.
"""

from collections.abc import Hashable
from typing import Final

UNLIMITED: Final = 1 << 62
"""A limit that no work reaches."""


class OutOfStepsError(Exception):
    """The budget is spent: what it was spent on is undecided."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} steps of work")
        self.limit = limit


class StepBudget:
    """How many steps some work may take. It is spent in the innermost loops."""

    __slots__ = ("charged", "limit", "spent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spent = 0
        """It exceeds the limit by the price of the last step at most."""
        self.charged: dict[Hashable, int] = {}
        """The devices, one a bit, that have been charged once for all of the work, by what for."""

    @classmethod
    def unlimited(cls) -> "StepBudget":
        """A budget without a limit, for work on questions of one's own."""
        return cls(UNLIMITED)

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
        """
        self.spent += steps
        if self.spent > self.limit:
            raise OutOfStepsError(self.limit)

    def extend(self, steps: int) -> None:
        """Charges work beyond the limit, which is as much higher then."""
        self.spent += steps
        self.limit += steps

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

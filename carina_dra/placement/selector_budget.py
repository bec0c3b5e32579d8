"""A limit of what the expressions of claims of one kind cost on all nodes together."""

from carina_dra.cel import Meter


class BudgetError(Exception):
    """The selectors of claims have cost more than they may."""


class SelectorBudget:
    """What the selectors of claims may cost on all nodes together."""

    def __init__(self, most: int | None) -> None:
        """`most` is in the units of CEL's costs; None for no limit."""
        self.meter = Meter()
        self._most = most

    def give_back(self, cost: int) -> None:
        """Forgets a cost: what it was spent on is gone."""
        self.meter.spent -= cost

    def require(self) -> None:
        """Requires that something is left.

        Raises:
            BudgetError: nothing is.
        """
        if self._most is not None and self.meter.spent >= self._most:
            raise BudgetError(
                f"the expressions of the claims cost more than {self._most} units on all nodes "
                "together; simplify them"
            )

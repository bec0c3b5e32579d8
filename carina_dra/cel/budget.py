"""The cost limit of an evaluation, in the units of cel-go's run-time cost.

The cost of a short expression is not counted if it has no loops and calls only functions that take
time proportional to their arguments: it cannot reach the limit. Every other expression is charged
for all that it does: for a value before it is created, for a comparison by the sizes of the values.
`functions/cost.py` says how much.
"""

from typing import Final

from carina_dra.cel.errors import BudgetExceededError

LIMIT: Final = 1_000_000
"""The cost limit of one evaluation (Kubernetes: CELSelectorExpressionMaxCost)."""
SHORT: Final = 1_000
"""The maximal number of characters of an expression whose cost is not counted."""


class CostBudget:
    """The remaining cost of an evaluation."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = LIMIT

    def spend(self, cost: int) -> None:
        """Charges a cost.

        Raises:
            BudgetExceededError: the limit is exceeded.
        """
        self._left -= cost
        if self._left < 0:
            raise BudgetExceededError

    @property
    def spent(self) -> int:
        """The cost charged so far, at most the limit."""
        return LIMIT - max(self._left, 0)


class Meter:
    """The cost of several evaluations together, such as those of a selector for many devices."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0
        """In the units of the budget."""


def no_charge(cost: int) -> None:
    """Charges nothing: for expressions whose cost is not counted."""

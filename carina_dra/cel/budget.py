"""The cost limit of an evaluation, in the units of cel-go's run-time cost.

An expression without loops and without values that grow cannot reach the limit, so its cost is not
counted. A value that grows is charged by its future size, before it is created.
"""

from typing import Final

from carina_dra.cel.errors import BudgetExceededError

LIMIT: Final = 1_000_000
"""The cost limit of one evaluation (Kubernetes: CELSelectorExpressionMaxCost)."""
SHORT: Final = 1_000
"""The cost of an expression up to this length, without values that grow, is not counted."""


class Budget:
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

"""How long an evaluation may take, in the units of cel-go's run-time cost.

An expression in which nothing is repeated and nothing grows cannot come near the limit, and is not
counted. What grows is charged for what it will be before it is made.
"""

from typing import Final

from carina_dra.cel.errors import BudgetExceededError

LIMIT: Final = 1_000_000
"""Of one evaluation (Kubernetes: CELSelectorExpressionMaxCost)."""
SHORT: Final = 1_000
"""An expression of so many characters, in which nothing can grow, is not counted."""


class Budget:
    """What an evaluation has left."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = LIMIT

    def spend(self, cost: int) -> None:
        """Takes a step.

        Raises:
            BudgetExceededError: nothing is left for it.
        """
        self._left -= cost
        if self._left < 0:
            raise BudgetExceededError

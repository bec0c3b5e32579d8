"""The work on a part of a question, such as a node, by the prices of `price`.

It is counted in thousandths of a step, and spends what is left of a budget. What the same part of
the same question costs does not depend on what was remembered of it.
"""

from collections.abc import Hashable
from typing import Final

from carina_dra.price import STEP
from carina_dra.step_budget import OutOfStepsError, StepBudget

_UNLIMITED: Final = 1 << 62


class Work:
    """The work on one part of a question, which may cost what is left of a budget."""

    __slots__ = ("_budget", "_charged", "_most", "spent")

    def __init__(self, budget: StepBudget | None = None, free: int = 0) -> None:
        """`free` steps cost the budget nothing; without a budget there is no limit."""
        self._budget = budget
        self._most = _UNLIMITED if budget is None else (budget.left + free) * STEP
        self._charged: dict[Hashable, int] = {}
        self.spent = 0
        """In thousandths of a step."""

    @property
    def steps(self) -> int:
        """What was spent, in steps begun."""
        return -(-self.spent // STEP)

    def spend(self, parts: int) -> None:
        """Charges work, in thousandths of a step.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        self.spent += parts
        if self.spent > self._most:
            raise OutOfStepsError(0 if self._budget is None else self._budget.limit)

    def uncharged(self, key: Hashable, devices: int, *, for_all: bool = False) -> int:
        """Which of some devices, one a bit, have not been charged by this key; they are now.

        `for_all` says that they are charged once for all parts of the question together.
        """
        charged = self._charged
        if for_all and self._budget is not None and self._budget.is_limited:
            charged = self._budget.charged
        before = charged.get(key, 0)
        charged[key] = before | devices
        return devices & ~before

"""What it has cost to find out what is remembered of nodes: each attempt that uses it pays for it.

So a question costs an attempt as much as if nothing were remembered, and whether its budget
suffices does not depend on what was asked before. An attempt pays for a node once, unless the node
changes, and only if it would have looked at it: a node that could have a better score than the one
that is chosen.
"""

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from carina_dra.placement.choice.order import Entry
from carina_dra.step_budget import StepBudget

_FEW_DEAD: Final = 16
"""So many dues of nodes that have changed are kept, and besides as many as there are others."""


class Due:
    """What a look at a node has cost."""

    __slots__ = ("entry", "payer", "steps")

    def __init__(self, entry: Entry, steps: int, payer: StepBudget) -> None:
        self.entry: Final = entry
        """The score of the node that led to the look."""
        self.steps: Final = steps
        self.payer: StepBudget | None = payer
        """Who has paid last; None if the node has changed since."""

    def pay(self, budget: StepBudget) -> None:
        """Pays, unless that has been done, or the node has changed.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if self.payer is not None and self.payer is not budget:
            self.payer = budget
            budget.spend(self.steps)


_entry = attrgetter("entry")


class Dues:
    """The dues of all nodes for claims of one kind."""

    def __init__(self) -> None:
        self._of_node: dict[str, list[Due]] = {}
        self._in_order: list[Due] = []
        """The best node first, with some of nodes that have changed."""
        self._number = 0
        """Of nodes that have not changed."""

    def add(self, entry: Entry, steps: int, payer: StepBudget) -> None:
        """Applies a look that has been paid for."""
        due = Due(entry, steps, payer)
        self._of_node.setdefault(entry[3], []).append(due)
        insort(self._in_order, due, key=_entry)
        self._number += 1

    def forget(self, node: str) -> None:
        """Forgets a node, which is looked at again."""
        dues = self._of_node.pop(node, ())
        for due in dues:
            due.payer = None
        self._number -= len(dues)
        if len(self._in_order) > 2 * self._number + _FEW_DEAD:
            self._in_order = [due for due in self._in_order if due.payer is not None]

    def forget_all(self) -> None:
        """Forgets all nodes."""
        for name in list(self._of_node):
            self.forget(name)

    def of(self, nodes: Collection[str] | None, budget: StepBudget) -> "Bill":
        """What a budget owes for some of the nodes, or for all, as it comes to them."""
        return Bill(self, nodes, budget)

    def of_few(self, nodes: Iterable[str], budget: StepBudget) -> "Bill":
        """What a budget owes for a few nodes."""
        few = Dues()
        if self._of_node and budget.is_limited:
            dues = (due for name in nodes for due in self._of_node.get(name, ()))
            few._in_order = sorted(dues, key=_entry)
        return Bill(few, None, budget)

    @property
    def in_order(self) -> Sequence[Due]:
        """The best node first, with some of nodes that have changed."""
        return self._in_order


class Bill:
    """What a budget owes for nodes."""

    __slots__ = ("_budget", "_dues", "_nodes", "_until")

    def __init__(self, dues: Dues, nodes: Collection[str] | None, budget: StepBudget) -> None:
        self._dues = dues
        self._nodes = nodes
        self._budget = budget
        self._until: Entry | None = None
        """What is not above this has been paid."""

    def pay(self, until: Entry | None = None) -> None:
        """Pays for the nodes up to this score, or for all.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        in_order, budget = self._dues.in_order, self._budget
        if not in_order or not budget.is_limited:
            return
        begun = 0 if self._until is None else bisect_right(in_order, self._until, key=_entry)
        for due in islice(in_order, begun, None):
            if until is not None and due.entry > until:
                break
            if due.payer is None or due.payer is budget:
                continue
            if self._nodes is None or due.entry[3] in self._nodes:
                due.pay(budget)
        if until is not None:
            self._until = until

"""The nodes of a cluster by their labels, remembered until nodes change."""

from collections.abc import Iterable, Mapping
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import selects
from carina_dra.resource import NodeSelector, NodeSelectorOperator, NodeSelectorTerm
from carina_dra.step_budget import StepBudget
from controller.engine.model.label_selector import LabelSelector, LabelSelectorOperator
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.remembered import most_sets

NO_NODES: Final[frozenset[str]] = frozenset()
_NODES_A_STEP: Final = 100
_KEYS: Final = 64
"""Keys of labels whose nodes are remembered; a pod may name any label."""


class LabelledNodes:
    """Finds nodes by a label without a look at all of them."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._moment = -1
        self._by_key: dict[str, Mapping[str, frozenset[str]]] = {}
        self._with_key: dict[str, frozenset[str]] = {}
        self._selected: dict[NodeSelector, frozenset[str]] = {}

    @property
    def moment(self) -> int:
        """Changes when nodes do."""
        return self._occupancy.capacity.moment

    def by_value(self, key: str, budget: StepBudget) -> Mapping[str, frozenset[str]]:
        """The nodes that have a label, by its value.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        budget.spend_once(("label", key), 1 + len(self._occupancy.nodes) // _NODES_A_STEP)
        return self._of_key(key)

    def with_key(self, key: str, budget: StepBudget) -> frozenset[str]:
        """The nodes that have a label.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        by_value = self.by_value(key, budget)
        known = self._with_key.get(key)
        if known is None:
            known = self._with_key[key] = NO_NODES.union(*by_value.values())
        return known

    def selected(self, selector: NodeSelector, budget: StepBudget) -> frozenset[str]:
        """The nodes that a selector selects; none if it is not valid.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        budget.spend_once(selector, 1 + len(self._occupancy.nodes) // _NODES_A_STEP)
        return self.select(selector)

    def select(self, selector: NodeSelector) -> frozenset[str]:
        """The same for a selector that no tenant has written."""
        self._refresh()
        known = self._selected.get(selector)
        if known is None:
            if len(self._selected) >= most_sets(len(self._occupancy.nodes)):
                self._selected.clear()
            known = self._selected[selector] = NO_NODES.union(
                *(self._of_term(term) for term in selector.node_selector_terms)
            )
        return known

    def labelled(self, selector: LabelSelector) -> frozenset[str]:
        """The nodes whose labels a selector selects."""
        names: Iterable[str] = self._occupancy.nodes
        for requirement in selector.requirements:
            if requirement.operator is LabelSelectorOperator.IN:
                names = self._with_values(requirement.key, requirement.values)
                break
        nodes = self._occupancy.nodes
        return frozenset(name for name in names if selector.matches(nodes[name].node.labels))

    def _of_key(self, key: str) -> Mapping[str, frozenset[str]]:
        self._refresh()
        known = self._by_key.get(key)
        if known is None:
            if len(self._by_key) >= _KEYS:
                self._by_key.clear()
                self._with_key.clear()
            found: dict[str, set[str]] = {}
            for name, node in self._occupancy.nodes.items():
                value = node.node.labels.get(key)
                if value is not None:
                    found.setdefault(value, set()).add(name)
            known = self._by_key[key] = {value: frozenset(names) for value, names in found.items()}
        return known

    def _of_term(self, term: NodeSelectorTerm) -> frozenset[str]:
        names: Iterable[str] = self._occupancy.nodes
        for requirement in term.match_expressions:
            if requirement.operator is NodeSelectorOperator.IN:
                names = self._with_values(requirement.key, requirement.values)
                break
        for requirement in term.match_fields:
            if requirement.operator is NodeSelectorOperator.IN:
                names = [name for name in requirement.values if name in self._occupancy.nodes]
        only, nodes = NodeSelector((term,)), self._occupancy.nodes
        try:
            return frozenset(name for name in names if selects(only, nodes[name].node))
        except AllocationError:
            return NO_NODES

    def _with_values(self, key: str, values: Iterable[str]) -> frozenset[str]:
        by_value = self._of_key(key)
        return NO_NODES.union(*(by_value.get(value, NO_NODES) for value in values))

    def _refresh(self) -> None:
        if self._moment != self._occupancy.capacity.moment:
            self._moment = self._occupancy.capacity.moment
            self._by_key.clear()
            self._with_key.clear()
            self._selected.clear()

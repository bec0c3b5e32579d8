"""Required affinity and anti-affinity to other pods (core/v1 PodAffinityTerm).

The rules are those of kube-scheduler's InterPodAffinity (`plugins/interpodaffinity/filtering.go`):

- the pods that are meant by the affinity of a pod match all of its terms, and each term has a
  domain of its key with one of them; if there are none at all, a pod that its own terms mean goes
  to any node that has the keys;
- no domain of an anti-affinity term has a pod that the term means;
- nor is the pod meant by an anti-affinity term of a pod in the domain.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from carina_dra.step_budget import StepBudget
from controller.engine.decide.nodes.labelled_nodes import NO_NODES, LabelledNodes
from controller.engine.model.pod import MOST_TERMS, Pod, PodAffinity
from controller.engine.state.neighbours import NodeCounts, Selections
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.remembered import most_sets

_TERMS_A_STEP: Final = 4
_NODES_A_STEP: Final = 100
Affine: TypeAlias = tuple[object, ...]


class PodRules:
    """Where pods may be because of other pods; it is remembered until something changes."""

    def __init__(self, occupancy: Occupancy, nodes: LabelledNodes) -> None:
        self._occupancy = occupancy
        self._nodes = nodes
        self._moment = -1
        self._reaches: dict[tuple[str, Selections], tuple[NodeCounts, int, frozenset[str]]] = {}

    def allowed(self, pod: Pod, names: frozenset[str], budget: StepBudget) -> frozenset[str]:
        """Those of the nodes where the pod may be; pods that are leaving count as gone.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        neighbours, terms = self._occupancy.neighbours, _terms(pod)
        away: set[str] = set()
        for guard in neighbours.guards_against(pod, budget):
            budget.spend(1 + len(guard.by_node) // _NODES_A_STEP)
            away |= self._reached(guard.term.topology_key, guard.by_node, budget)
        if not terms:
            return names - away if away else names
        budget.spend(1 + len(terms) // _TERMS_A_STEP)
        for term in terms:
            if term.anti:
                away |= self._reach(term.topology_key, (term.selection,), budget)
        names -= away
        keys = [term.topology_key for term in terms if not term.anti]
        if not keys:
            return names
        together = _together(pod)
        reaches = [self._reach(key, together, budget) for key in keys]
        if any(reaches):
            return names.intersection(*reaches)
        if not neighbours.selects(together, pod):
            return NO_NODES
        return names.intersection(*(self._nodes.with_key(key, budget) for key in keys))

    def awaited(self, pod: Pod, budget: StepBudget) -> frozenset[str]:
        """The nodes where the pod may be only when pods have left that are being evicted.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if not self._occupancy.leaving:
            return NO_NODES
        leavers = self._occupancy.leavers
        away: set[str] = set()
        for guard in leavers.guards_against(pod, budget):
            budget.spend(1 + len(guard.by_node) // _NODES_A_STEP)
            away |= self._reached(guard.term.topology_key, guard.by_node, budget)
        for term in _terms(pod):
            if term.anti:
                counts = leavers.counts((term.selection,), budget)
                budget.spend(1 + len(counts.by_node) // _NODES_A_STEP)
                away |= self._reached(term.topology_key, counts.by_node, budget)
        return frozenset(away)

    def kind(self, pod: Pod, budget: StepBudget) -> Affine:
        """Equal for pods with equal needs that may be on the same nodes.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        neighbours = self._occupancy.neighbours
        guards = frozenset(guard.term for guard in neighbours.guards_against(pod, budget))
        together = _together(pod) if pod.needs.pod_affinity else ()
        return guards, neighbours.selects(together, pod) if together else False

    def _reach(self, key: str, selections: Selections, budget: StepBudget) -> frozenset[str]:
        """The nodes in domains that have a pod which is meant."""
        counts = self._occupancy.neighbours.counts(selections, budget)
        budget.spend(1 + len(counts.by_node) // _NODES_A_STEP)
        self._nodes.by_value(key, budget)  # charged, whatever is remembered
        if self._moment != self._occupancy.capacity.moment or len(self._reaches) >= most_sets(
            len(self._occupancy.nodes)
        ):
            self._moment = self._occupancy.capacity.moment
            self._reaches.clear()
        known = self._reaches.get((key, selections))
        if known is not None:
            counted, version, reached = known
            if counted is counts and version == counts.version:
                return reached
        reached = self._reached(key, counts.by_node, budget)
        self._reaches[key, selections] = counts, counts.version, reached
        return reached

    def _reached(self, key: str, by_node: Mapping[str, int], budget: StepBudget) -> frozenset[str]:
        """The nodes in the domains of some nodes."""
        if not by_node:
            return NO_NODES
        domains, nodes = self._nodes.by_value(key, budget), self._occupancy.nodes
        values = {nodes[name].node.labels.get(key) for name in by_node if name in nodes}
        return NO_NODES.union(*(domains[value] for value in values if value is not None))


def _together(pod: Pod) -> Selections:
    """The pods to which a pod must be close: all of its terms mean each of them."""
    return tuple(term.selection for term in _terms(pod) if not term.anti)


def _terms(pod: Pod) -> tuple[PodAffinity, ...]:
    return pod.needs.pod_affinity[:MOST_TERMS]

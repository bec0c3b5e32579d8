"""Topology spread constraints that must hold (core/v1, DoNotSchedule).

The rules are those of kube-scheduler's PodTopologySpread (`podtopologyspread/filtering.go`): nodes
count that have the keys of all constraints of the pod, and that its policies include. With the pod,
its domain may have at most `maxSkew` pods more than the domain of counted nodes with fewest.

The pod of a controller is pinned to its node when it starts. kube-scheduler then counts this node
only, if the constraint honors node affinity, and so fewer domains than a `minDomains` above 1: the
node itself may not have more than `maxSkew` of the pods.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple, TypeAlias

from carina_dra.step_budget import StepBudget
from controller.engine.decide.nodes.labelled_nodes import NO_NODES, LabelledNodes
from controller.engine.decide.nodes.node_fit import is_selected, is_tolerated, steps_of_looks
from controller.engine.model.pod import MOST_TERMS, Pod, PodNeeds, SpreadConstraint
from controller.engine.state.neighbours import NodeCounts
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.remembered import most_sets

_NODES_A_STEP: Final = 100

_Inclusion: TypeAlias = tuple[Hashable, ...]
"""What of a pod and a constraint says which nodes count."""


class _Counted(NamedTuple):
    """The nodes that count for a constraint."""

    nodes: frozenset[str]
    domains: int


class SpreadRules:
    """Where pods may be because of their spread constraints."""

    def __init__(self, occupancy: Occupancy, nodes: LabelledNodes) -> None:
        self._occupancy = occupancy
        self._nodes = nodes
        self._moment = -1
        self._counted: dict[_Inclusion, _Counted] = {}
        self._full: dict[
            tuple[SpreadConstraint, _Inclusion, bool], tuple[NodeCounts, int, frozenset[str]]
        ] = {}

    def allowed(self, pod: Pod, names: frozenset[str], budget: StepBudget) -> frozenset[str]:
        """Those of the nodes where the pod may be.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        constraints = pod.needs.spread[:MOST_TERMS]
        for constraint in constraints:
            budget.spend(1)
            names &= self._nodes.with_key(constraint.topology_key, budget)
            names -= self._too_full(pod, constraint, constraints, budget)
        return names

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods with equal needs that may be on the same nodes."""
        return tuple(self._counts_itself(pod, each) for each in pod.needs.spread[:MOST_TERMS])

    def _counts_itself(self, pod: Pod, constraint: SpreadConstraint) -> bool:
        selector = constraint.selection.selector
        return selector is not None and selector.matches(pod.labels)

    def _too_full(
        self,
        pod: Pod,
        constraint: SpreadConstraint,
        constraints: tuple[SpreadConstraint, ...],
        budget: StepBudget,
    ) -> frozenset[str]:
        """The nodes in domains that have as many pods as they may."""
        selector = constraint.selection.selector
        if selector is None or not selector.requirements:
            return NO_NODES  # no pod is counted
        if self._moment != self._occupancy.capacity.moment or len(self._full) >= most_sets(
            len(self._occupancy.nodes)
        ):
            self._moment = self._occupancy.capacity.moment
            self._counted.clear()
            self._full.clear()
        counts = self._occupancy.neighbours.counts((constraint.selection,), budget)
        inclusion = _inclusion(pod.needs, constraint, constraints)
        nodes = len(self._occupancy.nodes)
        looks = nodes * len(constraints) // _NODES_A_STEP + steps_of_looks(pod.needs, nodes)
        budget.spend_once(inclusion, 1 + looks)
        budget.spend(1 + len(counts.by_node) // _NODES_A_STEP)
        key = constraint, inclusion, self._counts_itself(pod, constraint)
        known = self._full.get(key)
        if known is not None:
            counted, version, full = known
            if counted is counts and version == counts.version:
                return full
        full = self._found_full(pod, constraint, counts, inclusion, budget)
        self._full[key] = counts, counts.version, full
        return full

    def _found_full(
        self,
        pod: Pod,
        constraint: SpreadConstraint,
        counts: NodeCounts,
        inclusion: _Inclusion,
        budget: StepBudget,
    ) -> frozenset[str]:
        counted = self._counted.get(inclusion)
        if counted is None:
            counted = self._counted[inclusion] = self._included(pod.needs, constraint)
        nodes, totals = self._occupancy.nodes, dict[str, int]()
        for name, count in counts.by_node.items():
            if name in counted.nodes:
                value = nodes[name].node.labels[constraint.topology_key]
                totals[value] = totals.get(value, 0) + count
        has_empty = counted.domains < constraint.min_domains or len(totals) < counted.domains
        least = 0 if has_empty else min(totals.values(), default=0)
        most = constraint.max_skew + least - self._counts_itself(pod, constraint)
        by_value = self._nodes.by_value(constraint.topology_key, budget)
        full = NO_NODES.union(*(by_value[value] for value, total in totals.items() if total > most))
        if constraint.min_domains > 1 and constraint.honors_affinity:
            alone = constraint.max_skew - self._counts_itself(pod, constraint)
            full |= {name for name in counted.nodes if counts.by_node.get(name, 0) > alone}
        return full

    def _included(self, needs: PodNeeds, constraint: SpreadConstraint) -> _Counted:
        keys = [term.topology_key for term in needs.spread[:MOST_TERMS]]
        found, domains = [], set()
        for name, node in self._occupancy.nodes.items():
            labels = node.node.labels
            if (
                all(key in labels for key in keys)
                and (not constraint.honors_affinity or is_selected(needs, node))
                and (not constraint.honors_taints or is_tolerated(needs, node))
            ):
                found.append(name)
                domains.add(labels[constraint.topology_key])
        return _Counted(frozenset(found), len(domains))


def _inclusion(
    needs: PodNeeds, constraint: SpreadConstraint, constraints: tuple[SpreadConstraint, ...]
) -> _Inclusion:
    return (
        constraint.topology_key,
        tuple(each.topology_key for each in constraints),
        (needs.node_selector, needs.affinity) if constraint.honors_affinity else None,
        needs.tolerations if constraint.honors_taints else None,
    )

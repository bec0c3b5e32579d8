"""Which nodes a pod may be on, whatever is on them now (core/v1 selectors, affinity and taints)."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import selects
from carina_dra.price import CONDITION, STEP, VALUES_PER_CONDITION
from carina_dra.resource import NodeSelector
from controller.engine.model.node import ClusterNode, NodeRelease, Taint
from controller.engine.model.pod import PodNeeds, PodTolerationOperator, Toleration

_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""A number to compare with, as `IsDecimalInteger` of apimachinery has it."""


def unsuitable(needs: PodNeeds, node: ClusterNode) -> str | None:
    """The first constraint that keeps such a pod from the node; None if there is none."""
    if node.release is not NodeRelease.NONE:
        return "released"
    if node.unschedulable and not _tolerates_cordon(needs.tolerations):
        return "unschedulable"
    taint = _untolerated(needs, node)
    if taint is not None:
        return f"taint {taint.key}"
    if not _has_labels(needs.node_selector, node.node.labels):
        return "node selector"
    if needs.affinity is not None:
        try:
            if not selects(needs.affinity, node.node):
                return "node affinity"
        except AllocationError:
            return "node affinity that is not valid"
    return None


def steps_of_looks(needs: PodNeeds, nodes: int) -> int:
    """Steps to look at the conditions of a pod on a number of nodes."""
    conditions = len(needs.tolerations) + len(needs.node_selector) + _conditions(needs.affinity)
    return nodes * conditions * CONDITION // STEP


def _conditions(selector: NodeSelector | None) -> int:
    if selector is None:
        return 0
    return sum(
        1 + sum(1 + len(one.values) // VALUES_PER_CONDITION for one in requirements)
        for term in selector.node_selector_terms
        for requirements in (term.match_expressions, term.match_fields)
        if requirements
    )


def is_selected(needs: PodNeeds, node: ClusterNode) -> bool:
    """Whether node selector and node affinity select a node."""
    if not _has_labels(needs.node_selector, node.node.labels):
        return False
    try:
        return needs.affinity is None or selects(needs.affinity, node.node)
    except AllocationError:
        return False


def is_tolerated(needs: PodNeeds, node: ClusterNode) -> bool:
    """Whether such a pod tolerates all taints of a node that keep pods away."""
    return _untolerated(needs, node) is None


def _untolerated(needs: PodNeeds, node: ClusterNode) -> Taint | None:
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not _tolerates(needs.tolerations, taint):
            return taint
    return None


def _has_labels(wanted: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted)


def _tolerates_cordon(tolerations: Iterable[Toleration]) -> bool:
    return _tolerates(tolerations, Taint("node.kubernetes.io/unschedulable"))


def _tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_matches(toleration, taint) for toleration in tolerations)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key != taint.key and (
        toleration.key or toleration.operator is not PodTolerationOperator.EXISTS
    ):
        return False
    match toleration.operator:
        case PodTolerationOperator.EQUAL:
            return toleration.value == taint.value
        case PodTolerationOperator.EXISTS:
            return True
        case PodTolerationOperator.LESS | PodTolerationOperator.GREATER:
            return _is_beyond(toleration, taint)
    assert_never(toleration.operator)


def _is_beyond(toleration: Toleration, taint: Taint) -> bool:
    """Whether both values are numbers, and that of the taint is on the tolerated side."""
    if not (_NUMBER.fullmatch(toleration.value) and _NUMBER.fullmatch(taint.value)):
        return False
    bound, value = int(toleration.value), int(taint.value)
    return value < bound if toleration.operator is PodTolerationOperator.LESS else value > bound

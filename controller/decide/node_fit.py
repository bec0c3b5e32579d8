"""Which nodes a pod may be on, whatever is on them now (core/v1 selectors, affinity and taints)."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import selects
from controller.model.node import ClusterNode, Taint
from controller.model.pod import PodNeeds, Toleration, TolerationOperator

_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""A number to compare with, as `IsDecimalInteger` of apimachinery has it."""


def unsuitable(needs: PodNeeds, node: ClusterNode) -> str | None:
    """The first constraint that keeps such a pod from the node; None if there is none."""
    if node.unschedulable and not _tolerates_cordon(needs.tolerations):
        return "unschedulable"
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not _tolerates(needs.tolerations, taint):
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
        toleration.key or toleration.operator is not TolerationOperator.EXISTS
    ):
        return False
    match toleration.operator:
        case TolerationOperator.EQUAL:
            return toleration.value == taint.value
        case TolerationOperator.EXISTS:
            return True
        case TolerationOperator.LESS | TolerationOperator.GREATER:
            return _is_beyond(toleration, taint)
    assert_never(toleration.operator)


def _is_beyond(toleration: Toleration, taint: Taint) -> bool:
    """Whether both values are numbers, and that of the taint is on the tolerated side."""
    if not (_NUMBER.fullmatch(toleration.value) and _NUMBER.fullmatch(taint.value)):
        return False
    bound, value = int(toleration.value), int(taint.value)
    return value < bound if toleration.operator is TolerationOperator.LESS else value > bound

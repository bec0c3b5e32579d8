"""Which nodes a pod may be on, whatever is on them now (core/v1 selectors, affinity and taints)."""

from collections.abc import Iterable, Mapping

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import selects
from controller.model.node import ClusterNode, Taint
from controller.model.pod import PodNeeds, Toleration


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
    if toleration.key != taint.key and (toleration.key or not toleration.exists):
        return False
    return toleration.exists or toleration.value == taint.value

"""Required affinity and anti-affinity of a pod to others (core/v1 PodAffinityTerm)."""

from collections.abc import Iterator

from controller.model.pod import Pod, PodAffinity
from controller.state.state import State


def allowed_by_pods(state: State, pod: Pod, names: frozenset[str]) -> frozenset[str] | None:
    """Those of the nodes where the pods are that it must, or must not, be close to; None for all.

    As for kube-scheduler, the first of pods that must be close to each other goes anywhere.
    """
    if not pod.needs.pod_affinity:
        return None
    for term in pod.needs.pod_affinity:
        domains = set(_domains(state, pod, term))
        if not term.anti and not domains and _matches(term, pod, pod):
            names = frozenset(name for name in names if _domain(state, name, term) is not None)
            continue
        names = frozenset(
            name for name in names if (_domain(state, name, term) in domains) != term.anti
        )
    return names


def _domains(state: State, pod: Pod, term: PodAffinity) -> Iterator[str | None]:
    """The domains that have a pod which is meant."""
    for node, pods in state.on_node.items():
        domain = _domain(state, node, term)
        if domain is not None and any(
            key != pod.key and _matches(term, pod, state.pods[key]) for key in pods
        ):
            yield domain


def _domain(state: State, node: str, term: PodAffinity) -> str | None:
    known = state.nodes.get(node)
    return None if known is None else known.node.labels.get(term.topology_key)


def _matches(term: PodAffinity, pod: Pod, other: Pod) -> bool:
    return other.namespace == pod.namespace and all(
        other.labels.get(key) == value for key, value in term.match_labels
    )

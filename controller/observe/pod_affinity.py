"""Required affinity and anti-affinity to other pods, from the body of a pod.

The API server has merged `matchLabelKeys` and `mismatchLabelKeys` into the label selectors when it
created the pod (`applyMatchLabelKeysAndMismatchLabelKeys` in `pkg/registry/core/pod/strategy.go`).
"""

from collections.abc import Iterable
from typing import Any, Final

from carina_dra.resource import JsonObject
from controller.engine.files.label_selector import plain_selector, read_selector, selector_size
from controller.engine.model.pod import MOST_TERMS, PodAffinity, PodSelection

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_KINDS: Final = (("podAffinity", False), ("podAntiAffinity", True))
MOST_PARTS: Final = 64
"""The most requirements, values and namespaces of one term."""


def affinity_terms(
    affinity: JsonObject, namespace: str, *, anti_only: bool = False
) -> list[tuple[Any, ...]]:
    """The required terms that are modelled, as plain values; the rest is left to kube-scheduler.

    `anti_only`: for a pod that has a node, and keeps others away from it by anti-affinity only.
    """
    found: list[tuple[Any, ...]] = []
    for kind, is_anti in _KINDS:
        if anti_only and not is_anti:
            continue
        for term in (affinity.get(kind) or {}).get(_REQUIRED) or ():
            if len(found) == MOST_TERMS:
                return found
            read = _plain(term, namespace, is_anti=is_anti)
            if read is not None:
                found.append(read)
    return found


def read_affinity(terms: Iterable[tuple[Any, ...]]) -> tuple[PodAffinity, ...]:
    """The terms as values."""
    return tuple(
        PodAffinity(
            topology_key,
            PodSelection(read_selector(labels), tuple(namespaces), read_selector(of_namespaces)),
            is_anti,
        )
        for topology_key, is_anti, labels, namespaces, of_namespaces in terms
    )


def _plain(term: JsonObject, namespace: str, *, is_anti: bool) -> tuple[Any, ...] | None:
    """A term; None if it is too large, or of a newer API."""
    of_namespaces = term.get("namespaceSelector")
    namespaces = sorted(set(term.get("namespaces") or ()))
    if not namespaces and of_namespaces is None:
        namespaces = [namespace]
    size = selector_size(term.get("labelSelector")) + selector_size(of_namespaces)
    if size + len(namespaces) > MOST_PARTS:
        return None
    try:
        labels = plain_selector(term.get("labelSelector"))
        return term["topologyKey"], is_anti, labels, namespaces, plain_selector(of_namespaces)
    except ValueError:
        return None

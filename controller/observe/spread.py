"""Topology spread constraints with DoNotSchedule, from the body of a pod.

The API server merges `matchLabelKeys` into the label selector when it creates the pod; where it
does not, kube-scheduler does (`podtopologyspread/common.go`). Merged twice, they say the same.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from carina_dra.resource import JsonObject
from controller.engine.files.label_selector import plain_selector, read_selector, selector_size
from controller.engine.model.label_selector import LabelSelectorOperator
from controller.engine.model.pod import MOST_TERMS, PodSelection, SpreadConstraint
from controller.observe.pod_affinity import MOST_PARTS

_DO_NOT_SCHEDULE: Final = "DoNotSchedule"
_HONOR: Final = "Honor"
_IN: Final = LabelSelectorOperator.IN.value


def spread_terms(
    constraints: Iterable[JsonObject], namespace: str, labels: Mapping[str, str]
) -> list[tuple[Any, ...]]:
    """The constraints that are modelled, as plain values; the rest is left to kube-scheduler.

    `labels` are those of the pod.
    """
    found: list[tuple[Any, ...]] = []
    for constraint in constraints:
        if len(found) == MOST_TERMS:
            break
        keys = constraint.get("matchLabelKeys") or ()
        selector = constraint.get("labelSelector")
        if constraint.get("whenUnsatisfiable") != _DO_NOT_SCHEDULE:
            continue
        if selector_size(selector) + len(keys) > MOST_PARTS:
            continue
        try:
            plain = plain_selector(selector)
        except ValueError:  # of a newer API
            continue
        if plain is not None:
            same = {(key, _IN, (labels[key],)) for key in keys if key in labels}
            plain = sorted({*plain, *same})
        found.append(
            (
                constraint["topologyKey"],
                constraint["maxSkew"],
                plain,
                [namespace],
                constraint.get("minDomains") or 1,
                (constraint.get("nodeAffinityPolicy") or _HONOR) == _HONOR,
                constraint.get("nodeTaintsPolicy") == _HONOR,
            )
        )
    return found


def read_spread(terms: Iterable[tuple[Any, ...]]) -> tuple[SpreadConstraint, ...]:
    """The constraints as values."""
    return tuple(
        SpreadConstraint(
            topology_key,
            max_skew,
            PodSelection(read_selector(selector), tuple(namespaces)),
            min_domains,
            honors_affinity,
            honors_taints,
        )
        for (
            topology_key,
            max_skew,
            selector,
            namespaces,
            min_domains,
            honors_affinity,
            honors_taints,
        ) in terms
    )

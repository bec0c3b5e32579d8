"""Disruption budgets (policy/v1 PodDisruptionBudget): which pods they count, how many may leave.

The rules are those of the eviction API (`pkg/registry/core/pod/storage/eviction.go`, 1.37).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from carina_dra.resource import JsonObject
from controller.engine.files.label_selector import plain_selector, read_selector, selector_size
from controller.engine.model.label_selector import LabelSelector

_MOST_PARTS: Final = 16
"""The most labels, requirements and values of a selector that is looked at."""
_EVERY_POD: Final = LabelSelector()


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: LabelSelector | None
    """None matches no pod: it is absent, or cannot be read, and the eviction API ignores it.

    One that is too large to be asked for each pod matches all pods of the namespace.
    """
    allowed: int
    """How many of its pods may be disrupted now."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def counts(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it counts a pod with these labels."""
        return (
            self.selector is not None
            and self.namespace == namespace
            and self.selector.matches(labels)
        )


def read_budget(body: JsonObject) -> DisruptionBudget:
    """Reads a PodDisruptionBudget.

    Nothing is allowed while its controller has not seen the latest spec: evictions are refused
    then. That `unhealthyPodEvictionPolicy` allows more for pods that are not ready is not used.

    Raises:
        KeyError: it was never stored.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    is_current = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
    return DisruptionBudget(
        metadata["namespace"],
        metadata["name"],
        _selector((body.get("spec") or {}).get("selector")),
        max(0, status.get("disruptionsAllowed", 0)) if is_current else 0,
    )


def _selector(selector: JsonObject | None) -> LabelSelector | None:
    if selector is None:
        return None
    if selector_size(selector) > _MOST_PARTS:
        return _EVERY_POD
    try:
        return read_selector(plain_selector(selector))
    except (KeyError, ValueError):  # of a newer API
        return None

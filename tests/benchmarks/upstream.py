"""Upstream's allocator on a fleet, with one goroutine.

It keeps no state between pods but compiled selectors, and looks at one node after the other.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, assert_never

from tests.benchmarks.fleet import CLASSES, GATES, Kind, Object, Page, Pod
from tests.benchmarks.measurement import Typical
from tests.oracle.upstream import Upstream as Oracle

ALL_NODES: Final = 0
ENOUGH_FOR_KUBE_SCHEDULER: Final = 500
FIRST_FIT: Final = 1
_TIMEOUT_S: Final = 20


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a pod."""

    took_ms: float
    """CPU time of the thread."""
    suitable: int
    """The number of suitable nodes that were found."""
    tried: int
    """The number of nodes that were tried."""


class UpstreamAllocator:
    """The running oracle with a fleet."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.decode_s = 0.0
        """How long Go took to decode the objects."""
        self._oracle.answer({"add": {"features": GATES, "classes": CLASSES}})

    def add(self, page: Page, text: str) -> None:
        """Adds objects; `text` is their JSON."""
        answer = self._oracle.answer_json(f'{{"add": {{{_members(page, text)}}}}}')
        self.decode_s += answer["decode"] / 1e9

    def ask(self, pods: Sequence[Pod], *, enough: int, give: bool = False) -> list[Tried]:
        """Tries nodes for each pod until `enough` are suitable.

        With `give`, each pod gets its devices on the first one; afterwards all are free again.
        """
        asked = {"pods": pods, "enough": enough, "give": give, "timeoutMs": _TIMEOUT_S * 1000}
        answer = self._oracle.answer({"ask": asked})
        return [Tried(pod["took"] / 1e6, pod["suitable"], pod["tried"]) for pod in answer["pods"]]


def typical_ms(tried: Sequence[Tried], typical: Typical = median) -> float | None:
    """The typical time; None if nothing was tried."""
    return typical(each.took_ms for each in tried) if tried else None


def _members(page: Page, text: str) -> str:
    match page.kind:
        case Kind.NODES:
            return f'"nodes": {text}'
        case Kind.SLICES:
            return f'"slices": {text}'
        case Kind.IN_USE:
            return json.dumps(_in_use(page.objects))[1:-1]
    assert_never(page.kind)


def _in_use(claims: Iterable[Object]) -> Object:
    results = [
        result for claim in claims for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    return {
        "allocatedDevices": [result for result in results if "shareID" not in result],
        "allocatedSharedDevices": [result for result in results if "shareID" in result],
        "consumedCapacity": [result for result in results if "consumedCapacity" in result],
    }

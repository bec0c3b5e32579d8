"""On how many nodes each thing is lacking for a pod, counted again for nodes that change.

Each pod that waits is told. On 5,000 nodes it would take 2 ms each time to look at all of them.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from controller.engine.model.pod import PodNeeds
from controller.engine.state.occupancy import Occupancy

_KEPT: Final = 8
"""The number of needs that counts are kept for."""
_Asked: TypeAlias = tuple[PodNeeds, frozenset[str]]


@dataclass(slots=True)
class _Counts:
    moment: int = -1
    lacking: dict[str, str] = field(default_factory=dict)
    """By node, where it is not devices: the first thing that is lacking."""
    total: Counter[str] = field(default_factory=Counter)
    """On how many nodes it is each of these."""


class Lacking:
    """Counts for the needs that were asked for last."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._kept: dict[_Asked, _Counts] = {}

    def on(self, nodes: frozenset[str], needs: PodNeeds) -> Counter[str]:
        """On how many of some nodes each thing is the first that is lacking; else it is devices."""
        counts = self._kept.pop((needs, nodes), None) or _Counts()
        if len(self._kept) >= _KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[needs, nodes] = counts
        changed = self._occupancy.cluster.changed_nodes
        is_known = changed.is_known_since(counts.moment) and counts.moment >= 0
        for name in nodes.intersection(changed.since(counts.moment)) if is_known else nodes:
            before = counts.lacking.pop(name, None)
            if before is not None:
                counts.total[before] -= 1
            now = self._occupancy.rooms[name].lacks(needs)
            if now is not None:
                counts.lacking[name] = now
                counts.total[now] += 1
        counts.moment = changed.now
        return counts.total + Counter({"devices": len(nodes) - len(counts.lacking)})

"""The nodes of a cluster by the best score that they could have, kept while the cluster changes."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.preference import Order, least_use
from carina_dra.placement.choice.distances import NodeDistances
from carina_dra.placement.cluster.cluster import Cluster

Entry: TypeAlias = tuple[int, int, int, str]
"""A node with the best score that it could have: alternatives, distance, use, and its name."""


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """What the use of a node costs claims to come, by something that a cluster does not know.

    It replaces the use of nodes in their scores. A node whose loss changes is touched.
    """

    epoch: int
    """Losses of an earlier one are not asked for again."""
    key: Hashable
    """Equal for equal losses of an epoch."""
    on: Callable[[str], int] = field(compare=False)
    """The least loss for a node; smaller is better."""
    on_breaking: Callable[[str], int] = field(compare=False)
    """The loss if a free GPU of the node is broken: something is taken, and something is left."""


_FEW: Final = 16
"""All nodes are sorted if more than one in this many has changed."""


class NodeOrder:
    """The nodes that might have a number of devices, before it is known which devices."""

    def __init__(
        self,
        cluster: Cluster,
        distances: NodeDistances,
        order: Order,
        loss: NodeLoss | None = None,
    ) -> None:
        """The nodes are those that have a distance; other orders may use it, too."""
        self._cluster = cluster
        self._distances = distances
        self._order = order
        self._loss = loss
        self._moment = -1
        self._by_name: dict[str, Entry] = {}
        self._sorted: list[Entry] = []
        """The entries in their order, but for the unsorted."""
        self._unsorted: dict[str, Entry | None] = {}
        """Nodes that have changed since, with their entries among the sorted."""

    @property
    def wide(self) -> bool:
        """Whether devices of wide pools are among those that are asked for."""
        return self._distances.wide

    def entries(self) -> list[Entry]:
        """The entries of all nodes, the best first; not to be changed."""
        self._catch_up()
        self._sort()
        return self._sorted

    def has_room(
        self,
        node: str,
        amounts: Mapping[str, int],
        together: Collection[tuple[str, Mapping[str, int]]] = (),
    ) -> bool:
        """As `NodeDistances.has_room`."""
        return self._distances.has_room(node, amounts, together)

    def entry(self, node: str) -> Entry | None:
        """The entry of a node; a new object each time the node changes. None if there is none."""
        self._catch_up()
        return self._by_name.get(node)

    def _catch_up(self) -> None:
        changes = self._cluster.changed_nodes
        if self._moment == changes.now:
            return
        if changes.is_known_since(self._moment):
            changed: Iterable[str] = changes.since(self._moment)
        else:
            changed = self._distances.nodes() | self._by_name.keys()
        self._moment = changes.now
        for name in changed:
            self._unsorted.setdefault(name, self._by_name.get(name))
            self._renew(name)

    def _sort(self) -> None:
        if len(self._unsorted) * _FEW > len(self._sorted):
            kept = [entry for entry in self._sorted if entry[3] not in self._unsorted]
            kept += filter(None, map(self._by_name.get, self._unsorted))
            self._sorted = sorted(kept)
        else:
            for name, before in self._unsorted.items():
                if before is not None:
                    del self._sorted[bisect_left(self._sorted, before)]
                after = self._by_name.get(name)
                if after is not None:
                    insort(self._sorted, after)
        self._unsorted.clear()

    def _renew(self, name: str) -> None:
        self._by_name.pop(name, None)
        distance = self._distances.of(name)
        if distance is not None:
            use = self._use(name) if self._loss is None else self._loss.on(name)
            self._by_name[name] = (0, distance, use, name)

    def _use(self, name: str) -> int:
        is_in_use = self._cluster.is_in_use(name)
        if not is_in_use and self._order is not Order.FRAGMENTATION:
            return 0
        try:
            own = [offered for offered in self._cluster.offer(name).ready if offered.is_own]
        except AllocationError:
            return 0  # the node's allocations fail with this error
        if is_in_use:
            return least_use(
                [self._cluster.pool_state(offered).uses for offered in own], self._order
            )
        # Of a node of which nothing is in use, the states of its pools are not needed.
        return least_use([[(group, 0) for group in offered.groups] for offered in own], self._order)

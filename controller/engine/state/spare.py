"""How many devices nobody has: more than that cannot be given out by moving those who have some."""

from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import DeviceGroup
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.offer import OfferedPool
from controller.engine.state.node_sum import NodeSum

MANY: Final = 1_000_000
"""Stands for what cannot be counted: shares of a device, and devices that share counters."""


class Spare:
    """Counts the devices that nobody has, node by node, again where something has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sum = NodeSum(cluster, self._count)

    def devices(self) -> int:
        """How many more devices claims could have at most, wherever those in use were.

        Each claim that has devices keeps as many. It is `MANY` or more if they cannot be counted.
        """
        return self._sum.total()

    def _count(self, node: str) -> int:
        try:
            offer = self._cluster.offer(node)
        except AllocationError:  # nothing can be allocated there
            return 0
        return sum(map(self._of_pool, offer.ready))

    def _of_pool(self, offered: OfferedPool) -> int:
        if offered.shareable:
            return MANY
        if offered.pool.counters and not all(map(_is_alone, offered.groups)):
            return MANY
        if self._cluster.is_wide(offered.pool.id):
            return len(offered.devices)  # whose use changes too often, for too many nodes
        return (self._cluster.pool_state(offered).free & offered.here).bit_count()


def _is_alone(group: DeviceGroup) -> bool:
    """Whether no other device consumes the counters of a device."""
    return len(group.members) + len(group.elsewhere) == 1

"""What is free of the cards of nodes, what claims have of them, and what requests take at least."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.cluster.card import Card, CardParts, PartKind, is_card, together
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.offer import OfferedPool
from carina_dra.resource import Allocation

_OfPool: TypeAlias = tuple[Sequence[Card], Mapping[DeviceId, Card]]
"""The cards of a pool, and those of its devices."""


class Cards:
    """The cards of a cluster; those of a pool are remembered while it does not change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pools: WeakKeyDictionary[OfferedPool, _OfPool] = WeakKeyDictionary()

    def free(self, node: str) -> CardParts:
        """What is free of a node's cards, at most."""
        left = [
            card.left(self._cluster.pool_state(offered).usage)
            for offered in self._ready(node)
            for card in self._of_pool(offered)[0]
        ]
        return together(left)

    def are_apart(self, node: str) -> bool:
        """Whether each device of a node is a card by itself, which nobody shares."""
        return all(
            len(cards) == len(by_device) == len(offered.devices)
            and all(card.is_one_device for card in cards)
            for offered in self._ready(node)
            for cards, by_device in [self._of_pool(offered)]
        )

    def devices(self, node: str) -> Sequence[Mapping[DeviceId, Card]]:
        """The cards of a node by their devices, pool by pool."""
        return [self._of_pool(offered)[1] for offered in self._ready(node)]

    def _ready(self, node: str) -> Sequence[OfferedPool]:
        if node not in self._cluster.nodes:
            return ()
        try:
            return self._cluster.offer(node).ready
        except AllocationError:  # nothing can be allocated there
            return ()

    def _of_pool(self, offered: OfferedPool) -> _OfPool:
        known = self._pools.get(offered)
        if known is None:
            groups = [group for group in offered.groups if is_card(group)]
            cards = [Card(group, self._cluster.features) for group in groups]
            by_device = {
                member.id: card
                for group, card in zip(groups, cards, strict=True)
                for member in group.members
            }
            known = self._pools[offered] = cards, by_device
        return known


def had(
    devices: Sequence[Mapping[DeviceId, Card]], allocations: Iterable[Allocation], kind: PartKind
) -> int:
    """What would be free in addition of a kind on a node without some allocations, at most.

    devices: those of the node's cards.
    """
    found = 0
    for allocation in allocations:
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = DeviceId(result.driver, result.pool, result.device)
            for cards in devices:
                card = cards.get(device)
                if card is not None:
                    shared = None if result.share_id is None else result.consumed_capacity
                    found += card.taken(device, shared, kind)
                    break
    return found

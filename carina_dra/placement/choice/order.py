"""The nodes of a cluster by the best score that they could have, kept while the cluster changes."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.preference import Order, least_use
from carina_dra.placement.bounds.distance import least_distance
from carina_dra.placement.bounds.packing import Packing, Want
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import PoolState

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
    """The nodes that might have a number of devices, before it is known which devices.

    Nodes with too few free devices are left out, unless a pool of theirs cannot be used.
    """

    def __init__(
        self,
        cluster: Cluster,
        order: Order,
        devices: int,
        *,
        close: bool,
        wide: bool,
        loss: NodeLoss | None = None,
    ) -> None:
        """`close` says that devices close to each other are better.

        `wide` says that devices of wide pools are among those that are asked for. They are taken to
        be free, so that the order does not depend on their usage.
        """
        self._cluster = cluster
        self._order = order
        self._loss = loss
        self._devices = devices
        self._close = close and devices > 1
        self.wide = wide
        self._moment = -1
        self._by_name: dict[str, Entry] = {}
        self._sorted: list[Entry] = []
        """The entries in their order, but for the unsorted."""
        self._unsorted: dict[str, Entry | None] = {}
        """Nodes that have changed since, with their entries among the sorted."""
        self._shared: dict[str, PoolState] = {}
        """The only pools of nodes, if they have shared devices."""

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
        """Whether the devices of a node may have these amounts of capacities left, in billionths.

        One device has all of `amounts`. Devices with a value of an attribute in common have what
        is asked for `together` with the attribute.
        """
        state = self._shared.get(node)
        if state is None:
            return True
        return _suffices(state.room, amounts) and all(
            _suffices(state.room_within(attribute), of_all) for attribute, of_all in together
        )

    def entry(self, node: str) -> Entry | None:
        """The entry of a node; a new object each time the node changes. None if there is none."""
        self._catch_up()
        return self._by_name.get(node)

    def _catch_up(self) -> None:
        changes = self._cluster.changed_nodes
        if self._moment == changes.now:
            return
        if changes.is_known_since(self._moment):
            changed = list(changes.since(self._moment))
        else:
            changed = list(self._cluster.nodes.keys() | self._by_name.keys())
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
        self._shared.pop(name, None)
        if name not in self._cluster.nodes:
            return
        distance = use = 0
        if self._close or self._cluster.is_in_use(name):
            try:
                offer = self._cluster.offer(name)
            except AllocationError:
                pass  # the node's allocations fail with this error
            else:
                states = [self._cluster.pool_state(offered) for offered in offer.ready]
                closest = self._distance(name, offer, states) if self._devices else 0
                if closest is None:
                    return
                distance = closest
                if self._loss is None:
                    own = [state.uses for state in states if state.offered.is_own]
                    use = least_use(own, self._order)
        elif self._order is Order.FRAGMENTATION:
            use = self._unused(name)
        if self._loss is not None:
            use = self._loss.on(name)
        self._by_name[name] = (0, distance, use, name)

    def _unused(self, name: str) -> int:
        """The use of a node of which nothing is in use, without the states of its pools."""
        try:
            offer = self._cluster.offer(name)
        except AllocationError:
            return 0
        own = [offered.groups for offered in offer.ready if offered.is_own]
        return least_use([[(group, 0) for group in groups] for groups in own], self._order)

    def _distance(self, name: str, offer: Offer, states: Sequence[PoolState]) -> int | None:
        """How close the devices could be at best; None if there are too few."""
        free = shift = 0
        for state in states:
            devices = len(state.offered.devices)
            if not self._cluster.is_wide(state.offered.pool.id):
                free |= state.free << shift
            elif self.wide:
                free |= ((1 << devices) - 1) << shift
            shift += devices
        needed = 1 if any(state.offered.shareable for state in states) else self._devices
        if free.bit_count() < needed:
            return None if len(offer.ready) == len(offer.pools) else 0
        is_alone = len(offer.pools) == len(states) == 1 and states[0].offered.shareable
        # The usage of a wide pool changes without the node.
        if is_alone and not self._cluster.is_wide(states[0].offered.pool.id):
            self._shared[name] = states[0]
        if not self._close:
            return 0
        # What counters leave to several devices is looked at when it is the node's turn.
        return least_distance([Want(free, needed, draws=False)], Packing([free], states), offer)


def _suffices(room: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in amounts.items())

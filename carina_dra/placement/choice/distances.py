"""How close devices could be to each other on each node, kept while the cluster changes."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from carina_dra.allocator.errors import AllocationError
from carina_dra.placement.bounds.distance import least_distance
from carina_dra.placement.bounds.packing import Packing, Want
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import PoolState


class NodeDistances:
    """The nodes that might have a number of devices, before it is known which devices.

    Nodes with too few free devices are left out, unless a pool of theirs cannot be used.
    """

    def __init__(self, cluster: Cluster, devices: int, *, close: bool, wide: bool) -> None:
        """`close` says that devices close to each other are better; else all are at no distance.

        `wide` says that devices of wide pools are among those that are asked for. They are taken to
        be free, so that nothing here depends on their usage.
        """
        self._cluster = cluster
        self._devices = devices
        self._close = close and devices > 1
        self.wide = wide
        self._moment = -1
        self._by_name: dict[str, int] = {}
        self._shared: dict[str, PoolState] = {}
        """The only pools of nodes, if they have shared devices."""

    def nodes(self) -> AbstractSet[str]:
        """The nodes that might have the devices."""
        self._catch_up()
        return self._by_name.keys()

    def of(self, node: str) -> int | None:
        """How close the devices could be at best; None if the node cannot have them."""
        self._catch_up()
        return self._by_name.get(node)

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
        self._catch_up()
        state = self._shared.get(node)
        if state is None:
            return True
        return _suffices(state.room, amounts) and all(
            _suffices(state.room_within(attribute), of_all) for attribute, of_all in together
        )

    def _catch_up(self) -> None:
        changes = self._cluster.changed_nodes
        if self._moment == changes.now:
            return
        if changes.is_known_since(self._moment):
            changed: Collection[str] = list(changes.since(self._moment))
        else:
            changed = self._cluster.nodes.keys() | self._by_name.keys()
        self._moment = changes.now
        for name in changed:
            self._renew(name)

    def _renew(self, name: str) -> None:
        self._by_name.pop(name, None)
        self._shared.pop(name, None)
        if name not in self._cluster.nodes:
            return
        distance: int | None = 0
        if self._devices and (self._close or self._cluster.is_in_use(name)):
            try:
                offer = self._cluster.offer(name)
            except AllocationError:
                pass  # the node's allocations fail with this error
            else:
                states = [self._cluster.pool_state(offered) for offered in offer.ready]
                distance = self._distance(name, offer, states)
        if distance is not None:
            self._by_name[name] = distance

    def _distance(self, name: str, offer: Offer, states: Sequence[PoolState]) -> int | None:
        """How close devices are at best; None if there are too few."""
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

"""What queues and reasons need to know of the devices of a cluster."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.request import Alternative
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.node_offer import Offer
from carina_dra.placement.offer import OfferedPool
from carina_dra.placement.selector_budget import BudgetError
from carina_dra.placement.supply import Supply
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceClass
from controller.model.resource import CapacityOf, DevicesOf
from controller.state.asking import base_units, qualified
from controller.state.spare import Spare

_MANY: Final = 1_000_000
"""Stands for the shares of a device."""
_CARD: Final = 1_000_000


class Devices:
    """Counts devices and their capacities, and remembers them until the devices change."""

    def __init__(self, cluster: Cluster, classes: Mapping[str, DeviceClass]) -> None:
        self._cluster = cluster
        self._supply = Supply(cluster)
        self._spare = Spare(cluster)
        self.classes = classes
        """The device classes by name."""
        self.class_moment = 0
        """How often classes have changed."""

    def forget_classes(self) -> None:
        """Takes notice that the device classes have changed."""
        self.class_moment += 1

    def has_any(self, node: str) -> bool:
        """Whether a node offers devices."""
        offer = self._offer(node)
        return offer is not None and bool(offer.pools)

    def spare(self) -> int:
        """How many more devices claims could have at most, if others kept as many as they have."""
        return self._spare.devices()

    def most_free(self, node: str) -> int:
        """How many requests for a device could have one of a node at most."""
        free = 0
        for offered in self._ready(node):
            pool = self._cluster.pool_state(offered)
            usable = pool.free & offered.here
            free += _MANY if usable & offered.shareable else usable.bit_count()
        return free

    def free_cards(self, node: str) -> int:
        """What is free of the node's own devices, in millionths of a card."""
        return sum(
            _CARD - used
            for offered in self._ready(node)
            for group, used in self._cluster.pool_state(offered).uses
            if group.is_own
        )

    def _offer(self, node: str) -> Offer | None:
        """The pools of a node; None if nothing can be allocated there, since a slice is wrong."""
        try:
            return self._cluster.offer(node)
        except AllocationError:
            return None

    def _ready(self, node: str) -> Sequence[OfferedPool]:
        offer = self._offer(node)
        return () if offer is None else offer.ready

    def leave_out(self, nodes: Collection[str]) -> None:
        """Counts none of the devices of some nodes in what there is."""
        self._supply.leave_out(nodes)

    def total(self, resource: DevicesOf | CapacityOf) -> int:
        """How much of a resource there is at most at one time."""
        match resource:
            case DevicesOf(device_class=name):
                device_class = self.classes.get(name)
                return 0 if device_class is None else self._supply.devices(device_class)
            case CapacityOf(name=name):
                return base_units(self._supply.capacity(name))

    def least(self, wanted: Alternative, capacity: str) -> int:
        """The least of a capacity, in base units, that a request counts; 0 if it gets none."""
        try:
            least = self._supply.least(wanted, capacity)
        except BudgetError:
            return (
                0  # selectors of a tenant that cost too much count for nothing, and match nothing
            )
        return 0 if least is None else base_units(least)

    def capacities(self, device: DeviceId) -> dict[str, Quantity]:
        """The capacities of a published device by their qualified names."""
        found = self._cluster.published(device)
        if found is None:
            return {}
        return {
            qualified(device.driver, name): capacity.value
            for name, capacity in found.capacity.items()
        }

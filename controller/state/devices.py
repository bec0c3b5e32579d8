"""What queues and reasons need to know of the devices of a cluster."""

from collections.abc import Mapping
from typing import Final

from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceClass, DeviceSelector
from controller.model.resource import CapacityOf, DevicesOf
from controller.state.asking import qualified

_MANY: Final = 1_000_000
"""Stands for the shares of a device."""
_CARD: Final = 1_000_000


class Devices:
    """Counts devices and their capacities, and remembers them until the devices change."""

    def __init__(self, cluster: Cluster, classes: Mapping[str, DeviceClass]) -> None:
        self._cluster = cluster
        self.classes = classes
        """The device classes by name."""
        self.class_moment = 0
        """How often classes have changed."""

    def forget_classes(self) -> None:
        """Takes notice that the device classes have changed."""
        self.class_moment += 1

    def has_any(self, node: str) -> bool:
        """Whether a node offers devices."""
        return bool(self._cluster.offer(node).pools)

    def most_free(self, node: str) -> int:
        """How many requests for a device could have one of a node at most."""
        free = 0
        for offered in self._cluster.offer(node).ready:
            pool = self._cluster.pool_state(offered)
            usable = pool.free & offered.here
            free += _MANY if usable & offered.shareable else usable.bit_count()
        return free

    def free_cards(self, node: str) -> int:
        """What is free of the node's own devices, in millionths of a card."""
        return sum(
            _CARD - used
            for offered in self._cluster.offer(node).ready
            for group, used in self._cluster.pool_state(offered).uses
            if group.is_own
        )

    def total(self, resource: DevicesOf | CapacityOf) -> int:
        """How much of a resource there is at most at one time."""
        raise NotImplementedError(resource)

    def least(self, device_class: str, selectors: tuple[DeviceSelector, ...], capacity: str) -> int:
        """The least of a capacity, in base units, of the devices that are meant; 0 for none."""
        raise NotImplementedError(device_class, selectors, capacity)

    def capacities(self, device: DeviceId) -> dict[str, Quantity]:
        """The capacities of a published device by their qualified names."""
        found = self._cluster.published(device)
        if found is None:
            return {}
        return {
            qualified(device.driver, name): capacity.value
            for name, capacity in found.capacity.items()
        }

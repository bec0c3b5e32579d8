"""When the devices of slices are put into a new order: after claims change, at a bounded rate.

Until it is known what claims use, slices keep their order, since a plugin that restarts has yet to
read it. They also keep an order that another client wrote, until claims change: two plugins with
different policies do not revert each other's order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.resource import ResourceSlice
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.order import DeviceOrder, free_in_order
from kubelet_plugin.devices.room import DeviceUse
from kubelet_plugin.publish.arrangement import arranged
from kubelet_plugin.publish.pool import PublishedPool

DeviceUses: TypeAlias = tuple[DeviceUse, ...]


@dataclass(frozen=True, slots=True)
class WantedOrder:
    """How devices are to be ordered now."""

    uses: DeviceUses
    """What claims use. A slice with other devices than before is ordered by it in any case."""
    keep: bool
    """Whether slices keep the order that they have."""


class Ordering:
    """Decides when a new order is written. All times are seconds on one monotonic clock.

    The caller serializes the calls.
    """

    def __init__(self, order: DeviceOrder, *, seconds: float) -> None:
        """A new order is written no sooner than `seconds` after the last."""
        self.order = order
        self._seconds = seconds
        self._uses: DeviceUses | None = None
        self._is_ordered = True
        """Whether the slices were ordered after the last change of the uses."""
        self._not_before = -math.inf

    def use(self, uses: Iterable[DeviceUse]) -> None:
        """Sets what claims use."""
        uses = tuple(uses)
        if self.order is not DeviceOrder.NONE and uses != self._uses:
            # Also if they are again as when it was ordered: another plugin may have done so since.
            self._uses, self._is_ordered = uses, False

    @property
    def due(self) -> float:
        """The time from which a new order may be written; infinity if nothing has changed."""
        return math.inf if self._is_ordered else self._not_before

    def wanted(self, now: float) -> WantedOrder:
        """Returns how devices are to be ordered now."""
        return WantedOrder(self._uses or (), keep=now < self.due)

    def arrange(
        self,
        pool: PublishedPool,
        devices: Sequence[GpuDevice],
        existing: Iterable[ResourceSlice],
        wanted: WantedOrder,
    ) -> PublishedPool:
        """Returns the pool of these devices in the wanted order."""
        if self.order is DeviceOrder.NONE:
            return pool
        first = free_in_order(devices, wanted.uses, self.order)
        return arranged(pool, first, existing, keep=wanted.keep)

    def published(self, wanted: WantedOrder, now: float, *, written: bool) -> None:
        """Notes that the slices are ordered as wanted, and whether they had to be written."""
        if wanted.keep:
            return
        self._is_ordered = wanted.uses == (self._uses or ())
        if written:
            self._not_before = now + self._seconds

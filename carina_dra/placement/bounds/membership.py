"""Whether a class selects a device, for one device after the other.

Of the devices that agree in all that the selectors of the class read, only one is evaluated. To
tell which devices of `published` are of a class takes 3 times as long without that.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from carina_dra.allocator.request import selectors_of
from carina_dra.cel import CelDevice
from carina_dra.placement.bounds.supply import selects
from carina_dra.placement.bounds.tally import DeviceSelection
from carina_dra.placement.cluster.pool_kind import unplain
from carina_dra.resource import Device, DeviceClass, lookup

_ANSWERS: Final = 1_024
"""The number of answers that are kept, by what is read of devices."""


class Membership:
    """The devices of a class."""

    def __init__(self, device_class: DeviceClass) -> None:
        self._selectors = selectors_of(device_class)
        self._reads = DeviceSelection(self._selectors).reads
        self._answers: dict[Hashable, bool] = {}

    def has(self, device: Device, driver: str) -> bool:
        """Whether the class selects a device that the driver has published."""
        if self._reads is None:
            return self._selects(device, driver)
        key = _read(device, driver, self._reads)
        known = self._answers.get(key)
        if known is None:
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            known = self._answers[key] = self._selects(device, driver)
        return known

    def _selects(self, device: Device, driver: str) -> bool:
        return selects(self._selectors, CelDevice.of(driver, device))


def _read(device: Device, driver: str, attributes: Iterable[str]) -> Hashable:
    """All that selectors see of a device which read these attributes."""
    return (
        driver,
        device.allow_multiple_allocations,
        tuple([(name, capacity.value.nanos) for name, capacity in device.capacity.items()]),
        tuple(unplain(device)),
        tuple([lookup(device.attributes, name, driver) for name in attributes]),
    )

"""Which devices are in use, and how much of those that are shared by capacity."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from carina_dra.resource import DeviceResult

K = TypeVar("K")


class PoolId(NamedTuple):
    """A pool of a driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device of a pool."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


Amounts: TypeAlias = Mapping[str, int]
"""How much of each capacity or counter, in billionths, as quantities count."""


@dataclass(frozen=True, slots=True)
class Share:
    """What all shares of a device have together."""

    count: int
    amounts: Amounts
    """Of its capacities."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What allocations have of the devices. Admin access has nothing (KEP-5018)."""

    dedicated: Mapping[DeviceId, int] = field(default_factory=dict)
    """Devices that a request has for itself; several requests where allocators clashed."""
    shared: Mapping[DeviceId, Share] = field(default_factory=dict)
    """Devices of which there are shares."""

    def __contains__(self, device: DeviceId) -> bool:
        """Whether anybody has the device or a share of it."""
        return device in self.dedicated or device in self.shared

    @classmethod
    def of(cls, results: Iterable[DeviceResult]) -> "Usage":
        """What the results of allocations have."""
        return Usage().plus(results)

    def plus(self, results: Iterable[DeviceResult]) -> "Usage":
        """With these results, too."""
        return self._changed(results, 1)

    def minus(self, results: Iterable[DeviceResult]) -> "Usage":
        """Without these results: undoes `plus` exactly."""
        return self._changed(results, -1)

    def _changed(self, results: Iterable[DeviceResult], sign: int) -> "Usage":
        dedicated, shared = dict(self.dedicated), dict(self.shared)
        for result in results:
            if result.admin_access:
                continue
            device = DeviceId(result.driver, result.pool, result.device)
            if result.share_id is None:
                _put(dedicated, device, dedicated.get(device, 0) + sign)
                continue
            before = shared.get(device, Share(0, {}))
            amounts = dict(before.amounts)
            for name, quantity in result.consumed_capacity.items():
                _put(amounts, name, amounts.get(name, 0) + sign * quantity.nanos)
            if before.count + sign:
                shared[device] = Share(before.count + sign, amounts)
            else:
                del shared[device]
        return Usage(dedicated, shared)


def _put(numbers: dict[K, int], key: K, number: int) -> None:
    if number:
        numbers[key] = number
    else:
        numbers.pop(key, None)

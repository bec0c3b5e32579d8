"""The devices in use, and the consumed capacity of shared devices."""

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


DeviceAmounts: TypeAlias = Mapping[str, int]
"""Amounts of capacities or counters in billionths, as in `Quantity.nanos`."""


@dataclass(frozen=True, slots=True)
class SharedUse:
    """All shares of a device together."""

    count: int
    amounts: DeviceAmounts
    """The consumed capacities."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The devices that allocations use. Admin access uses nothing (KEP-5018)."""

    dedicated: Mapping[DeviceId, int] = field(default_factory=dict)
    """The number of requests that have the whole device: above 1 if allocators conflicted."""
    shared: Mapping[DeviceId, SharedUse] = field(default_factory=dict)
    """The devices with shares."""

    def __contains__(self, device: DeviceId) -> bool:
        """Whether the device or a share of it is in use."""
        return device in self.dedicated or device in self.shared

    @classmethod
    def of(cls, results: Iterable[DeviceResult]) -> "Usage":
        """The usage of these allocation results."""
        return Usage().plus(results)

    def plus(self, results: Iterable[DeviceResult]) -> "Usage":
        """The usage with these results added."""
        return self._changed(results, 1)

    def minus(self, results: Iterable[DeviceResult]) -> "Usage":
        """The usage without these results; the exact inverse of `plus`."""
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
            before = shared.get(device, SharedUse(0, {}))
            amounts = dict(before.amounts)
            for name, quantity in result.consumed_capacity.items():
                _put(amounts, name, amounts.get(name, 0) + sign * quantity.nanos)
            if before.count + sign:
                shared[device] = SharedUse(before.count + sign, amounts)
            else:
                del shared[device]
        return Usage(dedicated, shared)


def _put(numbers: dict[K, int], key: K, number: int) -> None:
    if number:
        numbers[key] = number
    else:
        numbers.pop(key, None)

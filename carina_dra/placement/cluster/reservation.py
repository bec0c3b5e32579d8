"""Devices that are kept for some claims until these have them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from carina_dra.allocator.group import CounterKey
from carina_dra.allocator.usage import DeviceId, PoolId
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceResult


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices that only some claims may use."""

    devices: tuple[DeviceResult, ...]
    """As in an allocation: a share has a share ID and consumed capacities."""
    claims: frozenset[str]
    """The claims (`namespace/name`) that may use them."""


def held(
    reservation: Reservation,
    in_use: Iterable[DeviceResult],
    consumed: Callable[[DeviceId], Mapping[CounterKey, int]],
) -> tuple[DeviceResult, ...]:
    """What a reservation still holds, while its claims use the devices `in_use`.

    A device is given up when its claims use it. For another that they use instead, as many devices
    are given up as consumed the same counters. Of a shared device, what they consume is given up.
    `consumed` is what a device consumes of the counters of its pool.
    """
    used = [result for result in in_use if not result.admin_access]
    return tuple(_held(reservation.devices, used, consumed))


def _held(
    devices: Sequence[DeviceResult],
    used: Sequence[DeviceResult],
    consumed: Callable[[DeviceId], Mapping[CounterKey, int]],
) -> Iterator[DeviceResult]:
    reserved = set(map(_id, devices))
    users: dict[DeviceId, list[DeviceResult]] = {}
    owed: dict[tuple[PoolId, CounterKey], int] = {}
    for result in used:
        users.setdefault(_id(result), []).append(result)
    for user in users.keys() - reserved:
        for counter, amount in consumed(user).items():
            key = PoolId(user.driver, user.pool), counter
            owed[key] = owed.get(key, 0) + amount
    given_up: dict[DeviceId, bool] = {}
    shares = {device: _Shares(of_device) for device, of_device in users.items()}
    for device in devices:
        name = _id(device)
        if name in users:
            left = shares[name].left_of(device)
            if left is not None:
                yield left
            continue
        if name not in given_up:
            given_up[name] = _pays(name, owed, consumed)
        if not given_up[name]:
            yield device


def _pays(
    device: DeviceId,
    owed: dict[tuple[PoolId, CounterKey], int],
    consumed: Callable[[DeviceId], Mapping[CounterKey, int]],
) -> bool:
    """Whether a device is given up for what is owed; what it consumed is then not owed any more."""
    pool = PoolId(device.driver, device.pool)
    amounts = {(pool, counter): amount for counter, amount in consumed(device).items()}
    if not any(amount and owed.get(key, 0) > 0 for key, amount in amounts.items()):
        return False
    for key, amount in amounts.items():
        owed[key] = owed.get(key, 0) - amount
    return True


class _Shares:
    """What the claims have of a device, and have not yet been given up shares for."""

    def __init__(self, users: Sequence[DeviceResult]) -> None:
        self._is_whole = any(user.share_id is None for user in users)
        self._count = len(users)
        self._amounts: dict[str, int] = {}
        for user in users:
            for name, amount in user.consumed_capacity.items():
                self._amounts[name] = self._amounts.get(name, 0) + amount.nanos

    def left_of(self, reserved: DeviceResult) -> DeviceResult | None:
        """What is left of a device that is reserved, or of a share of it; None for nothing."""
        if self._is_whole or reserved.share_id is None:
            return None
        if not any(amount.nanos for amount in reserved.consumed_capacity.values()):
            self._count -= 1
            return reserved if self._count < 0 else None
        left = {}
        for name, amount in reserved.consumed_capacity.items():
            taken = min(amount.nanos, self._amounts.get(name, 0))
            self._amounts[name] = self._amounts.get(name, 0) - taken
            left[name] = Quantity(amount.nanos - taken, amount.format)
        if not any(amount.nanos for amount in left.values()):
            return None
        return replace(reserved, consumed_capacity=left)


def _id(result: DeviceResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)

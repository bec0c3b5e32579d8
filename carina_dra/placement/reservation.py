"""Devices that are kept for some claims until these have them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from carina_dra.allocator.usage import DeviceId
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
    counter_sets: Callable[[DeviceId], Collection[str]],
) -> tuple[DeviceResult, ...]:
    """What a reservation still holds, while its claims use the devices `in_use`.

    A device is given up for one that its claims use with the same counter sets. Of a shared device,
    what they consume is given up.
    """
    used = [result for result in in_use if not result.admin_access]
    return tuple(_held(reservation.devices, used, counter_sets))


def _held(
    devices: Iterable[DeviceResult],
    used: Sequence[DeviceResult],
    counter_sets: Callable[[DeviceId], Collection[str]],
) -> Iterator[DeviceResult]:
    users: dict[DeviceId, list[DeviceResult]] = {}
    drawn: set[tuple[str, str, str]] = set()
    for result in used:
        users.setdefault(_id(result), []).append(result)
        for name in counter_sets(_id(result)):
            drawn.add((result.driver, result.pool, name))
    for device in devices:
        of_device = users.get(_id(device), [])
        if device.share_id is not None and of_device:
            left = _left(device, of_device)
            if left is not None:
                yield left
        elif not of_device and not any(
            (device.driver, device.pool, name) in drawn for name in counter_sets(_id(device))
        ):
            yield device


def _left(share: DeviceResult, users: Iterable[DeviceResult]) -> DeviceResult | None:
    """What is left of a share that is kept; None for nothing."""
    amounts = {name: amount.nanos for name, amount in share.consumed_capacity.items()}
    for user in users:
        if user.share_id is None:
            return None
        for name, amount in user.consumed_capacity.items():
            amounts[name] = max(0, amounts.get(name, 0) - amount.nanos)
    if not any(amounts.values()):
        return None
    return replace(
        share,
        consumed_capacity={
            name: Quantity(amounts[name], amount.format)
            for name, amount in share.consumed_capacity.items()
        },
    )


def _id(result: DeviceResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)

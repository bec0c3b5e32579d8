"""How much of the devices of a pool can be in use at once, if nothing else is in use.

Devices that draw from the same counters exclude each other: a GPU, its shares and its partitions.
The devices are taken one after another as long as the counters suffice. The result is a lower bound
of what is possible. It is exact if the devices of a counter set draw alike, or if the first one
leaves nothing to others, as a whole GPU does. It says what quotas and fair shares divide; no node
is left out for it.
"""

from collections.abc import Callable, Iterable
from typing import Final

from carina_dra.allocator.features import Features
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.usage import Usage
from carina_dra.resource import DeviceCapacity, ValidRange, ValidValues, lookup

_PRECISION: Final = 1_000_000


def most_claims(devices: Iterable[Candidate], pool: ReadyPool, *, features: Features) -> int:
    """How many claims can have one of the devices each, or the smallest share of one.

    The devices that draw least for a claim are taken first.
    """
    claims = {device: _smallest_shares(device, features) for device in devices}

    def drawn_for_a_claim(device: Candidate) -> int:
        return _drawn(device, pool) // claims[device]

    return _most(claims, pool, features, drawn_for_a_claim)


def most_capacity(
    devices: Iterable[Candidate], pool: ReadyPool, *, capacity: str, features: Features
) -> int:
    """The sum of a capacity, in billionths, of devices that can be in use at once.

    The capacity is given by its qualified name. The devices with the most of it are taken first.
    """
    amounts = {device: amount_of(device, capacity) for device in devices}
    having = {device: amount for device, amount in amounts.items() if amount}
    return most_of(having, pool, features)


def most_of(gains: dict[Candidate, int], pool: ReadyPool, features: Features) -> int:
    """The sum of the gains of devices that can be in use at once; those of most gain first."""
    return _most(gains, pool, features, lambda device: -gains[device])


def amount_of(device: Candidate, capacity: str) -> int:
    """What a device has of a capacity, by its qualified name, in billionths; 0 if it lacks it."""
    found = lookup(device.device.capacity, capacity, device.id.driver)
    return 0 if found is None else max(0, found.value.nanos)


def _most(
    gains: dict[Candidate, int],
    pool: ReadyPool,
    features: Features,
    order: Callable[[Candidate], int],
) -> int:
    """The sum of the gains of devices, taken in order while the counters suffice."""
    most, drawing = 0, []
    for device, gain in gains.items():
        if not device.device.consumes_counters:
            most += gain
        elif features.partitionable_devices:
            drawing.append(device)
    if not drawing:
        return most
    ledger = Ledger([pool], Usage(), features)
    for device in sorted(drawing, key=order):
        if ledger.draw(device) is not None:
            most += gains[device]
    return most


def _drawn(device: Candidate, pool: ReadyPool) -> int:
    """The parts of its counters that a device draws, together, in millionths."""
    return sum(
        counter.value.nanos * _PRECISION // total
        for consumption in device.device.consumes_counters
        for name, counter in consumption.counters.items()
        if (total := pool.counters.get(consumption.counter_set, {}).get(name, 0)) > 0
    )


def _smallest_shares(device: Candidate, features: Features) -> int:
    """How many of the smallest shares a device has; 1 if it is not shared, or nothing bounds it."""
    if not (features.consumable_capacity and device.device.allow_multiple_allocations):
        return 1
    shares = [
        of.value.nanos // least
        for of in device.device.capacity.values()
        if (least := _smallest_share(of)) > 0
    ]
    return max(1, min(shares, default=1))


def _smallest_share(capacity: DeviceCapacity) -> int:
    """The smallest amount of a capacity that a claim can have, in billionths.

    Without a policy it is taken to be the whole capacity.
    """
    policy = capacity.request_policy
    match policy.valid if policy else None:
        case ValidRange(range=valid):
            return valid.min.nanos
        case ValidValues(values=values) if values:
            return min(values).nanos
        case _:
            default = policy.default if policy else None
            return (capacity.value if default is None else default).nanos

"""Groups of devices that consume the same counters.

A GPU and its partitions are a group: each leaves less to the others. A device that consumes no
counters is a group of its own.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.usage import Amounts, DeviceId, Usage
from carina_dra.resource import Device, DeviceAttribute, lookup

WHOLE: Final = 1_000_000
"""All of a device. Usage is in millionths: integers compare equal where fractions would not."""


NVLINK_DOMAIN: Final = "gpu.carina.dev/nvlinkDomain"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

Counter: TypeAlias = tuple[str, str]
"""A counter set and a counter in it."""

Places: TypeAlias = tuple[tuple[str, DeviceAttribute | None], ...]
"""Where a device is, by attribute."""


@dataclass(eq=False)
class DeviceGroup:
    """Devices of a pool that consume the same counters, or one that consumes none."""

    members: tuple[Candidate, ...]
    """In the order of the pool."""
    elsewhere: tuple[Candidate, ...]
    """Devices in slices of other nodes that consume the same counters."""
    totals: Mapping[str, Amounts]
    """The total of each counter, by counter set."""
    _blocked: tuple[Sequence[DeviceId], Mapping[DeviceId, int]] | None = field(
        default=None, init=False, repr=False
    )
    """The last answer of `blocked`, with the devices that were in use."""

    def used(self, usage: Usage) -> int:
        """The usage of the scarcest counter or capacity, in millionths."""
        parts = []
        if self.totals:
            left = self.left(usage)
            parts = [_part(total - left[key], total) for key, total in self._total.items()]
        for member in self.members:
            if member.id in usage.dedicated:
                parts.append(0 if member.device.consumes_counters else WHOLE)
            share = usage.shared.get(member.id)
            for name, amount in share.amounts.items() if share else ():
                capacity = member.device.capacity.get(name)
                if capacity is not None:
                    parts.append(_part(amount, capacity.value.nanos))
        return max(parts, default=0)

    def free(self, usage: Usage) -> Iterator[Candidate]:
        """The members that nobody has for themselves, and whose counters are left.

        The first share of a device takes the counters for all shares.
        """
        left = self.left(usage)
        for member, drawn in self.draws:
            if member.id not in usage.dedicated and (
                member.id in usage.shared or _fits(drawn, left)
            ):
                yield member

    def blocked(self, usage: Usage) -> Mapping[DeviceId, int]:
        """For each free member, how many other free members its use would block.

        Takes time by the number of members and of the counters that each consumes; no time for the
        same devices in use as before.
        """
        in_use = tuple(device.id for device in self._devices if device.id in usage)
        if self._blocked is None or self._blocked[0] != in_use:
            self._blocked = in_use, self._count_blocked(usage)
        return self._blocked[1]

    def _count_blocked(self, usage: Usage) -> Mapping[DeviceId, int]:
        left = self.left(usage)
        free = [
            (member, drawn)
            for member, drawn in self.draws
            if member.id not in usage.dedicated and _fits(drawn, left)
        ]
        thirsty = _by_amount(drawn for _, drawn in free)
        return {
            member.id: _blocking(drawn, left, thirsty, 1 << index)
            for index, (member, drawn) in enumerate(free)
        }

    @cached_property
    def _devices(self) -> Sequence[Candidate]:
        return (*self.members, *self.elsewhere)

    @cached_property
    def places(self) -> Sequence[Places]:
        """The NVLink domain, PCIe root and NUMA node of each member."""
        return [
            tuple(
                (name, lookup(member.device.attributes, name, member.id.driver))
                for name in (NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE)
            )
            for member in self.members
        ]

    @cached_property
    def _total(self) -> Mapping[Counter, int]:
        return {
            (name, counter): total
            for name, amounts in self.totals.items()
            for counter, total in amounts.items()
        }

    @cached_property
    def draws(self) -> Sequence[tuple[Candidate, Mapping[Counter, int]]]:
        """The members with what each consumes of the group's counters."""
        return [(member, self._drawn(member)) for member in self.members]

    def _drawn(self, device: Candidate) -> Mapping[Counter, int]:
        """What a device consumes of the group's counters; it may consume others, elsewhere."""
        drawn: dict[Counter, int] = {}
        for consumption in device.device.consumes_counters:
            for name, counter in consumption.counters.items():
                key = consumption.counter_set, name
                if key in self._total:
                    drawn[key] = drawn.get(key, 0) + counter.value.nanos
        return drawn

    def left(self, usage: Usage) -> Mapping[Counter, int]:
        """What the devices in use leave of each counter; less than nothing if overdrawn."""
        if not self.totals or not (usage.dedicated or usage.shared):
            return self._total
        left = dict(self._total)
        for device in self._devices:
            if device.id in usage.dedicated or device.id in usage.shared:
                for key, amount in self._drawn(device).items():
                    left[key] -= amount
        return left


Uses: TypeAlias = Sequence[tuple[DeviceGroup, int]]
"""Groups with their usage in millionths."""


def in_use(pools: Iterable[ReadyPool], usage: Usage) -> Uses:
    """The groups of the pools with their usage."""
    return tuple((group, group.used(usage)) for pool in pools for group in groups(pool))


def groups(pool: ReadyPool) -> tuple[DeviceGroup, ...]:
    """The groups of a pool's devices, in the order of their first devices."""
    if not pool.counters:
        return tuple(DeviceGroup((device,), (), {}) for device in pool.devices)
    drawn = {
        candidate.id: _counter_sets(candidate, pool)
        for candidate in (*pool.devices, *pool.elsewhere)
    }
    leader: dict[str, str] = {}

    def leading(counter_set: str) -> str:
        while leader.setdefault(counter_set, counter_set) != counter_set:
            counter_set = leader[counter_set]
        return counter_set

    for names in drawn.values():
        for name in names[1:]:
            leader[leading(name)] = leading(names[0])
    together: dict[str | DeviceId, list[Candidate]] = {}
    for candidate in pool.devices:
        names = drawn[candidate.id]
        key = leading(names[0]) if names else candidate.id
        together.setdefault(key, []).append(candidate)
    return tuple(_group(members, pool, drawn) for members in together.values())


def _group(
    members: Sequence[Candidate], pool: ReadyPool, drawn: Mapping[DeviceId, Sequence[str]]
) -> DeviceGroup:
    names = {name for member in members for name in drawn[member.id]}
    return DeviceGroup(
        members=tuple(members),
        elsewhere=tuple(
            candidate for candidate in pool.elsewhere if not names.isdisjoint(drawn[candidate.id])
        ),
        totals={name: pool.counters[name] for name in sorted(names)},
    )


def _counter_sets(candidate: Candidate, pool: ReadyPool) -> list[str]:
    """The counter sets that the device consumes; none if the feature of counters is disabled."""
    consumed = (consumption.counter_set for consumption in candidate.device.consumes_counters)
    return [name for name in consumed if name in pool.counters]


def _fits(drawn: Mapping[Counter, int], left: Mapping[Counter, int]) -> bool:
    return all(amount <= left[key] for key, amount in drawn.items())


_Thirsty: TypeAlias = Mapping[Counter, tuple[Sequence[int], Sequence[int]]]
"""By counter: the amounts consumed, ascending, and for each the devices that consume it or more.

Devices are the bits of a number. A last entry without devices follows.
"""


def _by_amount(drawn_by_device: Iterable[Mapping[Counter, int]]) -> _Thirsty:
    devices: dict[Counter, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for index, drawn in enumerate(drawn_by_device):
        for key, amount in drawn.items():
            devices[key][amount] |= 1 << index
    thirsty = {}
    for key, by_amount in devices.items():
        amounts = sorted(by_amount)
        at_least = [0]
        for amount in reversed(amounts):
            at_least.append(at_least[-1] | by_amount[amount])
        thirsty[key] = amounts, at_least[::-1]
    return thirsty


def _blocking(
    drawn: Mapping[Counter, int], left: Mapping[Counter, int], thirsty: _Thirsty, itself: int
) -> int:
    """The number of devices that no longer fit beside one that consumes `drawn`."""
    blocked = 0
    for key, amount in drawn.items():
        amounts, at_least = thirsty[key]
        blocked |= at_least[bisect_right(amounts, left[key] - amount)]
    return (blocked & ~itself).bit_count()


def _part(amount: int, total: int) -> int:
    return WHOLE if total <= 0 else min(WHOLE, amount * WHOLE // total)


def content(candidate: Candidate, counter_sets: Sequence[str]) -> Hashable:
    """Everything that may matter of a device, except its name and attributes.

    Counter sets are compared by their index in `counter_sets`, not by name.
    """
    device = candidate.device
    return (
        candidate.id.driver,
        candidate.here,
        frozenset(device.capacity.items()),
        device.allow_multiple_allocations,
        frozenset((taint.key, taint.value, taint.effect) for taint in device.taints),
        bool(device.binding_conditions),
        candidate.slice.skip_node_operations,
        _consumed(device, counter_sets),
    )


def _consumed(device: Device, counter_sets: Sequence[str]) -> Hashable:
    return tuple(
        (
            counter_sets.index(consumption.counter_set)
            if consumption.counter_set in counter_sets
            else None,
            frozenset(
                (name, counter.value.nanos) for name, counter in consumption.counters.items()
            ),
            frozenset(consumption.compatibility_groups),
        )
        for consumption in device.consumes_counters
    )

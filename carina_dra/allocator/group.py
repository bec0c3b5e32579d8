"""Groups of devices that consume the same counters.

A GPU and its partitions are a group: each leaves less to the others. A device that consumes no
counters is a group of its own.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.usage import Amounts, DeviceId, Usage
from carina_dra.resource import Device

WHOLE: Final = 1_000_000
"""All of a device. Usage is in millionths: integers compare equal where fractions would not."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceGroup:
    """Devices of a pool that consume the same counters, or one that consumes none."""

    members: tuple[Candidate, ...]
    """In the order of the pool."""
    elsewhere: tuple[Candidate, ...]
    """Devices in slices of other nodes that consume the same counters."""
    totals: Mapping[str, Amounts]
    """The total of each counter, by counter set."""

    def used(self, usage: Usage) -> int:
        """The usage of the scarcest counter or capacity, in millionths."""
        left = _left(self, usage) if self.totals else {}
        parts = [
            _part(total - left[name][counter], total)
            for name, amounts in self.totals.items()
            for counter, total in amounts.items()
        ]
        for member in self.members:
            if member.id in usage.dedicated:
                parts.append(0 if member.device.consumes_counters else WHOLE)
            share = usage.shared.get(member.id)
            for name, amount in share.amounts.items() if share else ():
                capacity = member.device.capacity.get(name)
                if capacity is not None:
                    parts.append(_part(amount, capacity.value.nanos))
        return max(parts, default=0)

    def is_irregular(self, usage: Usage) -> bool:
        """Whether its state depends on more than its members.

        This is so if devices of other nodes use its counters, or if its counters are overdrawn.
        """
        if not self.totals:
            return False
        left = _left(self, usage)
        return any(candidate.id in usage for candidate in self.elsewhere) or any(
            amount < 0 for amounts in left.values() for amount in amounts.values()
        )

    def blocked(self, usage: Usage) -> Mapping[DeviceId, int]:
        """For each free member, how many other free members its use would block."""
        left = _left(self, usage)
        free = [
            member
            for member in self.members
            if member.id not in usage.dedicated and _fit(left, [member])
        ]
        return {
            member.id: sum(not _fit(left, [member, other]) for other in free if other is not member)
            for member in free
        }


Uses: TypeAlias = Sequence[tuple[DeviceGroup, int]]
"""Groups with their usage in millionths."""


def in_use(pools: Iterable[ReadyPool], usage: Usage) -> Uses:
    """The groups of the pools with their usage."""
    return tuple((group, group.used(usage)) for pool in pools for group in groups(pool))


def groups(pool: ReadyPool) -> tuple[DeviceGroup, ...]:
    """The groups of a pool's devices, in the order of their first devices."""
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


def _left(group: DeviceGroup, usage: Usage) -> dict[str, dict[str, int]]:
    left = {name: dict(amounts) for name, amounts in group.totals.items()}
    for member in (*group.members, *group.elsewhere) if left else ():
        if member.id in usage:
            for consumption in member.device.consumes_counters:
                for name, counter in consumption.counters.items():
                    left[consumption.counter_set][name] -= counter.value.nanos
    return left


def _fit(left: Mapping[str, Amounts], members: Iterable[Candidate]) -> bool:
    drawn: dict[tuple[str, str], int] = {}
    for member in members:
        for consumption in member.device.consumes_counters:
            for name, counter in consumption.counters.items():
                key = consumption.counter_set, name
                drawn[key] = drawn.get(key, 0) + counter.value.nanos
    return all(amount <= left[name][counter] for (name, counter), amount in drawn.items())


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

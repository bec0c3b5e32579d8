"""Groups of devices that consume the same counters.

A GPU and its partitions are a group: each leaves less to the others. A device that consumes no
counters is a group of its own.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.usage import DeviceAmounts, DeviceId, Usage
from carina_dra.resource import Device, OnNode, StringAttribute, lookup

WHOLE: Final = 1_000_000
"""All of a device. Usage is in millionths: integers compare equal where fractions would not."""


NVLINK_DOMAIN: Final = "gpu.carina.dev/nvlinkDomain"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

_DIGITS: Final = re.compile("[0-9]+")
_MONITOR: Final = StringAttribute("monitor")
"""The `type` of a device that gives no part of a GPU."""

Location: TypeAlias = tuple[str, ...]
"""Where a device is: for each attribute a text, equal for equal values."""


CounterKey: TypeAlias = tuple[str, str]
"""A counter set and a counter in it."""

CounterDraws: TypeAlias = tuple[tuple[int, int], ...]
"""What is consumed of the counters of a group: the index of each, and the amount in billionths."""


class GroupState(NamedTuple):
    """Devices that consume the same counters, at a moment."""

    used: int
    """The usage of the scarcest counter or capacity, in millionths.

    Counters of a set whose names differ in digits only count together, such as the memory slices of
    a GPU. Of the counters of a device that is shared, as large a part is used as of its capacities:
    the rest is left to other shares.
    """
    free: int
    """The members that nobody has for themselves, and whose counters are left, by their bits.

    The first share of a device takes the counters for all shares.
    """


class _Named(NamedTuple):
    """The devices of a name. Each slice of a pool over several nodes may have one."""

    member: Candidate | None
    bit: int
    drawn: CounterDraws
    """What they consume together."""


class _Taken(NamedTuple):
    """The devices of a group that are in use."""

    dedicated: Collection[DeviceId]
    shared: Collection[DeviceId]


@dataclass(eq=False)
class DeviceGroup:
    """Devices of a pool that consume the same counters, or one that consumes none."""

    members: tuple[Candidate, ...]
    """In the order of the pool."""
    bits: tuple[int, ...]
    """Of each member: its bit among the devices of the pool."""
    elsewhere: tuple[Candidate, ...]
    """Devices in slices of other nodes that consume the same counters."""
    totals: Mapping[str, DeviceAmounts]
    """The total of each counter, by counter set."""
    _blocked: tuple[_Taken, dict[int, int]] | None = field(default=None, init=False, repr=False)
    """The answers of `blocked` for the devices that were in use."""

    @cached_property
    def mask(self) -> int:
        """The bits of the members."""
        return sum(self.bits)

    @cached_property
    def is_own(self) -> bool:
        """Whether the devices are those of one node, and say something of its usage."""
        return is_own(self.members[0])

    def state(self, usage: Usage) -> GroupState:
        """The state with this usage, in time by the counters and the members in use."""
        if not self.totals:
            return alone(self.members[0], self.mask, usage)
        taken = self._taken(usage)
        left = self._left(taken)
        unused = self._unused(taken, usage)
        parts = [
            _part(total - sum(left[counter] + unused[counter] for counter in alike), total)
            for alike, total in self._alike
        ]
        for device in {*taken.dedicated, *taken.shared}:
            parts += _parts(self._named[device].member, usage)
        most = [rest + given for rest, given in zip(left, self._given, strict=True)]
        free = self._fitting(most) | self._bits_of(taken.shared)
        return GroupState(max(parts, default=0), free & ~self._bits_of(taken.dedicated))

    def left(self, usage: Usage) -> Sequence[int]:
        """What the devices in use leave of each counter; less than nothing if overdrawn."""
        return self._left(self._taken(usage))

    def paid(self, usage: Usage) -> int:
        """The members that are shared: the first share has taken what others need, too."""
        return self._bits_of(self._taken(usage).shared)

    def blocked(self, usage: Usage, among: int) -> Mapping[int, int]:
        """The other free members that the use of each free member would block, by its bit.

        Looks at the members `among` the devices of the pool, in time by the counters that each
        consumes; it takes no time for the same devices in use as before.
        """
        taken = self._taken(usage)
        if self._blocked is None or self._blocked[0] != taken:
            self._blocked = taken, {}
        known = self._blocked[1]
        unknown = [bit for bit in bits_of(among & self.mask) if bit not in known]
        if unknown:
            left = self._left(taken)
            free = self._fitting(left) & ~self._bits_of(taken.dedicated)
            for bit in unknown:
                known[bit] = self._beyond(left, bit, free) if bit & free else 0
        return known

    @cached_property
    def partial(self) -> int:
        """The members that leave something to others, if nothing else is in use.

        It is a share of the member, or another member.
        """
        if not self.totals:
            return self.mask if self.members[0].device.allow_multiple_allocations else 0
        free, partial = self._fitting(self._total), 0
        for member, bit in zip(self.members, self.bits, strict=True):
            beside = free & ~bit
            if member.device.allow_multiple_allocations or (
                bit & free and beside & ~self._beyond(self._total, bit, free)
            ):
                partial |= bit
        return partial

    @cached_property
    def places(self) -> Mapping[int, Location]:
        """The NVLink domain, PCIe root and NUMA node of each member, by its bit."""
        return {
            bit: tuple(
                f"{name}={lookup(member.device.attributes, name, member.id.driver)!r}"
                for name in (NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE)
            )
            for member, bit in zip(self.members, self.bits, strict=True)
        }

    def _taken(self, usage: Usage) -> _Taken:
        devices = self._named.keys()
        return _Taken(devices & usage.dedicated.keys(), devices & usage.shared.keys())

    def _bits_of(self, devices: Iterable[DeviceId]) -> int:
        return sum(self._named[device].bit for device in devices)

    def _left(self, taken: _Taken) -> Sequence[int]:
        """What the devices in use leave of each counter."""
        left = list(self._total)
        for device in {*taken.dedicated, *taken.shared}:
            for counter, amount in self._named[device].drawn:
                left[counter] -= amount
        return left

    def _unused(self, taken: _Taken, usage: Usage) -> Sequence[int]:
        """What shared devices have drawn of each counter for shares that nobody has yet."""
        unused = [0] * len(self._total)
        for device in taken.shared:
            named = self._named[device]
            if device in taken.dedicated or named.member is None:
                continue
            consumed = max(_parts(named.member, usage), default=0)
            idle = 0 if not named.member.device.capacity else WHOLE - max(1, consumed)
            for counter, amount in named.drawn:
                unused[counter] += amount * idle // WHOLE
        return unused

    def _fitting(self, left: Sequence[int]) -> int:
        """The members that consume no more than is left."""
        too_large = 0
        for rest, (amounts, at_least) in zip(left, self._thirsty, strict=True):
            too_large |= at_least[bisect_right(amounts, rest)]
        return self.mask & ~too_large

    def _beyond(self, left: Sequence[int], member: int, free: int) -> int:
        """The free members that no longer fit beside this one."""
        blocked = 0
        for counter, amount in self.drawn[member]:
            amounts, at_least = self._thirsty[counter]
            blocked |= at_least[bisect_right(amounts, left[counter] - amount)]
        return blocked & free & ~member

    @cached_property
    def _total(self) -> Sequence[int]:
        return [total for amounts in self.totals.values() for total in amounts.values()]

    @cached_property
    def _alike(self) -> Sequence[tuple[Sequence[int], int]]:
        """The counters that count together, by their indices, with their total."""
        alike: dict[CounterKey, list[int]] = {}
        for index, (name, counter) in enumerate(self.counters):
            alike.setdefault((name, _DIGITS.sub("", counter)), []).append(index)
        return [(of, sum(self._total[index] for index in of)) for of in alike.values()]

    @cached_property
    def counters(self) -> Sequence[CounterKey]:
        """The counters, in the order of their indices."""
        return [(name, counter) for name, of in self.totals.items() for counter in of]

    @cached_property
    def drawn(self) -> Mapping[int, CounterDraws]:
        """What each member consumes, by its bit; it may consume counters of other groups."""
        index = self._index()
        members = zip(self.members, self.bits, strict=True)
        return {bit: _drawn(member, index) for member, bit in members}

    @cached_property
    def _given(self) -> Sequence[int]:
        """By counter: what members leave to others beyond its total, by negative amounts.

        The API does not forbid them.
        """
        given = [0] * len(self._total)
        for drawn in self.drawn.values():
            for counter, amount in drawn:
                given[counter] -= min(0, amount)
        return given

    @cached_property
    def _named(self) -> Mapping[DeviceId, _Named]:
        members = zip(self.members, self.bits, strict=True)
        named = {member.id: _Named(member, bit, self.drawn[bit]) for member, bit in members}
        index = self._index() if self.elsewhere else {}
        for device in self.elsewhere:
            same = named.get(device.id, _Named(None, 0, ()))
            named[device.id] = same._replace(drawn=(*same.drawn, *_drawn(device, index)))
        return named

    @cached_property
    def _thirsty(self) -> Sequence[tuple[Sequence[int], Sequence[int]]]:
        """By counter: the amounts consumed, ascending, and for each who consumes it or more.

        A last entry without devices follows.
        """
        by_amount: list[dict[int, int]] = [{} for _ in self._total]
        for bit, drawn in self.drawn.items():
            for counter, amount in drawn:
                by_amount[counter][amount] = by_amount[counter].get(amount, 0) | bit
        thirsty = []
        for devices in by_amount:
            amounts = sorted(devices)
            at_least = [0]
            for amount in reversed(amounts):
                at_least.append(at_least[-1] | devices[amount])
            thirsty.append((amounts, at_least[::-1]))
        return thirsty

    def _index(self) -> Mapping[CounterKey, int]:
        """The indices of the counters, by counter set and name."""
        return {counter: index for index, counter in enumerate(self.counters)}


GroupUses: TypeAlias = Sequence[Sequence[tuple[DeviceGroup, int]]]
"""By pool: its groups with their usage in millionths."""


def bits_of(mask: int) -> Iterator[int]:
    """The bits of a number, the lowest first."""
    while mask:
        yield mask & -mask
        mask &= mask - 1


def in_use(pools: Iterable[ReadyPool], usage: Usage) -> GroupUses:
    """The groups of the pools with their usage."""
    return [[(group, group.state(usage).used) for group in groups(pool)] for pool in pools]


def is_own(device: Candidate) -> bool:
    """Whether a device is that of one node, and says something of its usage.

    Monitors do not: they are devices that show GPUs, also those in use.
    """
    kind = lookup(device.device.attributes, f"{device.id.driver}/type", device.id.driver)
    return isinstance(device.slice.nodes, OnNode) and kind != _MONITOR


def alone(device: Candidate, bit: int, usage: Usage) -> GroupState:
    """The state of a device that consumes no counters."""
    if device.id in usage.dedicated and not device.device.consumes_counters:
        return GroupState(WHOLE, 0)
    used = max(_parts(device, usage), default=0)
    return GroupState(used, 0 if device.id in usage.dedicated else bit)


def groups(pool: ReadyPool) -> tuple[DeviceGroup, ...]:
    """The groups of a pool's devices, in the order of their first devices."""
    if not pool.counters:
        return tuple(
            DeviceGroup((device,), (1 << index,), (), {})
            for index, device in enumerate(pool.devices)
        )
    drawn = {
        candidate: _counter_sets(candidate, pool) for candidate in (*pool.devices, *pool.elsewhere)
    }
    leader: dict[str, str] = {}

    def leading(counter_set: str) -> str:
        while leader.setdefault(counter_set, counter_set) != counter_set:
            counter_set = leader[counter_set]
        return counter_set

    for names in drawn.values():
        for name in names[1:]:
            leader[leading(name)] = leading(names[0])
    together: dict[str | DeviceId, list[int]] = {}
    for index, candidate in enumerate(pool.devices):
        names = drawn[candidate]
        key = leading(names[0]) if names else candidate.id
        together.setdefault(key, []).append(index)
    return tuple(_group(indices, pool, drawn) for indices in together.values())


def _group(
    indices: Sequence[int], pool: ReadyPool, drawn: Mapping[Candidate, Sequence[str]]
) -> DeviceGroup:
    members = tuple(pool.devices[index] for index in indices)
    names = {name for member in members for name in drawn[member]}
    return DeviceGroup(
        members=members,
        bits=tuple(1 << index for index in indices),
        elsewhere=tuple(
            candidate for candidate in pool.elsewhere if not names.isdisjoint(drawn[candidate])
        ),
        totals={name: pool.counters[name] for name in sorted(names)},
    )


def _counter_sets(candidate: Candidate, pool: ReadyPool) -> list[str]:
    """The counter sets that the device consumes; none if the feature of counters is disabled."""
    consumed = (consumption.counter_set for consumption in candidate.device.consumes_counters)
    return [name for name in consumed if name in pool.counters]


def _drawn(device: Candidate, index: Mapping[CounterKey, int]) -> CounterDraws:
    """What a device consumes of the counters of this index; it may consume others."""
    drawn: dict[int, int] = {}
    for consumption in device.device.consumes_counters:
        for name, counter in consumption.counters.items():
            key = index.get((consumption.counter_set, name))
            if key is not None:
                drawn[key] = drawn.get(key, 0) + counter.value.nanos
    return tuple(drawn.items())


def _parts(member: Candidate | None, usage: Usage) -> Iterator[int]:
    """The usage of a device and of each of its capacities, in millionths."""
    if member is None:
        return
    if member.id in usage.dedicated:
        yield 0 if member.device.consumes_counters else WHOLE
    share = usage.shared.get(member.id)
    for name, amount in share.amounts.items() if share else ():
        capacity = member.device.capacity.get(name)
        if capacity is not None:
            yield _part(amount, capacity.value.nanos)


def _part(amount: int, total: int) -> int:
    if total <= 0:
        return WHOLE if amount > 0 else 0
    return min(WHOLE, amount * WHOLE // total)


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

"""What a search has taken so far, in addition to what is in use.

Every change has an exact inverse, so that the search can undo its decisions.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.features import Features
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.usage import DeviceAmounts, DeviceId, PoolId, Usage
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceCounterConsumption

_Groups: TypeAlias = frozenset[str]
_NO_GROUPS: Final[_Groups] = frozenset()
_UNTOUCHED: Final[DeviceAmounts] = {}


@dataclass(slots=True)
class _CounterSet:
    """What is left of a counter set, and the compatibility groups that its users share."""

    left: dict[str, int]
    groups: _Groups | None = None
    """None while no device uses it."""
    declares_groups: bool = False
    """Whether the first of its users has groups; if not, it is for devices without groups."""

    def subtract(self, consumption: DeviceCounterConsumption) -> None:
        for name, counter in consumption.counters.items():
            self.left[name] -= counter.value.nanos
        groups = _groups(consumption)
        if self.groups is None:
            self.groups, self.declares_groups = groups, bool(groups)
        elif self.declares_groups and groups:
            self.groups &= groups

    def admits(self, groups: _Groups) -> bool:
        """Whether a device with these groups may join: with a shared group, or all without any."""
        if self.groups is None:
            return True
        if not groups:
            return not self.declares_groups
        return not self.groups.isdisjoint(groups)


class Ledger:
    """The devices, counters and capacities that a search has taken.

    If existing allocations overdraw the counters of a pool, no device of it that consumes counters
    is free, as in upstream.
    """

    def __init__(self, pools: Iterable[ReadyPool], usage: Usage, features: Features) -> None:
        self._pools = {pool.id: pool for pool in pools}
        self._usage = usage
        self._features = features
        self._counters: dict[PoolId, dict[str, _CounterSet] | None] = {}
        self._holders: dict[DeviceId, list[tuple[int, bool]]] = {}
        self._shares: dict[DeviceId, list[Mapping[str, Quantity]]] = {}

    def is_free(self, device: DeviceId, claim: int, *, admin: bool) -> bool:
        """Whether the claim with this index may get the whole device, or admin access to it.

        A claim gets a device once.
        """
        holders = self._holders.get(device, ())
        if admin:
            return all(holder != claim for holder, _ in holders)
        if device in self._usage.dedicated:
            return False
        return all(is_admin and holder != claim for holder, is_admin in holders)

    def has_room(self, candidate: Candidate, amounts: Mapping[str, Quantity]) -> bool:
        """Whether the amounts are left of the device's capacities."""
        share = self._usage.shared.get(candidate.id)
        in_use = share.amounts if share else _UNTOUCHED
        shares = self._shares.get(candidate.id)
        if not shares:
            return fits(amounts, candidate.device.capacity, in_use)
        together: dict[str, int] = {}
        for share_amounts in shares:
            for name, amount in share_amounts.items():
                together[name] = together.get(name, 0) + amount.nanos
        return fits(amounts, candidate.device.capacity, in_use, together)

    def is_shared(self, device: DeviceId) -> bool:
        """Whether the device has shares. The first share took the counters for all."""
        return device in self._usage.shared or bool(self._shares.get(device))

    def taken(self, device: DeviceId) -> Hashable | None:
        """What the search has taken of the device; None for nothing."""
        holders, shares = self._holders.get(device), self._shares.get(device)
        if not holders and not shares:
            return None
        amounts = ((name, amount.nanos) for share in shares or () for name, amount in share.items())
        return tuple(holders or ()), len(shares or ()), frozenset(Counter(amounts).items())

    def is_overdrawn(self, pool: PoolId) -> bool:
        """Whether the devices in use consume more of a counter of the pool than its total."""
        return self._sets_of(pool) is None

    def hold(self, device: DeviceId, claim: int, *, admin: bool) -> None:
        """Gives the claim the whole device, or admin access to it."""
        self._holders.setdefault(device, []).append((claim, admin))

    def let_go(self, device: DeviceId) -> None:
        """Undoes the last `hold` of the device."""
        self._holders[device].pop()

    def share(self, device: DeviceId, amounts: Mapping[str, Quantity]) -> None:
        """Takes a share of the device."""
        self._shares.setdefault(device, []).append(amounts)

    def unshare(self, device: DeviceId) -> None:
        """Undoes the last `share` of the device."""
        self._shares[device].pop()

    def draw(self, candidate: Candidate) -> "Drawn | None":
        """Takes what the device consumes from its counters.

        None if too little is left, or if its compatibility groups exclude it (gate
        DRADeviceCompatibilityGroups).
        """
        consumptions = candidate.device.consumes_counters
        if not consumptions:
            return NOTHING_DRAWN
        sets = self._counter_sets(candidate.id)
        if sets is None:
            return None
        for consumption in consumptions:
            counter_set = sets[consumption.counter_set]
            groups = _groups(consumption)
            if self._features.compatibility_groups and not counter_set.admits(groups):
                return None
            left, needed = counter_set.left, consumption.counters
            if any(left[name] < counter.value.nanos for name, counter in needed.items()):
                return None
        drawn = Drawn(
            tuple(
                (
                    consumption,
                    sets[consumption.counter_set],
                    sets[consumption.counter_set].groups,
                )
                for consumption in consumptions
            )
        )
        for consumption in consumptions:
            sets[consumption.counter_set].subtract(consumption)
        return drawn

    def put_back(self, drawn: "Drawn") -> None:
        """Undoes the last `draw`."""
        for consumption, counter_set, groups in drawn.entries:
            for name, counter in consumption.counters.items():
                counter_set.left[name] += counter.value.nanos
            counter_set.groups = groups

    def _counter_sets(self, device: DeviceId) -> dict[str, _CounterSet] | None:
        return self._sets_of(PoolId(device.driver, device.pool))

    def _sets_of(self, pool: PoolId) -> dict[str, _CounterSet] | None:
        if pool not in self._counters:
            self._counters[pool] = self._of_pool(self._pools[pool])
        return self._counters[pool]

    def _of_pool(self, pool: ReadyPool) -> dict[str, _CounterSet] | None:
        sets = {name: _CounterSet(dict(amounts)) for name, amounts in pool.counters.items()}
        for candidate in pool.in_use(self._usage):
            for consumption in candidate.device.consumes_counters:
                sets[consumption.counter_set].subtract(consumption)
        if any(min(counter_set.left.values(), default=0) < 0 for counter_set in sets.values()):
            return None
        return sets


@dataclass(frozen=True, slots=True)
class Drawn:
    """What `draw` took from counters, for `put_back`."""

    entries: tuple[tuple[DeviceCounterConsumption, _CounterSet, _Groups | None], ...]
    """With the groups before it."""


NOTHING_DRAWN: Final = Drawn(())


def _groups(consumption: DeviceCounterConsumption) -> _Groups:
    groups = consumption.compatibility_groups
    return frozenset(groups) if groups else _NO_GROUPS

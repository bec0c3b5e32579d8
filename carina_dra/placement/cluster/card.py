"""What devices take of the cards that they are on, so that it adds up.

A card is a group of devices that draw from the same counters, such as a GPU with its partitions and
shares, or a device by itself. Of each kind of what a card has, such as memory slices, its users
have no more than all together. So what is free, and what users leave, can be added over cards and
nodes, and compared with what others take: where that is more, they have no room.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeAlias

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.group import WHOLE, DeviceGroup
from carina_dra.allocator.matching import amounts_of
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.request import Alternative
from carina_dra.allocator.usage import DeviceId, Usage
from carina_dra.quantity import Quantity

_DIGITS: Final = re.compile("[0-9]+")
_MANY: Final = 1 << 50
"""Stands for what is not bounded."""

PartKind: TypeAlias = tuple[str, str]
"""Counters whose names differ in digits only, or a capacity that is shared: which, and its name."""


class CardParts(NamedTuple):
    """CardParts of cards by kind, in millionths of a card."""

    kinds: Mapping[PartKind, int]
    others: int
    """Of each other kind: a device by itself leaves nothing of any."""

    def of(self, kind: PartKind) -> int:
        """The parts of a kind."""
        return self.kinds.get(kind, self.others)

    def times(self, count: int) -> "CardParts":
        """So many times as much."""
        kinds = {kind: count * part for kind, part in self.kinds.items()}
        return CardParts(kinds, count * self.others)


NOTHING: Final = CardParts({}, 0)
_ALL: Final = CardParts({}, WHOLE)


def together(parts: Sequence[CardParts]) -> CardParts:
    """The sum."""
    kinds = {kind for one in parts for kind in one.kinds}
    return CardParts(
        {kind: sum(one.of(kind) for one in parts) for kind in kinds},
        sum(one.others for one in parts),
    )


def least_of(parts: Iterable[CardParts | None]) -> CardParts | None:
    """The least of each kind; None if there are none."""
    found = [one for one in parts if one is not None]
    if not found:
        return None
    kinds = {kind for one in found for kind in one.kinds}
    return CardParts(
        {kind: min(one.of(kind) for one in found) for kind in kinds},
        min(one.others for one in found),
    )


class Card:
    """One card of a node."""

    def __init__(self, group: DeviceGroup, features: Features) -> None:
        self._group = group
        self._features = features
        self._members = {member.id: member for member in group.members}
        self._bits = {member.id: bit for member, bit in zip(group.members, group.bits, strict=True)}

    @property
    def is_one_device(self) -> bool:
        """Whether it is a device by itself, which nobody shares."""
        return not (self._group.totals or self._shared)

    def left(self, usage: Usage) -> CardParts:
        """What is free of it at most."""
        if self._is_unbounded:
            return CardParts({}, _MANY)
        kinds: dict[PartKind, int] = {}
        if self._group.totals:
            left = self._group.left(usage)
            for kind, (counters, total) in self._counters.items():
                kinds[kind] = _rounded_up(max(0, sum(left[at] for at in counters)), total)
        elif self.is_one_device:
            (device,) = self._members
            return NOTHING if device in usage.dedicated else _ALL
        for kind, total in self._capacities.items():
            kinds[kind] = _rounded_up(max(0, total - self._used(kind[1], usage)), total)
        return CardParts(kinds, 0)

    def taken(
        self, device: DeviceId, consumed: Mapping[str, Quantity] | None, kind: PartKind
    ) -> int:
        """What is free at most of a kind once a device is given back; a share has `consumed` it."""
        member = self._members.get(device)
        if member is None or self._is_unbounded:
            return 0
        if self.is_one_device:
            return WHOLE
        counters = self._counters.get(kind)
        if counters is not None:
            indices, total = counters
            drawn = self._group.drawn[self._bits[device]]
            return _rounded_up(max(0, sum(amount for at, amount in drawn if at in indices)), total)
        total = self._capacities.get(kind, 0)
        if not total or member not in self._shared:
            return 0
        amount = (consumed or {}).get(kind[1])
        return WHOLE if amount is None else _rounded_up(max(0, amount.nanos), total)

    def least(self, wanted: Alternative, device: DeviceId) -> CardParts | None:
        """What a request takes at least if it gets a device; None if it cannot get it."""
        member = self._members.get(device)
        if member is None or self._is_unbounded or wanted.admin_access:
            return NOTHING
        if member in self._shared or wanted.capacity is not None:
            try:
                amounts = amounts_of(wanted, member, self._features)
            except AllocationError:
                return None
            if amounts is None or not fits(amounts, member.device.capacity):
                return None
            if member in self._shared:  # the first share of a device takes the counters for all
                return self._shares(amounts)
        if not self._group.totals:
            return _ALL
        return CardParts(
            {
                kind: max(0, amount) * WHOLE // self._counters[kind][1]
                for kind, amount in self._drawn(member).items()
            },
            0,
        )

    def _shares(self, amounts: Mapping[str, Quantity]) -> CardParts:
        kinds = {
            kind: max(0, amounts[kind[1]].nanos) * WHOLE // total
            for kind, total in self._capacities.items()
            if kind[1] in amounts
        }
        return CardParts(kinds, 0)

    @cached_property
    def _shared(self) -> frozenset[Candidate]:
        """The devices that several claims can share."""
        if not self._features.consumable_capacity:
            return frozenset()
        return frozenset(
            member for member in self._group.members if member.device.allow_multiple_allocations
        )

    @cached_property
    def _is_unbounded(self) -> bool:
        """Whether its devices may have more than its counters: amounts may be negative."""
        return any(amount < 0 for drawn in self._group.drawn.values() for _, amount in drawn)

    @cached_property
    def _counters(self) -> Mapping[PartKind, tuple[Sequence[int], int]]:
        """By kind: the indices of the counters, and their total in billionths."""
        alike: dict[PartKind, list[int]] = {}
        for index, (_, counter) in enumerate(self._group.counters):
            alike.setdefault(_kind_of(counter), []).append(index)
        totals = [total for of in self._group.totals.values() for total in of.values()]
        found = {kind: (of, sum(totals[index] for index in of)) for kind, of in alike.items()}
        return {kind: (of, total) for kind, (of, total) in found.items() if total > 0}

    @cached_property
    def _capacities(self) -> Mapping[PartKind, int]:
        """By kind: what shared devices have of a capacity, in billionths."""
        totals: dict[PartKind, int] = {}
        for member in self._shared:
            for name, capacity in member.device.capacity.items():
                kind = "capacity", name
                totals[kind] = totals.get(kind, 0) + max(0, capacity.value.nanos)
        return {kind: total for kind, total in totals.items() if total > 0}

    def _drawn(self, member: Candidate) -> Mapping[PartKind, int]:
        """What a device draws of each kind of counters, in billionths."""
        amounts = dict(self._group.drawn[self._bits[member.id]])
        return {
            kind: sum(amounts.get(index, 0) for index in of)
            for kind, (of, _) in self._counters.items()
        }

    def _used(self, capacity: str, usage: Usage) -> int:
        """What is in use of a capacity of its shared devices, in billionths."""
        used = 0
        for member in self._shared:
            share = usage.shared.get(member.id)
            if member.id in usage.dedicated and capacity in member.device.capacity:
                used += member.device.capacity[capacity].value.nanos
            elif share is not None:
                used += share.amounts.get(capacity, 0)
        return used


def is_card(group: DeviceGroup) -> bool:
    """Whether devices are a card of one node, whose use does not depend on other nodes."""
    return group.is_own and not group.elsewhere


@lru_cache(maxsize=1_024)
def _kind_of(counter: str) -> PartKind:
    return "counter", _DIGITS.sub("", counter)


def _rounded_up(amount: int, total: int) -> int:
    return -(-amount * WHOLE // total)

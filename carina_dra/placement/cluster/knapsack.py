"""What the devices of a pool draw from counters, and how many of a group fit together at most.

Devices fit together only if they draw no more of each counter than is left, and so of every sum of
counters. Where each of several counters has room for one device or another, it is their sum that is
too small for all, so counters whose names differ in digits only, such as `memory-slice-0` and
`memory-slice-1`, are summed. Devices that meet the conditions may still not fit; devices that do
not meet them cannot.

Without it and what requests draw together, `mig`, 3 partitions of a GPU whose places overlap, takes
twice as long. On free GPUs of `published-mig`, 5 partitions of 18 GB of one GPU take 57 times.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, NamedTuple, TypeAlias

from carina_dra.allocator.group import CounterDraws, DeviceGroup
from carina_dra.allocator.usage import DeviceAmounts, Usage

_DIGITS: Final = re.compile("[0-9]+")

_REMEMBERED: Final = 8
"""Of how many sets of devices of a group it is remembered how many fit together."""

_Family: TypeAlias = Sequence[str]
"""The names of counters that are summed."""


@dataclass(frozen=True, slots=True)
class Knapsack:
    """What devices draw of a counter, or of a sum of counters."""

    drawing: int
    """The devices that draw something, one a bit."""
    items: tuple[tuple[int, int], ...]
    """The amounts in ascending order, in billionths, each with the devices that draw it."""

    @classmethod
    def of(cls, by_amount: Mapping[int, int]) -> "Knapsack":
        """What devices draw, by the amount. A device that is not among them draws nothing."""
        items = tuple(sorted((amount, mask) for amount, mask in by_amount.items() if amount))
        return cls(reduce(or_, (mask for _, mask in items), 0), items)

    def most(self, devices: int, left: int) -> int:
        """How many of the devices draw no more than is left, if they are those that draw least."""
        most = (devices & ~self.drawing).bit_count()
        for amount, drawing in self.items:
            count = (devices & drawing).bit_count()
            if count * amount > left:
                return most + left // amount
            most += count
            left -= count * amount
        return most

    def least(self, devices: int, count: int) -> int:
        """What a number of the devices draw together at least."""
        count -= (devices & ~self.drawing).bit_count()
        least = 0
        for amount, drawing in self.items:
            if count <= 0:
                break
            taken = min(count, (devices & drawing).bit_count())
            least += taken * amount
            count -= taken
        return least


class Remainder(NamedTuple):
    """What the devices in use leave to a group."""

    left: Mapping[int, int]
    """What is left of each sum of counters, in billionths, by the index of its knapsack."""
    paid: int
    """The devices with shares: the first has drawn what others need."""
    most: dict[int, int]
    """How many of some devices fit together at most, where it has been asked for."""


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """Devices that draw from the same counters."""

    index: int
    """Among the groups of the pool."""
    group: DeviceGroup
    sums: tuple[tuple[int, tuple[int, ...]], ...]
    """The group's counters in each sum, by the index of the knapsack."""

    @property
    def devices(self) -> int:
        """One a bit."""
        return self.group.mask

    def remainder(self, usage: Usage) -> Remainder:
        """What is left to the group with this usage."""
        left = self.group.left(usage)
        # Of an overdrawn counter nothing is left, but devices that have paid may be shared.
        return Remainder(
            {
                index: sum(max(0, left[counter]) for counter in counters)
                for index, counters in self.sums
            },
            self.group.paid(usage),
            {},
        )


class PoolKnapsacks:
    """The groups of a pool, and what their devices draw."""

    def __init__(self, groups: Sequence[DeviceGroup]) -> None:
        """`groups` are all groups of the pool."""
        drawing = {
            index: group
            for index, group in enumerate(groups)
            if group.totals and len(group.members) > 1
        }
        drawn = _drawn(drawing.values())
        # The API does not forbid negative amounts; a device of one leaves more to others.
        negative = {name for _, amounts in drawn for name, amount in amounts.items() if amount < 0}
        families = _families({name for _, amounts in drawn for name in amounts} - negative)
        self.knapsacks = tuple(_knapsack(names, drawn) for names in families)
        """One for each family of counters."""
        family_of = {name: index for index, names in enumerate(families) for name in names}
        self.groups = tuple(_packed(index, group, family_of) for index, group in drawing.items())
        """Those with several devices; a device that has its counters for itself fits."""

    def most(self, devices: int, remainder: Remainder) -> int:
        """How many of a group's devices fit together at most; each of them must fit alone."""
        most = remainder.most.get(devices)
        if most is None:
            if len(remainder.most) >= _REMEMBERED:
                remainder.most.clear()
            most = remainder.most[devices] = self._most(devices, remainder)
        return most

    def _most(self, devices: int, remainder: Remainder) -> int:
        paid = (devices & remainder.paid).bit_count()
        devices &= ~remainder.paid
        most = devices.bit_count()
        for index, left in remainder.left.items():
            if most <= 1:
                break
            most = min(most, self.knapsacks[index].most(devices, left))
        return most + paid


def _drawn(groups: Iterable[DeviceGroup]) -> Sequence[tuple[int, DeviceAmounts]]:
    """Devices with what they draw of all counters with a name together."""
    alike: dict[tuple[tuple[str, ...], CounterDraws], int] = {}
    for group in groups:
        names = tuple(name for _, name in group.counters)
        for bit, drawn in group.drawn.items():
            alike[names, drawn] = alike.get((names, drawn), 0) | bit
    together = []
    for (names, drawn), devices in alike.items():
        amounts: dict[str, int] = {}
        for counter, amount in drawn:
            amounts[names[counter]] = amounts.get(names[counter], 0) + amount
        together.append((devices, amounts))
    return together


def _families(names: Iterable[str]) -> Sequence[_Family]:
    """The names of counters, those together that differ in digits only."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        families[_DIGITS.sub("", name)].append(name)
    return list(families.values())


def _knapsack(names: _Family, drawn: Iterable[tuple[int, DeviceAmounts]]) -> Knapsack:
    by_amount: dict[int, int] = defaultdict(int)
    for devices, amounts in drawn:
        by_amount[sum(amounts.get(name, 0) for name in names)] |= devices
    return Knapsack.of(by_amount)


def _packed(index: int, group: DeviceGroup, family_of: Mapping[str, int]) -> PackedGroup:
    counters: dict[int, list[int]] = defaultdict(list)
    for counter, (_, name) in enumerate(group.counters):
        if name in family_of:
            counters[family_of[name]].append(counter)
    sums = tuple((family, tuple(summed)) for family, summed in sorted(counters.items()))
    return PackedGroup(index, group, sums)

"""What the devices of a pool draw from counters, and how many of a group fit together at most.

Devices fit together only if they draw no more of each counter than is left, and so of every sum of
counters. Counters whose names differ in digits only, such as `memory-slice-0` and `memory-slice-1`,
are summed: where each of them has room for one device or another, it is their sum that is too small
for all. Each of them is a condition by itself, too. Devices that meet the conditions may still not
fit; devices that do not meet them cannot.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import or_
from typing import Final, NamedTuple, TypeAlias

from carina_dra.allocator.group import DeviceGroup
from carina_dra.allocator.usage import Usage

_DIGITS: Final = re.compile("[0-9]+")

_REMEMBERED: Final = 8
"""Of how many sets of devices of a group it is remembered how many fit together."""

_Drawing: TypeAlias = Mapping[int, int]
"""Devices by the amount that they draw. A device that is not among them draws nothing."""


@dataclass(frozen=True, slots=True)
class Knapsack:
    """What devices draw of a counter, or of a sum of counters."""

    drawing: int
    """The devices that draw something, one a bit."""
    items: tuple[tuple[int, int], ...]
    """The amounts in ascending order, in billionths, each with the devices that draw it."""

    @classmethod
    def of(cls, by_amount: _Drawing) -> "Knapsack":
        """What the devices draw."""
        items = tuple(sorted((amount, mask) for amount, mask in by_amount.items() if amount))
        return cls(_either(mask for _, mask in items), items)

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
    """The indices of the group's counters that are summed, by the index of their knapsack."""

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
        names = {name for group in drawing.values() for _, name in group.counters}
        drawn = _drawn(drawing.values(), names)
        # The API does not forbid negative amounts; a device of one leaves more to others.
        if negative := {name for name, by_amount in drawn.items() if min(by_amount, default=0) < 0}:
            names -= negative
        families = _families(names)
        several = [family for family in families if len(family) > 1]
        sums_of: dict[str, list[int]] = defaultdict(list)
        for index, family in enumerate([*families, *([name] for of in several for name in of)]):
            for name in family:
                sums_of[name].append(index)
        self.knapsacks = tuple(
            map(
                Knapsack.of,
                (
                    *(_summed([drawn[name] for name in family]) for family in families),
                    *(drawn[name] for family in several for name in family),
                ),
            )
        )
        """One for each family of counters; then one for each counter of a family of several."""
        self.families = range(len(families))
        """The indices of the families."""
        self.groups = tuple(_packed(index, group, sums_of) for index, group in drawing.items())
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


def _drawn(groups: Iterable[DeviceGroup], names: Iterable[str]) -> Mapping[str, _Drawing]:
    """What devices draw of all counters with a name together."""
    drawn: dict[str, dict[int, int]] = {name: {} for name in names}
    for group in groups:
        for bit, of_member in group.drawn.items():
            amounts: dict[str, int] = {}
            for counter, amount in of_member:
                _, name = group.counters[counter]
                amounts[name] = amounts.get(name, 0) + amount
            for name, amount in amounts.items():
                by_amount = drawn[name]
                by_amount[amount] = by_amount.get(amount, 0) | bit
    return drawn


def _summed(parts: Sequence[_Drawing]) -> _Drawing:
    """What devices draw of several counters together."""
    if len(parts) == 1:
        return parts[0]
    either = _either(chain.from_iterable(part.values() for part in parts))
    summed = {0: either}
    for part in parts:
        before, summed = summed, defaultdict(int)
        untouched = either & ~_either(part.values())
        for total, devices in before.items():
            summed[total] |= devices & untouched
            for amount, drawing in part.items():
                summed[total + amount] |= devices & drawing
    return {total: devices for total, devices in summed.items() if devices}


def _either(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def _families(names: Iterable[str]) -> list[list[str]]:
    """The names of counters, those together that differ in digits only."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        families[_DIGITS.sub("", name)].append(name)
    return list(families.values())


def _packed(index: int, group: DeviceGroup, sums_of: Mapping[str, Sequence[int]]) -> PackedGroup:
    counters: dict[int, list[int]] = defaultdict(list)
    for counter, (_, name) in enumerate(group.counters):
        for summed in sums_of.get(name, ()):
            counters[summed].append(counter)
    return PackedGroup(
        index, group, tuple((summed, tuple(of)) for summed, of in sorted(counters.items()))
    )

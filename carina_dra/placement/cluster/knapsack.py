"""What the devices of a pool draw from counters, and how many of a group fit together at most.

Devices fit together only if they draw no more of each counter than is left, and so of every sum of
counters, whatever their weights. Where each of several counters has room for one device or another,
it is their sum that is too small for all. Counters whose names differ in digits only, such as
`memory-slice-0` and `memory-slice-1`, are summed; so are all counters, the scarcest with the
largest weights. Each of them is a condition by itself, too; and so is that any two of the devices
fit. Devices that meet the conditions may still not fit; devices that do not meet them cannot.
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
from carina_dra.placement.cluster.independent_set import largest
from carina_dra.price import CONFLICT
from carina_dra.work import Work

_DIGITS: Final = re.compile("[0-9]+")

_REMEMBERED: Final = 8
"""Of how many sets of devices of a group it is remembered how many fit together."""

_PRECISION: Final = 1_000
"""The weight of the largest counter, if all devices together draw all of it."""

_Weights: TypeAlias = Mapping[str, int]
"""A sum of counters: the weight of each, by name. No weight is negative."""


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
    sums: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    """The group's counters in each sum, with their weights, by the index of the knapsack."""

    gives: bool
    """Whether a device draws a negative amount: it can make others fit together."""

    @property
    def devices(self) -> int:
        """One a bit."""
        return self.group.mask

    def most_in_pairs(self, devices: int, usage: Usage, most: int, work: Work) -> int:
        """How many of the devices, at most `most`, fit together if any two of them do.

        Raises:
            OutOfStepsError: the budget of the work is spent.
        """
        paid = devices & self.group.paid(usage)
        if self.gives or most - paid.bit_count() <= 1:
            return most
        drawing = devices & ~paid
        work.spend(CONFLICT * drawing.bit_count())
        blocked = self.group.blocked(usage, drawing)
        return largest(drawing, blocked, most - paid.bit_count(), work) + paid.bit_count()

    def remainder(self, usage: Usage) -> Remainder:
        """What is left to the group with this usage."""
        left = self.group.left(usage)
        # Of an overdrawn counter nothing is left, but devices that have paid may be shared.
        return Remainder(
            {
                index: sum(weight * max(0, left[counter]) for counter, weight in counters)
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
        sums = _families({name for _, amounts in drawn for name in amounts} - negative)
        several = [name for family in sums if len(family) > 1 for name in family]
        if len(sums) > 1:
            names = [name for family in sums for name in family]
            sums.append(_every(names, drawn, _totals(drawing.values())))
        self.sums = range(len(sums))
        """The indices of the families of counters, and of all counters together."""
        sums += [{name: 1} for name in several]
        self.knapsacks = tuple(_knapsack(weights, drawn) for weights in sums)
        """One for each of these sums; then one for each counter of a family of several."""
        sums_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, weights in enumerate(sums):
            for name, weight in weights.items():
                sums_of[name].append((index, weight))
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


def _totals(groups: Iterable[DeviceGroup]) -> DeviceAmounts:
    """The largest total of the counters with a name."""
    totals: dict[str, int] = {}
    for group in groups:
        for amounts in group.totals.values():
            for name, total in amounts.items():
                totals[name] = max(total, totals.get(name, 0))
    return totals


def _families(names: Iterable[str]) -> list[_Weights]:
    """The names of counters, those together that differ in digits only."""
    families: dict[str, dict[str, int]] = defaultdict(dict)
    for name in sorted(names):
        families[_DIGITS.sub("", name)][name] = 1
    return list(families.values())


def _every(
    names: Iterable[str], drawn: Iterable[tuple[int, DeviceAmounts]], totals: DeviceAmounts
) -> _Weights:
    """All counters, each weighed by what all devices together draw of it for what there is of it.

    A counter that is never short would otherwise make up for those that are.
    """
    together: dict[str, int] = defaultdict(int)
    for devices, amounts in drawn:
        for name, amount in amounts.items():
            together[name] += devices.bit_count() * amount
    scale = _PRECISION * max(totals.values())
    return {name: together[name] * scale // totals[name] ** 2 for name in names if totals[name] > 0}


def _knapsack(weights: _Weights, drawn: Iterable[tuple[int, DeviceAmounts]]) -> Knapsack:
    by_amount: dict[int, int] = defaultdict(int)
    for devices, amounts in drawn:
        amount = sum(weight * amounts.get(name, 0) for name, weight in weights.items())
        by_amount[amount] |= devices
    return Knapsack.of(by_amount)


def _packed(
    index: int, group: DeviceGroup, sums_of: Mapping[str, Sequence[tuple[int, int]]]
) -> PackedGroup:
    counters: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for counter, (_, name) in enumerate(group.counters):
        for summed, weight in sums_of.get(name, ()):
            counters[summed].append((counter, weight))
    return PackedGroup(
        index,
        group,
        tuple((summed, tuple(weighted)) for summed, weighted in sorted(counters.items())),
        any(amount < 0 for drawn in group.drawn.values() for _, amount in drawn),
    )

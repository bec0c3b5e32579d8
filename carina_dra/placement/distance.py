"""How close devices of a node could be at best, by counting those in the same place."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Final

from carina_dra.allocator.preference import CLOSENESS, FAR
from carina_dra.placement.offer import Places, PoolState
from carina_dra.placement.packing import Packing, Want

_COMBINATIONS: Final = 256
"""The number of combinations of values that are looked at; of more, one is taken to fit."""


def least_distance(
    wants: Sequence[Want],
    packing: Packing,
    states: Sequence[PoolState],
    in_common: Sequence[str] = (),
    may_match: Callable[[int], bool] = lambda _: True,
) -> int:
    """The least distance that the devices of all wants may have to each other.

    Whatever the distance, all of them have the attributes `in_common`. `may_match` says whether
    the other constraints may be met by some of these devices.
    """
    required = [places_of(name, states) for name in in_common]
    for distance, names in enumerate(CLOSENESS):
        known = [places for name in names if (places := places_of(name, states)).is_known]
        if not known:
            continue
        known += required
        if are_many(known):
            return distance
        for within in intersections(known):
            if any((want.devices & within).bit_count() < want.count for want in wants):
                continue
            there = [replace(want, devices=want.devices & within) for want in wants]
            is_enough = all(map(packing.has, there)) and packing.has_all([[one] for one in there])
            if is_enough and may_match(within):
                return distance
    return FAR


def places_of(name: str, states: Sequence[PoolState]) -> Places:
    """The devices of a node by the values of an attribute."""
    if len(states) == 1:
        return states[0].offered.places(name)
    by_value: dict[Hashable, int] = {}
    anywhere = incomparable = shift = 0
    for state in states:
        of_pool = state.offered.places(name)
        for value, mask in of_pool.by_value.items():
            by_value[value] = by_value.get(value, 0) | mask << shift
        anywhere |= of_pool.anywhere << shift
        incomparable |= of_pool.incomparable << shift
        shift += len(state.offered.devices)
    return Places(by_value, anywhere, incomparable)


def are_many(places: Sequence[Places]) -> bool:
    """Whether there are too many combinations of the values to look at all."""
    return prod(len(one.by_value) for one in places) > _COMBINATIONS


def intersections(places: Sequence[Places]) -> Iterator[int]:
    """The devices that could be together: those with one value of each attribute."""
    for masks in product(*(tuple(one.by_value.values()) or (0,) for one in places)):
        within = -1
        for mask, one in zip(masks, places, strict=True):
            within &= mask | one.anywhere
        yield within

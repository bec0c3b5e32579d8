"""How close devices of a node could be at best, by counting those in the same place."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Final

from carina_dra.allocator.preference import CLOSENESS, FAR
from carina_dra.placement.offer import Places, PoolState

_COMBINATIONS: Final = 256
"""The number of combinations of values that are looked at; of more, one is taken to fit."""


def least_distance(
    masks: Sequence[int],
    counts: Sequence[int],
    together: int,
    levels: Sequence[int],
    states: Sequence[PoolState],
) -> int:
    """The least distance of devices of which each mask gives its count.

    All masks `together` give so many devices or shares. `levels` are the devices that can give
    one, two and more of them.
    """
    for distance, names in enumerate(CLOSENESS):
        known = [places for name in names if (places := places_of(name, states)).is_known]
        if not known:
            continue
        if are_many(known):
            return distance
        for within in intersections(known):
            if sum((level & within).bit_count() for level in levels) >= together and all(
                (mask & within).bit_count() >= count
                for mask, count in zip(masks, counts, strict=True)
            ):
                return distance
    return FAR


def places_of(name: str, states: Sequence[PoolState]) -> Places:
    """The devices of a node by the values of an attribute."""
    if len(states) == 1:
        return states[0].offered.places(name)
    by_value: dict[Hashable, int] = {}
    anywhere = shift = 0
    is_known = False
    for state in states:
        of_pool = state.offered.places(name)
        for value, mask in of_pool.by_value.items():
            by_value[value] = by_value.get(value, 0) | mask << shift
        anywhere |= of_pool.anywhere << shift
        is_known = is_known or of_pool.is_known
        shift += len(state.offered.devices)
    return Places(by_value, anywhere, is_known)


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

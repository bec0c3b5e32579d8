"""What a node offers: its pools, and which of their devices could be together."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Final

from carina_dra.allocator.pool import Pool
from carina_dra.allocator.preference import CLOSENESS
from carina_dra.placement.cluster.offer import OfferedPool, Places

_COMBINATIONS: Final = 256
"""The number of combinations of values that are looked at."""
_REMEMBERED: Final = 16
"""The number of sets of attributes for which a node remembers its devices.

Claims may name any.
"""


@dataclass(frozen=True, eq=False)
class Offer:
    """The pools that a node offers.

    The devices of all pools that can be used are the bits of a number, pool after pool.
    """

    pools: tuple[Pool, ...]
    """In the order in which upstream tries them."""
    ready: tuple[OfferedPool, ...]
    """Those of them that devices can be allocated from."""
    _together: dict[tuple[str, ...], Sequence[int] | None] = field(
        default_factory=dict, init=False, repr=False
    )

    def places(self, name: str) -> Places:
        """The devices by the values of an attribute."""
        if len(self.ready) == 1:
            return self.ready[0].places(name)
        by_value: dict[Hashable, int] = {}
        anywhere = incomparable = shift = 0
        for offered in self.ready:
            of_pool = offered.places(name)
            for value, mask in of_pool.by_value.items():
                by_value[value] = by_value.get(value, 0) | mask << shift
            anywhere |= of_pool.anywhere << shift
            incomparable |= of_pool.incomparable << shift
            shift += len(offered.devices)
        return Places(by_value, anywhere, incomparable)

    @cached_property
    def closeness(self) -> Sequence[tuple[int, tuple[str, ...]]]:
        """The attributes that devices of the node could share, the best first, with the distance.

        An attribute that no device has is left out, and so are attributes that are there already.
        """
        known = {
            name
            for name in {name for names in CLOSENESS for name in names}
            if any(offered.places(name).is_known for offered in self.ready)
        }
        first: dict[tuple[str, ...], int] = {}
        for distance, names in enumerate(CLOSENESS):
            present = tuple(name for name in names if name in known)
            if present:
                first.setdefault(present, distance)
        return [(distance, names) for names, distance in first.items()]

    def together(self, names: tuple[str, ...]) -> Sequence[int] | None:
        """The devices that could have values of these attributes in common, for each combination.

        A device without an attribute could be with any others. None if there are too many
        combinations of values.
        """
        if names not in self._together:
            if len(self._together) >= _REMEMBERED:
                self._together.clear()
            self._together[names] = self._combinations(names)
        return self._together[names]

    def _combinations(self, names: tuple[str, ...]) -> Sequence[int] | None:
        places = [self.places(name) for name in dict.fromkeys(names)]
        if len(places) > 1 and prod(len(one.by_value) for one in places) > _COMBINATIONS:
            return None
        combinations: dict[int, None] = {}
        for masks in product(*(tuple(one.by_value.values()) or (0,) for one in places)):
            within = -1
            for mask, one in zip(masks, places, strict=True):
                within &= mask | one.anywhere
            combinations[within] = None
        return tuple(combinations)

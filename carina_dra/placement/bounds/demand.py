"""Whether a node can have what claims require: conditions that are cheap to check.

A node that meets the conditions may still not have the devices. A node that does not meet them has
not, so the search need not look at it. Without them, `crossing`, 6 devices on 6 switches and rails,
takes 40 times as long, and `mig`, 3 partitions of a GPU, 8 times.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.preference import FAR
from carina_dra.allocator.request import Alternative, Claim
from carina_dra.allocator.usage import DeviceAmounts
from carina_dra.placement.bounds.distance import least_distance
from carina_dra.placement.bounds.distinct import charge_places, may_differ
from carina_dra.placement.bounds.eligibility import EligibleDevices
from carina_dra.placement.bounds.packing import Packing
from carina_dra.placement.bounds.requirements import (
    Matched,
    Requirements,
    WantedAlternative,
    least_of,
)
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import PoolState, devices_of
from carina_dra.price import ALTERNATIVE, AMOUNT, VALUE
from carina_dra.resource import All
from carina_dra.work import Work

_NO_AMOUNTS: Final[DeviceAmounts] = {}


@dataclass(frozen=True, slots=True)
class Bound:
    """No allocation on the node has a better score than this."""

    alternatives: int
    """The sum of the indices of the alternatives."""
    distance: int
    among: int | None = field(default=None, compare=False)
    """The devices of the node, one a bit, of which it has some; None if they are not known.

    If the search has all devices to choose from, `dense`, 1 device, takes 3 times as long.
    """


@dataclass(frozen=True, slots=True)
class Short:
    """The node cannot have the devices."""

    error: str
    """What prevents devices from being considered, if something does; else empty."""


class Demand:
    """The conditions that a node must meet for claims."""

    def __init__(self, claims: Sequence[Claim], features: Features) -> None:
        self.eligibility = EligibleDevices(features)
        self.required = Requirements(claims)

    @property
    def work(self) -> Work:
        """The work on the node that is looked at."""
        return self.eligibility.work

    def bound(
        self, offer: Offer, states: Sequence[PoolState], *, is_whole: bool, wish: bool
    ) -> Bound | Short:
        """The best score that a node could have for the claims, but for its usage.

        `states` are those of the offered pools. `is_whole` says that no pool of the node is
        incomplete or invalid, and `wish` that close devices are wanted.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        if self.required.has_all and not is_whole:
            return Bound(0, 0)
        errors: list[str] = []
        available = [
            [self._available(alternative.source, states, errors) for alternative in request]
            for request in self.required.requests
        ]
        if not may_differ(self.required, available, offer, self.work):
            return Short(errors[0] if errors else "")
        packing = Packing(self._levels(available, states), states, self.work)
        first = self._first_matching(available, packing, offer)
        if first is None:
            return Short(errors[0] if errors else "")
        among = None if errors or self.required.has_all else _union(available)
        if not wish or not self.required.several:
            return Bound(sum(first), 0, among)
        wants = []
        for request, rank, masks in zip(self.required.requests, first, available, strict=True):
            count = self._count(request[rank], masks[rank], states)
            wants.append(replace(request[rank].want(masks[rank]), count=count))
        in_common = self.required.in_common(first)
        others = [
            match for match in self.required.matches if not {*match.attributes} <= {*in_common}
        ]

        def may_match(within: int) -> bool:
            return all(
                self._may_match(match, available, within, packing, offer) for match in others
            )

        distance = least_distance(wants, packing, offer, in_common, may_match, self.work)
        return Bound(sum(first), distance, among)

    def least_distance(self, offer: Offer, states: Sequence[PoolState]) -> int:
        """No devices for the claims are closer than this, whichever devices they select.

        `states` are those of the offered pools. Counts the free devices, in a fraction of the time
        of `bound`: without it, `crossing`, 4 claims of 2 devices of a PCIe root, takes 4 times as
        long.
        """
        required = self.required
        if not (required.compiles and required.several and required.matches):
            return 0
        for names in required.matched:
            for name in names:
                charge_places(offer, name, self.work)
        is_shared, free, shift = False, 0, 0
        for state in states:
            is_shared |= bool(state.offered.shareable)
            free |= (state.free & state.offered.here) << shift
            shift += len(state.offered.devices)
        needed = required.count.shared if is_shared else required.count.alone
        matched = [
            (together, count.shared if is_shared else count.alone)
            for names, count in required.matched.items()
            if (together := offer.together(names)) is not None
        ]
        for distance, names in offer.closeness:
            places = offer.together((*names, *required.always_in_common))
            if places is None:
                return distance
            compared = 1 + sum(len(together) for together, _ in matched)
            self.work.spend(VALUE * len(places) * compared)
            for place in places:
                there = free & place
                if there.bit_count() >= needed and all(
                    any((there & devices).bit_count() >= count for devices in together)
                    for together, count in matched
                ):
                    return distance
        return FAR

    def is_out_of_reach(self, states: Sequence[PoolState]) -> bool:
        """Whether a node cannot have the devices, as is known without a look at each device.

        No selector fails on the node's devices then, unless too few of them have a value in common
        that a constraint requires.
        """
        for name, count in self.required.together.items():
            most = 0  # pools may have the same values
            for state in states:
                # One device may have shares for all.
                most += count if state.offered.shareable else state.most_together(name)
            if most < count:
                return True
        if not self.required.is_deciding:
            return False
        for request in self.required.requests:
            for alternative in request:
                for state in states:
                    if not self.eligibility.selects_nothing(alternative.source, state):
                        return False
        return True

    def _first_matching(
        self, available: list[list[int]], packing: Packing, offer: Offer
    ) -> list[int] | None:
        """The first alternatives, after each constraint has left its devices to the next one.

        None if the devices are not enough. Without it, `crossing`, 2 devices of a PCIe root and a
        NUMA node, takes 5 times as long, and `worst`, 4 devices of a broken rectangle, 4 times.
        """
        first = self._first(available, packing)
        if first is None or not self._is_enough_within(
            self.required.every, available, -1, packing, offer
        ):
            return None
        if not self.required.matches:
            return first
        for match in self.required.matches:
            self._leave_matching(match, available, packing, offer)
        return self._first(available, packing)

    def _count(
        self, alternative: WantedAlternative, available: int, states: Sequence[PoolState]
    ) -> int:
        """How many of the available devices an alternative takes at least."""
        if not isinstance(alternative.source.mode, All):
            return alternative.count
        needed = shift = 0
        for state in states:
            needed |= self.eligibility.needed(alternative.source, state) << shift
            shift += len(state.offered.devices)
        return max(alternative.count, (needed & available).bit_count())

    def concerns(self, candidate: Candidate) -> bool:
        """Whether a device, free or not, could serve a request, or make it fail."""
        return any(
            self.eligibility.concerns(one.source, candidate)
            for of in self.required.requests
            for one in of
        )

    def may_fail(self, states: Sequence[PoolState]) -> bool:
        """Whether an attempt that comes to all of these devices, free or not, could fail.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        return self.required.fails_alone or any(
            self.eligibility.may_fail(alternative.source, state)
            for request in self.required.requests
            for alternative in request
            for state in states
        )

    def _available(
        self, wanted: Alternative, states: Sequence[PoolState], errors: list[str]
    ) -> int:
        """The devices of a node that each could serve the alternative; none if it needs others."""
        self.work.spend(ALTERNATIVE)
        mask = shift = 0
        for state in states:
            of_pool = self.eligibility.available(wanted, state, errors)
            if isinstance(wanted.mode, All) and self.eligibility.needed(wanted, state) & ~of_pool:
                return 0
            mask |= of_pool << shift
            shift += len(state.offered.devices)
        return mask

    def _levels(
        self, available: Sequence[Sequence[int]], states: Sequence[PoolState]
    ) -> Sequence[int]:
        """The devices that can serve one request, those that can serve two, and so on."""
        either, shift = _union(available), 0
        levels = [either]
        for state in states:
            shared = (
                state.offered.shareable & either >> shift if len(self.required.sharing) > 1 else 0
            )
            for bit, candidate in devices_of(shared, state.offered.devices):
                self.work.spend(AMOUNT * len(self.required.sharing))
                shares = self._shares(candidate, state)
                levels += [0] * (shares - len(levels))
                for level in range(1, shares):
                    levels[level] |= bit << shift
            shift += len(state.offered.devices)
        return levels

    def _shares(self, candidate: Candidate, state: PoolState) -> int:
        """How many of the requests can have a share of a device at most.

        Without it, nodes are searched for shares that do not fit when they are rounded up
        (tests/unit/carina_dra/placement/test_work.py). Where the amounts are not compared before,
        as on nodes of several pools, `shares`, 2 shares of a GPU, takes twice as long.
        """
        least = [
            least
            for request in self.required.sharing
            if (least := self._least_of_device(request, candidate)) is not None
        ]
        shares = len(least)
        in_use = state.usage.shared.get(candidate.id)
        used = in_use.amounts if in_use else _NO_AMOUNTS
        for name in {name for amounts in least for name in amounts}:
            together = list(accumulate(sorted(amounts.get(name, 0) for amounts in least)))
            left = candidate.device.capacity[name].value.nanos - used.get(name, 0)
            shares = min(shares, bisect_right(together, left))
        return shares

    def _least_of_device(
        self, request: Sequence[WantedAlternative], candidate: Candidate
    ) -> DeviceAmounts | None:
        """What a request consumes of a device at least; None if it cannot be served.

        Policies of the device may round up what is asked for, or add to it.
        """
        try:
            consumed = [self.eligibility.amounts_of(wanted.source, candidate) for wanted in request]
        except AllocationError:
            return _NO_AMOUNTS
        served = [
            {name: max(0, amount.nanos) for name, amount in amounts.items()}
            for amounts in consumed
            if amounts is not None
        ]
        return least_of(served) if served else None

    def _first(self, available: Sequence[Sequence[int]], packing: Packing) -> list[int] | None:
        """The first alternative of each request that has enough devices; None if one has none."""
        first = []
        for of, masks in zip(self.required.requests, available, strict=True):
            for rank, (one, mask) in enumerate(zip(of, masks, strict=True)):
                if packing.has(one.want(mask)):
                    first.append(rank)
                    break
            else:
                return None
        return first

    def _leave_matching(
        self,
        match: Matched,
        available: list[list[int]],
        packing: Packing,
        offer: Offer,
    ) -> None:
        """Leaves the devices with a value that enough devices have for all requests together."""
        for name in match.attributes:
            charge_places(offer, name, self.work)
        for together in _together(match, offer):
            leave = 0
            for within in together:
                if self._is_enough_within(match, available, within, packing, offer):
                    leave |= within
            for request, meant in match.requests:
                for rank in meant:
                    available[request][rank] &= leave

    def _may_match(
        self,
        match: Matched,
        available: Sequence[Sequence[int]],
        within: int,
        packing: Packing,
        offer: Offer,
    ) -> bool:
        """Whether devices of a place may have the values in common that a constraint requires.

        Without it, `crossing`, 2 devices of a PCIe root and 1 of the NUMA node of the second, takes
        1.7 times as long.
        """
        return all(
            any(
                self._is_enough_within(match, available, within & devices, packing, offer)
                for devices in together
            )
            for together in _together(match, offer)
        )

    def _is_enough_within(
        self,
        match: Matched,
        available: Sequence[Sequence[int]],
        within: int,
        packing: Packing,
        offer: Offer,
    ) -> bool:
        """Whether the requests can be served together, by devices within a place where meant.

        All requests must have the values there that must be distinct.
        """
        requests = []
        self.work.spend(ALTERNATIVE * len(match.requests))
        for request, meant in match.requests:
            wants = [
                want
                for rank, alternative in enumerate(self.required.requests[request])
                if packing.has(
                    want := alternative.want(
                        available[request][rank] & (within if rank in meant else -1)
                    )
                )
            ]
            if not wants:
                return False
            requests.append(wants)
        if not packing.has_all(requests):
            return False
        if not self.required.distinct:
            return True
        there = [list(masks) for masks in available]
        for request, meant in match.requests:
            for rank in meant:
                there[request][rank] &= within
        return may_differ(self.required, there, offer, self.work)


def _union(available: Sequence[Sequence[int]]) -> int:
    """The devices that could serve any request."""
    union = 0
    for mask in chain.from_iterable(available):
        union |= mask
    return union


def _together(match: Matched, offer: Offer) -> Sequence[Sequence[int]]:
    """The devices that match, for each combination of values: in all attributes, or in each."""
    in_all = offer.together(match.attributes)
    if in_all is not None:
        return [in_all]
    of_each = (offer.together((name,)) for name in match.attributes)
    return [devices for devices in of_each if devices is not None]

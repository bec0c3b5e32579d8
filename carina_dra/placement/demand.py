"""What claims demand at least, and whether a node can have it: conditions that are cheap to check.

A node that meets the conditions may still not have the devices. A node that does not meet them has
not, so the search need not look at it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Final

from carina_dra.allocator.allocate import asks_for_several
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.request import Alternative, Claim, Constraint, NamedSelector
from carina_dra.allocator.usage import Amounts
from carina_dra.cel import CompileError
from carina_dra.placement.distance import are_many, intersections, least_distance, places_of
from carina_dra.placement.eligibility import Eligibility
from carina_dra.placement.offer import PoolState, devices_of
from carina_dra.placement.packing import Packing, Want
from carina_dra.placement.selector_budget import SelectorBudget
from carina_dra.resource import All, DistinctAttribute, ExactCount, MatchAttribute
from carina_dra.resource.limits import DEVICES_PER_CLAIM

_NO_AMOUNTS: Final[Amounts] = {}
_ROUNDS: Final = 4
"""How often the devices that constraints leave are passed on to the other constraints."""


@dataclass(frozen=True, slots=True)
class Bound:
    """No allocation on the node has a better score than this."""

    alternatives: int
    """The sum of the indices of the alternatives."""
    distance: int
    among: int | None = field(default=None, compare=False)
    """The devices of the node, one a bit, of which it has some; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Short:
    """The node cannot have the devices."""

    error: str
    """What prevents devices from being considered, if something does; else empty."""


@dataclass(frozen=True, slots=True, eq=False)
class _Alternative:
    """An alternative, and how many devices it needs at least."""

    source: Alternative
    count: int
    together: Amounts
    """What it asks for of the capacities of all its devices, in billionths."""

    @classmethod
    def of(cls, source: Alternative) -> "_Alternative":
        """An alternative of a request."""
        count, asked = _least(source), source.capacity.requests if source.capacity else {}
        together = {name: count * max(0, amount.nanos) for name, amount in asked.items()}
        return cls(source, count, together)

    def want(self, devices: int) -> Want:
        """That it wants its number of these devices."""
        return Want(devices, self.count, not self.source.admin_access, self.together)


@dataclass(frozen=True, slots=True)
class _Match:
    """Attributes whose values some requests must have in common."""

    attributes: tuple[str, ...]
    requests: tuple[tuple[int, frozenset[int]], ...]
    """By index; with the indices of its alternatives that are meant."""


@dataclass(frozen=True, slots=True)
class _Distinct:
    """An attribute in which the devices of some requests must differ."""

    attribute: str
    requests: tuple[int, ...]
    """By index; all alternatives are meant."""


class Demand:
    """The conditions that a node must meet for claims."""

    def __init__(self, claims: Sequence[Claim], features: Features, budget: SelectorBudget) -> None:
        self.eligibility = Eligibility(features, budget)
        self._requests: list[tuple[_Alternative, ...]] = []
        self._matches: list[_Match] = []
        self._distinct: list[_Distinct] = []
        for claim in claims:
            first = len(self._requests)
            for request in claim.requests:
                self._requests.append(tuple(map(_Alternative.of, request.alternatives)))
            self._matches += _matches(claim, first)
            self._distinct += _distinct(claim, first)
        self._every = _Match(
            (), tuple((index, frozenset()) for index in range(len(self._requests)))
        )
        """All requests together."""
        exclusive = not any(one.source.admin_access for of in self._requests for one in of)
        self.devices = (
            sum(min(one.count for one in of) for of in self._requests) if exclusive else 0
        )
        """How many devices it takes at least that nobody else has; a share of one counts as one."""
        self.compiles = not any(
            isinstance(named.selector, CompileError)
            for of in self._requests
            for one in of
            for named in one.source.selectors
        )
        """Whether all selectors do."""
        self._together = self._least_together()
        """How many devices have a value of each of these attributes in common, at least."""
        self._is_deciding = bool(self._requests) and all(
            any(map(_is_deciding, one.source.selectors)) for of in self._requests for one in of
        )
        """Whether each alternative requires what a device may lack without an evaluation."""
        self.may_be_out_of_reach = self.compiles and bool(self._together or self._is_deciding)
        """Whether a node can be out of reach of the claims."""
        sharing = [of for of in self._requests if not any(one.source.admin_access for one in of)]
        self._sharing = sharing
        """The requests that a device could serve if it were shared: each gets it once."""
        self._several = asks_for_several(claims)
        self._fails_alone = any(map(_may_fail, claims))
        """Whether a claim could fail whatever the devices are."""
        self.has_all = any(isinstance(one.source.mode, All) for of in self._requests for one in of)

    @property
    def amounts(self) -> Mapping[str, int]:
        """The amount of each capacity that some device must have left, in billionths."""
        amounts: dict[str, int] = {}
        for of in self._requests:
            wanted = of[0].source
            if len(of) == 1 and not wanted.admin_access and wanted.capacity is not None:
                for name, amount in wanted.capacity.requests.items():
                    amounts[name] = max(amount.nanos, amounts.get(name, 0))
        return amounts

    @property
    def amounts_together(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        """The amounts that devices with a value of an attribute in common must have left together.

        In billionths, with the attribute.
        """
        together = []
        for match in self._matches:
            amounts: dict[str, int] = {}
            for index, meant in match.requests:
                of = self._requests[index]
                if len(of) == len(meant) and not any(one.source.admin_access for one in of):
                    for name, amount in _least_of([one.together for one in of]).items():
                        amounts[name] = amounts.get(name, 0) + amount
            if amounts:
                together += [(attribute, amounts) for attribute in match.attributes]
        return tuple(together)

    @property
    def attributes(self) -> frozenset[tuple[str, str]]:
        """The values of attributes that devices of a node must have, each of them some device."""
        return frozenset(
            condition
            for of in self._requests
            if len(of) == 1
            for named in of[0].source.selectors
            if not isinstance(named.selector, CompileError)
            for condition in named.selector.equalities
        )

    def bound(self, states: Sequence[PoolState], *, is_whole: bool, wish: bool) -> Bound | Short:
        """The best score that a node could have for the claims, but for its usage.

        `is_whole` says that no pool of the node is incomplete or invalid, and `wish` that close
        devices are wanted.

        Raises:
            BudgetError: the selectors have cost more than they may.
        """
        if self.has_all and not is_whole:
            return Bound(0, 0)
        errors: list[str] = []
        available = [
            [self._available(one.source, states, errors) for one in of] for of in self._requests
        ]
        if not (self._may_be_enough(available) and self._may_differ(available, states)):
            return Short(errors[0] if errors else "")
        packing = Packing(self._levels(available, states), states)
        first = self._first_matching(available, packing, states)
        if first is None:
            return Short(errors[0] if errors else "")
        among = None if errors or self.has_all else _union(available)
        if not wish or not self._several:
            return Bound(sum(first), 0, among)
        wants = []
        for of, rank, masks in zip(self._requests, first, available, strict=True):
            count = self._count(of[rank], masks[rank], states)
            wants.append(replace(of[rank].want(masks[rank]), count=count))
        distance = least_distance(wants, packing, states, self._in_common(first))
        return Bound(sum(first), distance, among)

    def is_out_of_reach(self, states: Sequence[PoolState]) -> bool:
        """Whether a node cannot have the devices, as is known without a look at each device.

        No selector fails on the node's devices then, unless too few of them have a value in common
        that a constraint requires.
        """
        for name, count in self._together.items():
            most = 0  # pools may have the same values
            for state in states:
                # One device may have shares for all.
                most += count if state.offered.shareable else state.most_together(name)
            if most < count:
                return True
        if not self._is_deciding:
            return False
        for of in self._requests:
            for one in of:
                for state in states:
                    if not self.eligibility.selects_nothing(one.source, state):
                        return False
        return True

    def _may_be_enough(self, available: Sequence[Sequence[int]]) -> bool:
        """Whether each request has an alternative with enough devices, though not together."""
        return all(
            any(mask.bit_count() >= one.count for one, mask in zip(of, masks, strict=True))
            for of, masks in zip(self._requests, available, strict=True)
        )

    def _may_differ(self, available: Sequence[Sequence[int]], states: Sequence[PoolState]) -> bool:
        """Whether the devices have as many values as must be distinct."""
        for distinct in self._distinct:
            places = places_of(distinct.attribute, states)
            of_each = [_union([available[index]]) for index in distinct.requests]
            counts = [
                min(one.count for one in self._requests[index]) for index in distinct.requests
            ]
            all_together = _union([of_each]), sum(counts)
            for devices, count in (all_together, *zip(of_each, counts, strict=True)):
                if count <= 1:
                    continue
                values = sum(1 for mask in places.by_value.values() if mask & devices)
                # Only the first device may have one that cannot be compared.
                if values + bool(places.incomparable & devices) < count:
                    return False
        return True

    def _first_matching(
        self, available: list[list[int]], packing: Packing, states: Sequence[PoolState]
    ) -> list[int] | None:
        """The first alternatives, after each constraint has left the devices that others leave.

        None if the devices are not enough.
        """
        first = self._first(available, packing)
        if first is None or not self._is_enough_within(self._every, available, -1, packing):
            return None
        for _ in range(_ROUNDS if self._matches else 0):
            if first is None:
                break
            before = [list(masks) for masks in available]
            for match in self._matches:
                self._leave_matching(match, available, packing, states)
            first = self._first(available, packing)
            if available == before:
                break
        return first

    def _least_together(self) -> Mapping[str, int]:
        together: dict[str, int] = {}
        for match in self._matches:
            count = 0
            for index, meant in match.requests:
                of = self._requests[index]
                if len(meant) == len(of) and not any(one.source.admin_access for one in of):
                    count += min(one.count for one in of)
            for name in match.attributes:
                together[name] = max(count, together.get(name, 0))
        # A device alone matches also if its values cannot be compared.
        return {name: count for name, count in together.items() if count > 1}

    def _in_common(self, first: Sequence[int]) -> Sequence[str]:
        """The attributes that all devices of these alternatives must have in common."""
        chosen = set(enumerate(first))
        return [
            name
            for match in self._matches
            if chosen <= {(request, rank) for request, meant in match.requests for rank in meant}
            for name in match.attributes
        ]

    def _count(self, one: _Alternative, available: int, states: Sequence[PoolState]) -> int:
        """How many of the available devices an alternative takes at least."""
        if not isinstance(one.source.mode, All):
            return one.count
        needed = shift = 0
        for state in states:
            needed |= self.eligibility.needed(one.source, state) << shift
            shift += len(state.offered.devices)
        return max(one.count, (needed & available).bit_count())

    def concerns(self, candidate: Candidate) -> bool:
        """Whether a device, free or not, could serve a request, or make it fail."""
        return any(
            self.eligibility.concerns(one.source, candidate) for of in self._requests for one in of
        )

    def may_fail(self, states: Sequence[PoolState]) -> bool:
        """Whether an attempt that comes to all of these devices, free or not, could fail.

        Raises:
            BudgetError: the selectors have cost more than they may.
        """
        return self._fails_alone or any(
            self.eligibility.may_fail(one.source, state)
            for of in self._requests
            for one in of
            for state in states
        )

    def _available(
        self, wanted: Alternative, states: Sequence[PoolState], errors: list[str]
    ) -> int:
        """The devices of a node that each could serve the alternative; none if it needs others."""
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
            shared = state.offered.shareable & either >> shift if len(self._sharing) > 1 else 0
            for bit, one in devices_of(shared, state.offered.devices):
                shares = self._shares(one, state)
                levels += [0] * (shares - len(levels))
                for level in range(1, shares):
                    levels[level] |= bit << shift
            shift += len(state.offered.devices)
        return levels

    def _shares(self, one: Candidate, state: PoolState) -> int:
        """How many of the requests can have a share of a device at most."""
        least = [
            least for of in self._sharing if (least := self._least_of_device(of, one)) is not None
        ]
        shares = len(least)
        in_use = state.usage.shared.get(one.id)
        used = in_use.amounts if in_use else _NO_AMOUNTS
        for name in {name for amounts in least for name in amounts}:
            together = list(accumulate(sorted(amounts.get(name, 0) for amounts in least)))
            left = one.device.capacity[name].value.nanos - used.get(name, 0)
            shares = min(shares, bisect_right(together, left))
        return shares

    def _least_of_device(self, of: Sequence[_Alternative], one: Candidate) -> Amounts | None:
        """What a request consumes of a device at least; None if it cannot be served.

        Policies of the device may round up what is asked for, or add to it.
        """
        try:
            consumed = [self.eligibility.amounts_of(wanted.source, one) for wanted in of]
        except AllocationError:
            return _NO_AMOUNTS
        served = [
            {name: max(0, amount.nanos) for name, amount in amounts.items()}
            for amounts in consumed
            if amounts is not None
        ]
        return _least_of(served) if served else None

    def _first(self, available: Sequence[Sequence[int]], packing: Packing) -> list[int] | None:
        """The first alternative of each request that has enough devices; None if one has none."""
        first = []
        for of, masks in zip(self._requests, available, strict=True):
            for rank, (one, mask) in enumerate(zip(of, masks, strict=True)):
                if packing.has(one.want(mask)):
                    first.append(rank)
                    break
            else:
                return None
        return first

    def _leave_matching(
        self,
        match: _Match,
        available: list[list[int]],
        packing: Packing,
        states: Sequence[PoolState],
    ) -> None:
        """Leaves the devices with a value that enough devices have for all requests together."""
        places = [places_of(name, states) for name in match.attributes]
        for together in [[one] for one in places] if are_many(places) else [places]:
            leave = 0
            for within in intersections(together):
                if self._is_enough_within(match, available, within, packing):
                    leave |= within
            for request, meant in match.requests:
                for rank in meant:
                    available[request][rank] &= leave

    def _is_enough_within(
        self, match: _Match, available: Sequence[Sequence[int]], within: int, packing: Packing
    ) -> bool:
        """Whether the requests can be served together, by devices within a place where meant."""
        requests = []
        for request, meant in match.requests:
            wants = [
                want
                for rank, one in enumerate(self._requests[request])
                if packing.has(
                    want := one.want(available[request][rank] & (within if rank in meant else -1))
                )
            ]
            if not wants:
                return False
            requests.append(wants)
        return packing.has_all(requests)


def _union(available: Sequence[Sequence[int]]) -> int:
    """The devices that could serve any request."""
    union = 0
    for mask in chain.from_iterable(available):
        union |= mask
    return union


def _is_deciding(named: NamedSelector) -> bool:
    """Whether it may be known without an evaluation that the selector is false."""
    selector = named.selector
    return not isinstance(selector, CompileError) and bool(selector.deciding or selector.minimums)


def _least(wanted: Alternative) -> int:
    """All devices are one at least: if none matches, the request cannot be satisfied."""
    match wanted.mode:
        case ExactCount(count=count):
            return count
        case All():
            return 1


def _may_fail(claim: Claim) -> bool:
    """Whether it may ask for too many devices, or derives attributes."""
    least = sum(min(map(_least, request.alternatives)) for request in claim.requests)
    return least > DEVICES_PER_CLAIM or any(
        one.derived for request in claim.requests for one in request.alternatives
    )


def _least_of(alternatives: Sequence[Amounts]) -> Amounts:
    """The least amounts of alternatives; of a capacity that one does not ask for it is nothing."""
    first, *others = alternatives
    return {
        name: least
        for name, amount in first.items()
        if (least := min([amount, *(other.get(name, 0) for other in others)]))
    }


def _matches(claim: Claim, first: int) -> Iterator[_Match]:
    """The claim's matchAttribute constraints on published attributes, by the requests they mean."""
    attributes: dict[tuple[tuple[int, frozenset[int]], ...], list[str]] = {}
    for constraint in claim.constraints:
        rule = constraint.rule
        if not isinstance(rule, MatchAttribute):
            continue
        requests = tuple(_meant(claim, constraint, first))
        if requests and not _is_derived(rule.name, claim):
            attributes.setdefault(requests, []).append(rule.name)
    for of_requests, names in attributes.items():
        yield _Match(tuple(names), of_requests)


def _distinct(claim: Claim, first: int) -> Iterator[_Distinct]:
    """The claim's distinctAttribute constraints on published attributes."""
    for constraint in claim.constraints:
        rule = constraint.rule
        if isinstance(rule, DistinctAttribute) and not _is_derived(rule.name, claim):
            requests = tuple(
                index
                for index, meant in _meant(claim, constraint, first)
                if len(meant) == len(claim.requests[index - first].alternatives)
            )
            yield _Distinct(rule.name, requests)


def _meant(
    claim: Claim, constraint: Constraint, first: int
) -> Iterator[tuple[int, frozenset[int]]]:
    """The requests that a constraint means, by index, with their alternatives that it means."""
    for index, request in enumerate(claim.requests, first):
        meant = frozenset(
            rank
            for rank, one in enumerate(request.alternatives)
            if one.is_meant_by(constraint.requests)
        )
        if meant:
            yield index, meant


def _is_derived(attribute: str, claim: Claim) -> bool:
    return any(
        attribute in one.derived for request in claim.requests for one in request.alternatives
    )

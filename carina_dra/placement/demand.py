"""What claims demand at least, and whether a node can have it: conditions that are cheap to check.

A node that meets the conditions may still not have the devices. A node that does not meet them has
not, so the search need not look at it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.allocator.allocate import asks_for_several
from carina_dra.allocator.capacity import fits
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.matching import amounts_of
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.request import Alternative, Claim, NamedSelector
from carina_dra.allocator.taint import untolerated
from carina_dra.allocator.usage import Amounts
from carina_dra.cel import AttributeExpression, CompileError, EvaluationError
from carina_dra.placement.distance import least_distance, places_of
from carina_dra.placement.offer import (
    BudgetError,
    OfferedPool,
    PoolState,
    SelectorBudget,
    devices_of,
)
from carina_dra.quantity import Quantity
from carina_dra.resource import All, DeviceAttribute, ExactCount, MatchAttribute
from carina_dra.resource.limits import DEVICES_PER_CLAIM

_NO_AMOUNTS: Final[Amounts] = {}
_DEVICES: Final = 10_000
"""The number of devices of which it is remembered what a request consumes of them."""
_ROUNDS: Final = 4
"""How often the devices that constraints leave are passed on to the other constraints."""


@dataclass(frozen=True, slots=True)
class Bound:
    """No allocation on the node has a better score than this."""

    alternatives: int
    """The sum of the indices of the alternatives."""
    distance: int


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


@dataclass(frozen=True, slots=True)
class _Match:
    """An attribute whose value some requests must have in common."""

    attribute: str
    requests: tuple[tuple[int, frozenset[int]], ...]
    """By index; with the indices of its alternatives that are meant."""


class Demand:
    """The conditions that a node must meet for claims."""

    def __init__(self, claims: Sequence[Claim], features: Features, budget: SelectorBudget) -> None:
        self.budget = budget
        self._derived: dict[AttributeExpression, dict[Candidate, DeviceAttribute | None]] = {}
        self._amounts: dict[Alternative, dict[Candidate, Mapping[str, Quantity] | None]] = {}
        self._features = features
        self._requests: list[tuple[_Alternative, ...]] = []
        self._matches: list[_Match] = []
        for claim in claims:
            first = len(self._requests)
            for request in claim.requests:
                self._requests.append(
                    tuple(_Alternative(one, _least(one)) for one in request.alternatives)
                )
            self._matches += _matches(claim, first)
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
        if not self._is_enough(available, states):
            return Short(errors[0] if errors else "")
        first = self._first(available)
        for _ in range(_ROUNDS if self._matches else 0):
            if first is None:
                break
            before = [list(masks) for masks in available]
            for match in self._matches:
                self._leave_matching(match, available, states)
            first = self._first(available)
            if available == before:
                break
        if first is None:
            return Short(errors[0] if errors else "")
        if not wish or not self._several:
            return Bound(sum(first), 0)
        masks = [of[rank] for of, rank in zip(available, first, strict=True)]
        counts = [of[rank].count for of, rank in zip(self._requests, first, strict=True)]
        return Bound(sum(first), least_distance(masks, counts, self.devices, states))

    def concerns(self, candidate: Candidate) -> bool:
        """Whether a device, free or not, could serve a request, or make it fail."""
        return any(
            all(self._may_select(named, candidate) for named in one.source.selectors)
            for of in self._requests
            for one in of
        )

    def selects(
        self, wanted: Alternative, candidate: Candidate, offered: OfferedPool
    ) -> bool | None:
        """Whether an alternative selects a device of a pool; None where a selector fails.

        Raises:
            BudgetError: the selectors have cost more than they may.
        """
        if candidate.device.binding_conditions and not self._features.binding_conditions:
            return False
        bit = offered.bits[candidate.id]
        for named in wanted.selectors:
            found = offered.selected(named.selector, bit, self.budget)
            if found.doubtful & bit:
                return None
            if not found.mask & bit:
                return False
        return candidate.here

    def derived(
        self, expression: AttributeExpression, candidate: Candidate
    ) -> DeviceAttribute | None:
        """The value of a derived attribute.

        Raises:
            EvaluationError: the expression fails on the device.
            BudgetError: the expressions have cost more than they may.
        """
        known = self._derived.setdefault(expression, {})
        if candidate not in known:
            if len(known) >= _DEVICES:
                known.clear()
            self.budget.require()
            known[candidate] = expression.evaluate(candidate.view, self.budget.meter)
        return known[candidate]

    def amounts_of(
        self, wanted: Alternative, candidate: Candidate
    ) -> Mapping[str, Quantity] | None:
        """What an alternative consumes of a device's capacities; None if it cannot be served.

        Raises:
            AllocationError: an amount is not valid.
        """
        known = self._amounts.setdefault(wanted, {})
        if candidate not in known:
            if len(known) >= _DEVICES:
                known.clear()
            known[candidate] = amounts_of(wanted, candidate, self._features)
        return known[candidate]

    def _may_select(self, named: NamedSelector, candidate: Candidate) -> bool:
        if isinstance(named.selector, CompileError):
            return True
        try:
            self.budget.require()
            return named.selector.matches(candidate.view, self.budget.meter)
        except (EvaluationError, BudgetError):
            return True

    def may_fail(self, states: Sequence[PoolState]) -> bool:
        """Whether an attempt that comes to all of these devices, free or not, could fail.

        Raises:
            BudgetError: the selectors have cost more than they may.
        """
        return self._fails_alone or any(
            self._may_fail_in(one.source, state)
            for of in self._requests
            for one in of
            for state in states
        )

    def _may_fail_in(self, wanted: Alternative, state: PoolState) -> bool:
        offered = state.offered
        mask = (1 << len(offered.devices)) - 1
        for named in wanted.selectors:
            selected = offered.selected(named.selector, mask, self.budget)
            if selected.doubtful & mask:
                return True
            mask &= selected.mask
        if not self._features.consumable_capacity:
            return False
        try:
            for _, one in devices_of(mask, offered.devices):
                self.amounts_of(wanted, one)
        except AllocationError:
            return True
        return False

    def _available(
        self, wanted: Alternative, states: Sequence[PoolState], errors: list[str]
    ) -> int:
        """The devices of a node that each could serve the alternative."""
        if len(states) == 1:
            return self._available_in(wanted, states[0], errors)
        mask = shift = 0
        for state in states:
            mask |= self._available_in(wanted, state, errors) << shift
            shift += len(state.offered.devices)
        return mask

    def _available_in(self, wanted: Alternative, state: PoolState, errors: list[str]) -> int:
        offered = state.offered
        mask = offered.here
        if not wanted.admin_access:
            mask &= state.free
        for named in wanted.selectors:
            if not mask:
                return 0
            selected = offered.selected(named.selector, mask, self.budget)
            if selected.doubtful & mask:
                errors.append(f"{named.location} {selected.error}")
            mask &= selected.mask
        if mask & offered.tainted:
            mask &= ~sum(
                bit
                for bit, one in devices_of(mask & offered.tainted, offered.devices)
                if untolerated(one.device, wanted.tolerations)
            )
        counted = mask if wanted.capacity is not None else mask & offered.shareable
        if counted and self._features.consumable_capacity:
            mask &= ~sum(
                bit
                for bit, one in devices_of(counted, offered.devices)
                if not self._has_room(wanted, one, state, errors)
            )
        return mask

    def _has_room(
        self, wanted: Alternative, one: Candidate, state: PoolState, errors: list[str]
    ) -> bool:
        share = None if wanted.admin_access else state.usage.shared.get(one.id)
        used = share.amounts if share else _NO_AMOUNTS
        for name, amount in wanted.capacity.requests.items() if wanted.capacity else ():
            capacity = one.device.capacity.get(name)
            if capacity is None or amount.nanos > capacity.value.nanos - used.get(name, 0):
                return False  # amounts are only ever rounded up
        try:
            amounts = self.amounts_of(wanted, one)
        except AllocationError as error:
            errors.append(str(error))
            return False
        return amounts is not None and fits(amounts, one.device.capacity, used)

    def _is_enough(self, available: Sequence[Sequence[int]], states: Sequence[PoolState]) -> bool:
        """Whether there are as many devices as all requests together take."""
        if len(self._requests) == 1 or any(state.offered.shareable for state in states):
            return True
        together = 0
        for masks in available:
            for mask in masks:
                together |= mask
        return together.bit_count() >= self.devices

    def _first(self, available: Sequence[Sequence[int]]) -> list[int] | None:
        """The first alternative of each request that has enough devices; None if one has none."""
        first = []
        for of, masks in zip(self._requests, available, strict=True):
            for rank, (one, mask) in enumerate(zip(of, masks, strict=True)):
                if mask.bit_count() >= one.count:
                    first.append(rank)
                    break
            else:
                return None
        return first

    def _leave_matching(
        self, match: _Match, available: list[list[int]], states: Sequence[PoolState]
    ) -> None:
        """Leaves the devices with a value that enough devices have for all requests together."""
        places = places_of(match.attribute, states)
        leave = 0
        for mask in places.by_value.values() or (0,):
            within = mask | places.anywhere
            if self._is_enough_within(match, available, within, states):
                leave |= within
        for request, meant in match.requests:
            for rank in meant:
                available[request][rank] &= leave

    def _is_enough_within(
        self,
        match: _Match,
        available: Sequence[Sequence[int]],
        within: int,
        states: Sequence[PoolState],
    ) -> bool:
        together = needed = 0
        for request, meant in match.requests:
            least: int | None = None
            for rank, one in enumerate(self._requests[request]):
                mask = available[request][rank]
                if rank in meant:
                    mask &= within
                if mask.bit_count() >= one.count:
                    together |= mask
                    least = one.count if least is None else min(least, one.count)
            if least is None:
                return False
            needed += least
        if not self.devices or any(state.offered.shareable for state in states):
            return True
        return together.bit_count() >= needed


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


def _matches(claim: Claim, first: int) -> Iterator[_Match]:
    """The claim's matchAttribute constraints on published attributes."""
    for constraint in claim.constraints:
        rule = constraint.rule
        if not isinstance(rule, MatchAttribute):
            continue
        derived = any(
            rule.name in one.derived for request in claim.requests for one in request.alternatives
        )
        requests = []
        for index, request in enumerate(claim.requests, first):
            meant = frozenset(
                rank
                for rank, one in enumerate(request.alternatives)
                if one.is_meant_by(constraint.requests)
            )
            if meant:
                requests.append((index, meant))
        if requests and not derived:
            yield _Match(rule.name, tuple(requests))

"""The search for devices: exhaustive, depth first, in the order in which upstream tries them.

Each step decides one thing: which alternative of a request, or which device next. The devices of a
request are combinations, not permutations. (Upstream: `allocateOne` of
k8s.io/dynamic-resource-allocation v0.37.0; its tests pin the number of steps.) The stack is our
own, since a pod may ask for more devices than Python nests calls.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.constraint import Distinct, Match, begin
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.ledger import NOTHING_DRAWN, Drawn, Ledger
from carina_dra.allocator.matching import KnownEvaluations, Matching
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.request import Alternative, Claim, constrains_all
from carina_dra.allocator.symmetry import Symmetry
from carina_dra.allocator.taint import untolerated
from carina_dra.price import CANDIDATE, CONSTRAINT, DECISION, SEARCH, SYMMETRY, TAKEN
from carina_dra.quantity import Quantity
from carina_dra.resource import All, ExactCount
from carina_dra.resource.limits import DEVICES_PER_CLAIM
from carina_dra.work import Work

_PATIENCE: Final = 100
"""The number of steps after which, of equal devices, only one is tried."""
_STEPS_PER_LOOK: Final = 32
"""How many steps pass between two looks at whether time is up."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A device for an alternative of a request."""

    alternative: Alternative
    candidate: Candidate
    share: Mapping[str, Quantity] | None
    """What it gets of a device that is shared; None of one that it has for itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """Devices for all claims."""

    choices: tuple[tuple[Choice, ...], ...]
    """By claim, in the order of its requests."""
    steps: int


@dataclass(frozen=True, slots=True)
class Impossible:
    """There are none, whatever is chosen."""

    steps: int


@dataclass(frozen=True, slots=True)
class CutShort:
    """The search stopped at its step limit and found no devices."""

    steps: int


SearchOutcome: TypeAlias = Found | Impossible | CutShort


class _Position(NamedTuple):
    """What is to be decided next."""

    claim: int
    request: int = 0
    option: int | None = None
    """Which alternative; None where it is to be chosen."""
    device: int = 0
    """Index of the device within its request."""
    start: int = 0
    """The first candidate to be tried: earlier ones were, for the device before."""


@dataclass(frozen=True, slots=True, eq=False)
class _Option:
    """An alternative, and how many devices it needs."""

    alternative: Alternative
    matching: Matching
    count: int
    every: tuple[int, ...] | None
    """The candidates that a request for all devices must have."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A constraint, and what the devices so far leave of it."""

    requests: tuple[str, ...]
    attribute: str
    state: Match | Distinct
    is_wish: bool = False
    """Whether it is a preference: a device without the attribute is not refused."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a device has drawn, and the constraints that it has been added to."""

    candidate: Candidate
    drawn: Drawn
    constraints: tuple[Match | Distinct, ...]


class Matchings:
    """What is known of each alternative's devices, for searches in the same order of candidates."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        features: Features,
        known: KnownEvaluations | None = None,
        work: Work | None = None,
    ) -> None:
        """`work` is charged with all searches among them."""
        self.candidates = candidates
        self.work = Work() if work is None else work
        self._features = features
        self._known = known
        self._matchings: dict[Alternative, Matching] = {}

    def of(self, alternative: Alternative) -> Matching:
        """The devices that match an alternative."""
        matching = self._matchings.get(alternative)
        if matching is None:
            matching = Matching(
                alternative, self.candidates, self._features, self._known, self.work
            )
            self._matchings[alternative] = matching
        return matching


def search(
    claims: Sequence[Claim],
    state: NodeState,
    *,
    candidates: Sequence[Candidate] | None = None,
    in_common: Sequence[str] = (),
    max_steps: int | None = None,
) -> SearchOutcome:
    """Looks for devices for all claims on a node.

    `candidates` are the pools' devices in the order in which to try them, the published order if
    not given. `in_common` is that of `Search`.

    Raises:
        AllocationError: as for `Search`.
    """
    if candidates is None:
        candidates = state.published
    matchings = Matchings(candidates, state.features)
    return Search(claims, state, matchings, in_common=in_common).run(max_steps)


class Search:
    """A search for devices for all claims on a node, which can be continued."""

    def __init__(
        self,
        claims: Sequence[Claim],
        state: NodeState,
        matchings: Matchings,
        *,
        in_common: Sequence[str] = (),
    ) -> None:
        """Begins a search among the candidates of the matchings, in their order.

        All devices that have the attributes `in_common`, of whichever claim, are to have them in
        common.

        Raises:
            AllocationError: a request for all devices meets a selector that fails on a device, or
                a pool that is being updated or invalid; or the claim asks for too many devices.
            OutOfStepsError: the budget of the work is spent.
        """
        self._work = matchings.work
        self._work.spend(SEARCH)
        self._candidates = matchings.candidates
        self._claims = claims
        self._state = state
        self._features = state.features
        self._in_common = in_common
        self._matchings = matchings
        self._steps = 0
        self._ledger = Ledger(state.ready, state.usage, state.features)
        self._requests: list[tuple[tuple[_Option, ...], ...]] = []
        self._is_prioritized: list[tuple[bool, ...]] = []
        for claim in claims:
            self._requests.append(self._options(claim))
            self._is_prioritized.append(tuple(request.is_prioritized for request in claim.requests))
        lists = state.features.list_attributes
        wished = [_Rule((), name, Match(lists), is_wish=True) for name in in_common]
        self._rules = [
            [
                *(
                    _Rule(entry.requests, entry.rule.name, begin(entry.rule, lists=lists))
                    for entry in claim.constraints
                ),
                *wished,
            ]
            for claim in claims
        ]
        self._may_skip_equal_devices = bool(in_common) or not constrains_all(claims)
        """Whether the outcome is the same with any of equal devices."""
        self._chosen: list[list[Choice]] = [[] for _ in claims]
        self._is_too_large = False
        """Whether the last attempt failed at the limit of devices per claim."""
        self.rests_on_wish = False
        """Whether devices have been refused only to have an attribute of `in_common` in common.

        If not, the search is the one without `in_common`.
        """
        self._stack = [iter([_Position(claim=0)])]

    def run(
        self, max_steps: int | None = None, expired: Callable[[], bool] | None = None
    ) -> SearchOutcome:
        """Decides step by step, and goes back where nothing is left to try.

        `max_steps` counts from the beginning: a search that was cut short continues with a larger
        number. It is cut short too when `expired` returns true; it is asked now and then.

        Raises:
            AllocationError: an answer would rest on something that is wrong: a selector that fails
                on a device, a capacity that cannot be counted.
            OutOfStepsError: the budget of the work is spent.
        """
        stack = self._stack
        while stack:
            position = next(stack[-1], None)
            if position is None:
                stack.pop()
            elif position.claim == len(self._requests):
                return Found(tuple(map(tuple, self._chosen)), self._steps + 1)
            elif self._is_over(max_steps, expired):
                stack.append(iter([position]))
                return CutShort(self._steps)
            else:
                self._work.spend(DECISION)
                stack.append(self._moves(position))
                self._steps += 1
        return Impossible(self._steps)

    def _is_over(self, max_steps: int | None, expired: Callable[[], bool] | None) -> bool:
        if max_steps is not None and self._steps >= max_steps:
            return True
        return expired is not None and self._steps % _STEPS_PER_LOOK == 0 and expired()

    @cached_property
    def _symmetry(self) -> Symmetry:
        """Worth its while only where the search takes long."""
        self._work.spend(SYMMETRY * len(self._candidates))
        return Symmetry(
            self._state.ready, self._claims, self._in_common, self._state.usage, self._ledger
        )

    def _options(self, claim: Claim) -> tuple[tuple[_Option, ...], ...]:
        options = tuple(
            tuple(self._option(alternative) for alternative in request.alternatives)
            for request in claim.requests
        )
        least = sum(min(option.count for option in of_request) for of_request in options)
        if least > DEVICES_PER_CLAIM:
            raise AllocationError(
                f"claim {claim.source.key}: number of requested devices {least} exceeds the claim "
                f"limit of {DEVICES_PER_CLAIM}"
            )
        return options

    def _option(self, alternative: Alternative) -> _Option:
        matching = self._matchings.of(alternative)
        match alternative.mode:
            case ExactCount(count=count):
                return _Option(alternative, matching, count, every=None)
            case All():
                every = matching.every(self._state.pools)
                return _Option(alternative, matching, len(every), every)

    def _moves(self, at: _Position) -> Iterator[_Position]:
        """Decides `at` in every possible way: what is yielded is to be decided next.

        The state is as that decision leaves it until the next one is asked for.
        """
        requests = self._requests[at.claim]
        if at.request == len(requests):
            yield _Position(at.claim + 1)
            # Another choice for this claim may leave the next one what needs fewer devices.
            self._is_too_large = False
        elif at.option is None and self._is_prioritized[at.claim][at.request]:
            yield from self._alternatives(at, len(requests[at.request]))
        else:
            at = at._replace(option=at.option or 0)
            option = requests[at.request][at.option or 0]
            if option.every is not None and not option.every:
                return
            if at.device == option.count:
                yield _Position(at.claim, at.request + 1)
            elif len(self._chosen[at.claim]) + option.count - at.device > DEVICES_PER_CLAIM:
                self._is_too_large = True
            elif option.every is not None:
                yield from self._next_of_all(at, option, option.every[at.device])
            else:
                yield from self._devices(at, option)

    def _alternatives(self, at: _Position, count: int) -> Iterator[_Position]:
        all_too_large = True
        for index in range(count):
            yield at._replace(option=index)
            all_too_large &= self._is_too_large
            self._is_too_large = False
        self._is_too_large = all_too_large

    def _next_of_all(self, at: _Position, option: _Option, index: int) -> Iterator[_Position]:
        taken = self._take(at.claim, option, index, must=True)
        if taken is not None:
            yield at._replace(device=at.device + 1)
            self._give_back(at.claim, taken)

    def _devices(self, at: _Position, option: _Option) -> Iterator[_Position]:
        admin = bool(option.alternative.admin_access)
        kind_of: Callable[[Candidate], Hashable] | None = None
        failed: set[Hashable] = set()
        work, charged = self._work, at.start
        for index in range(at.start, len(self._candidates)):
            candidate = self._candidates[index]
            if not self._ledger.is_free(candidate.id, at.claim, admin=admin):
                continue
            if not option.matching.selects(index) or not self._has_room(option, index):
                continue
            if kind_of is not None:
                work.spend(SYMMETRY)
                if kind_of(candidate) in failed:
                    continue
            work.spend(CANDIDATE * (index - charged))
            charged = index
            taken = self._take(at.claim, option, index, must=False)
            if taken is None:
                continue
            yield at._replace(device=at.device + 1, start=index + 1)
            self._give_back(at.claim, taken)
            if self._is_too_large:
                return
            if self._steps > _PATIENCE and self._may_skip_equal_devices:
                kind_of = kind_of or self._symmetry.now()
                failed.add(kind_of(candidate))
        work.spend(CANDIDATE * (len(self._candidates) - charged))

    def _take(self, claim: int, option: _Option, index: int, *, must: bool) -> _Taken | None:
        """Gives a selectable device to the claim, if nothing is in the way.

        Raises:
            AllocationError: the claim must have the device, and forbids itself to.
        """
        self._work.spend(TAKEN)
        alternative, candidate = option.alternative, self._candidates[index]
        if not self._is_available(claim, alternative, candidate):
            return None
        drawn = self._draw(alternative, candidate)
        if drawn is None:
            return None
        constraints = self._constrain(claim, option, index)
        if constraints is None:
            self._ledger.put_back(drawn)
            if must and self._in_common:
                self.rests_on_wish = True  # a wish that cannot be fulfilled is no error
            elif must:
                raise AllocationError(
                    f"{alternative}: cannot add device {candidate.id} because a claim constraint "
                    "would not be satisfied"
                )
            return None
        taken = _Taken(candidate, drawn, constraints)
        if must and not self._has_room(option, index):
            self._forget(taken)
            return None
        share = option.matching.amounts(index) if self._state.is_shareable(candidate) else None
        if share is None:
            self._ledger.hold(candidate.id, claim, admin=bool(alternative.admin_access))
        elif not alternative.admin_access:
            self._ledger.share(candidate.id, share)
        self._chosen[claim].append(Choice(alternative, candidate, share))
        return taken

    def _is_available(self, claim: int, alternative: Alternative, candidate: Candidate) -> bool:
        """Whether the device may be given out, counters, constraints and capacities aside."""
        admin = bool(alternative.admin_access)
        if not self._ledger.is_free(candidate.id, claim, admin=admin):
            return False
        if not (admin or self._state.is_shareable(candidate)) and self._ledger.is_shared(
            candidate.id
        ):
            return False  # its driver has stopped to share it, and somebody still has a share
        if not self._state.supports(candidate):
            return False
        return not (
            self._features.device_taints and untolerated(candidate.device, alternative.tolerations)
        )

    def _draw(self, alternative: Alternative, candidate: Candidate) -> Drawn | None:
        """Takes what the device needs from its counters; None if there is too little."""
        has_paid = self._state.is_shareable(candidate) and self._ledger.is_shared(candidate.id)
        if has_paid or alternative.admin_access:
            return NOTHING_DRAWN
        return self._ledger.draw(candidate)

    def _has_room(self, option: _Option, index: int) -> bool:
        """Whether there is as much of the device's capacities as the request takes."""
        if not self._features.consumable_capacity:
            return True
        amounts = option.matching.amounts(index)
        if amounts is None:
            return False
        if option.alternative.admin_access:
            return fits(amounts, self._candidates[index].device.capacity)
        return self._ledger.has_room(self._candidates[index], amounts)

    def _give_back(self, claim: int, taken: _Taken) -> None:
        choice = self._chosen[claim].pop()
        if choice.share is None:
            self._ledger.let_go(taken.candidate.id)
        elif not choice.alternative.admin_access:
            self._ledger.unshare(taken.candidate.id)
        self._forget(taken)

    def _forget(self, taken: _Taken) -> None:
        for constraint in taken.constraints:
            constraint.remove()
        self._ledger.put_back(taken.drawn)

    def _constrain(
        self, claim: int, option: _Option, index: int
    ) -> tuple[Match | Distinct, ...] | None:
        """Adds the device to the constraints that mean the request; None if one refuses it."""
        added: list[Match | Distinct] = []
        self._work.spend(CONSTRAINT * len(self._rules[claim]))
        for rule in self._rules[claim]:
            if not option.alternative.is_meant_by(rule.requests):
                continue
            if rule.is_wish:
                values = option.matching.published(index, rule.attribute)
                if values is None:
                    continue
            else:
                values = option.matching.values(index, rule.attribute)
            if values is None or not rule.state.add(values):
                self.rests_on_wish |= rule.is_wish
                for constraint in added:
                    constraint.remove()
                return None
            added.append(rule.state)
        return tuple(added)

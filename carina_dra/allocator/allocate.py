"""Allocates claims on one node: the best devices by a policy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from carina_dra.allocator.errors import AllocationError, ExpressionError, NodeAllocationError
from carina_dra.allocator.group import GroupUses, in_use
from carina_dra.allocator.matching import KnownEvaluations
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate, InvalidPool
from carina_dra.allocator.preference import (
    FAR,
    UPSTREAM,
    Policy,
    Score,
    closeness,
    have_in_common,
    rank_devices,
    ranks,
    score,
)
from carina_dra.allocator.request import Claim, constrains_all
from carina_dra.allocator.result import allocation
from carina_dra.allocator.search import (
    Choice,
    CutShort,
    Found,
    Impossible,
    Matchings,
    Search,
    SearchOutcome,
)
from carina_dra.price import CANDIDATE
from carina_dra.resource import Allocation, ExactCount
from carina_dra.work import Work

_WISH_STEPS: Final = 1_000
"""The step limit of a search for devices that are close to each other."""
_STEPS_BEFORE_PARTS: Final = 5_000
"""After this many steps, each claim and request is searched for alone."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best devices for the claims on a node."""

    choices: tuple[tuple[Choice, ...], ...]
    """By claim, in the order of its requests."""
    score: Score
    """Compares the devices with those on other nodes."""
    steps: int
    """The number of steps of all searches."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """The devices of the claims."""

    allocations: tuple[Allocation, ...]
    """One per claim, in the order of the claims."""
    score: Score
    """Compares the allocation with those on other nodes."""
    steps: int
    """The number of steps of all searches."""


ChoiceResult: TypeAlias = Chosen | Impossible | CutShort
Answer: TypeAlias = Allocated | Impossible | CutShort


def allocate(
    claims: Sequence[Claim],
    state: NodeState,
    *,
    new_share_id: Callable[[], str],
    policy: Policy = UPSTREAM,
    max_steps: int | None = None,
    expired: Callable[[], bool] | None = None,
    work: Work | None = None,
) -> Answer:
    """Allocates devices of a node to all claims, the best devices by the policy.

    `new_share_id` returns a new UID for each share of a device; the other arguments are those of
    `choose`.

    Raises:
        AllocationError, OutOfStepsError: as for `choose`.
    """
    verdict = choose(claims, state, policy=policy, max_steps=max_steps, expired=expired, work=work)
    if not isinstance(verdict, Chosen):
        return verdict
    return write(claims, verdict, state, new_share_id)


def write(
    claims: Sequence[Claim], chosen: Chosen, state: NodeState, new_share_id: Callable[[], str]
) -> Allocated:
    """The allocations of the claims with the chosen devices.

    The claims may be others than those that were searched for, if their specs are equal.

    Raises:
        AllocationError: a slice's node selector has several terms, which the API forbids.
    """
    return Allocated(
        tuple(
            allocation(claim, choices, state.node, state.features, new_share_id)
            for claim, choices in zip(claims, chosen.choices, strict=True)
        ),
        chosen.score,
        chosen.steps,
    )


def choose(
    claims: Sequence[Claim],
    state: NodeState,
    *,
    policy: Policy = UPSTREAM,
    max_steps: int | None = None,
    expired: Callable[[], bool] | None = None,
    uses: GroupUses | None = None,
    least_distance: int = 0,
    among: int | None = None,
    known: KnownEvaluations | None = None,
    work: Work | None = None,
) -> ChoiceResult:
    """Chooses devices of a node for all claims, the best devices by the policy.

    The policy does not decide whether the claims can be allocated. All searches together stop with
    `CutShort` after `max_steps` steps, or when `expired` returns true. What is known
    already need not be computed: the `uses` of the node's groups, that no devices are closer than
    `least_distance`, that no devices can be chosen but those `among` the published (one a bit), and
    what is `known` of devices. All of it is charged to `work`.

    Raises:
        OutOfStepsError: the budget of the work is spent; nothing is known of the claims then.
        NodeAllocationError: no devices were found, and something of the node is wrong: a pool is
            invalid, or, with any policy but `upstream`, a selector fails on a device.
        ExpressionError: an expression does not compile.
        AllocationError: with policy `upstream`, the attempt fails, as upstream's does.
    """
    if uses is None:
        uses = in_use(state.ready, state.usage)
    if policy.devices is None:
        searches = _Searches(claims, state, state.published, known, max_steps, expired, work)
        outcome, distance = searches.any_devices(), 0
    else:
        ranked = rank_devices(state, uses, policy.devices, among)
        searches = _Searches(claims, state, ranked, known, max_steps, expired, work)
        try:
            outcome, distance = searches.best_devices(least_distance)
        except AllocationError:
            # The order of the policy has met an error that the published order may not meet.
            searches.matchings = Matchings(state.published, state.features, known, work)
            try:
                outcome = searches.any_devices()
                distance = searches.distance_of(outcome)
            except ExpressionError:
                raise
            except AllocationError as error:
                raise NodeAllocationError(str(error)) from error
    match outcome:
        case Found(choices=choices):
            return Chosen(
                choices,
                score(choices, distance, uses, policy.nodes),
                searches.steps,
            )
        case Impossible():
            invalid = [pool for pool in state.pools if isinstance(pool, InvalidPool)]
            if invalid:
                reasons = "; ".join(f"{pool.id}: {pool.reason}" for pool in invalid)
                raise NodeAllocationError(f"invalid resource pools were encountered: {reasons}")
            return Impossible(searches.steps)
        case CutShort():
            return CutShort(searches.steps)


class _Searches:
    """Searches for the same claims on the same node, which share a limit."""

    def __init__(
        self,
        claims: Sequence[Claim],
        state: NodeState,
        candidates: Sequence[Candidate],
        known: KnownEvaluations | None,
        max_steps: int | None,
        expired: Callable[[], bool] | None,
        work: Work | None,
    ) -> None:
        self.matchings = Matchings(candidates, state.features, known, work)
        self.steps = 0
        self._claims = claims
        self._state = state
        self._max_steps = max_steps
        self._expired = expired
        self._may_gain = any(pool.may_gain for pool in state.ready)
        self._impossible: dict[tuple[tuple[int, str], int], bool] = {}
        """Which alternatives of requests are impossible by themselves, where it was looked at."""

    def any_devices(self) -> SearchOutcome:
        """The first devices in the order of the candidates."""
        return self._find(self._claims)

    def best_devices(self, least_distance: int) -> tuple[SearchOutcome, int]:
        """The first alternatives that are possible, with them the closest devices; their distance.

        The alternatives are compared in the order of claims and requests, as upstream tries them.
        """
        prioritized = [
            (index, request.name)
            for index, claim in enumerate(self._claims)
            for request in claim.requests
            if request.is_prioritized
        ]
        several = asks_for_several(self._claims)
        first = dict.fromkeys(prioritized, 0)
        may_be_first = not any(self._is_impossible(request, 0) for request in prioritized)
        close = self._closest(first, least_distance) if several and may_be_first else None
        if isinstance(close, tuple):
            return close
        if isinstance(close, Impossible) and not prioritized:
            return close, FAR
        if prioritized and may_be_first and close is None:
            # Later ones may fail, such as one for all devices.
            outcome = self._find(_with_alternatives(self._claims, first))
            if isinstance(outcome, Found):
                return outcome, FAR if several else 0
        outcome = self._find(self._claims)
        if not isinstance(outcome, Found):
            return outcome, FAR
        if prioritized:
            outcome = self._earliest(outcome, prioritized)
        chosen = ranks(outcome.choices)
        if several and chosen != first:
            close = self._closest(chosen, 0)
            if isinstance(close, tuple):
                return close
        return outcome, FAR if several else 0

    def distance_of(self, outcome: SearchOutcome) -> int:
        """The distance between the devices that were found in whatever order."""
        if not isinstance(outcome, Found) or not asks_for_several(self._claims):
            return 0
        chosen = [choice.candidate for of_claim in outcome.choices for choice in of_claim]
        lists = self._state.features.list_attributes
        return next(
            (
                distance
                for distance, in_common in closeness(self._state.published)
                if all(have_in_common(chosen, name, lists=lists) for name in in_common)
            ),
            FAR,
        )

    def _closest(
        self, alternatives: Mapping[tuple[int, str], int], least_distance: int
    ) -> tuple[Found, int] | Impossible | None:
        """The closest devices for these alternatives; None if all are far from each other.

        `Impossible` if there are none, close or not.
        """
        claims = _with_alternatives(self._claims, alternatives)
        tried = set()
        for distance, in_common in closeness(self._state.published):
            # Without NVLink, two distances mean the same attributes.
            if distance < least_distance or in_common in tried:
                continue
            tried.add(in_common)
            with suppress(AllocationError):  # only the search without a wish may fail
                search = self._begin(claims, in_common)
                outcome = self._run(search, self._wish_limit(), 0)
                if isinstance(outcome, Found):
                    return outcome, distance
                if isinstance(outcome, Impossible) and not search.rests_on_wish:
                    return outcome
        return None

    def _earliest(self, outcome: Found, prioritized: Sequence[tuple[int, str]]) -> Found:
        """The outcome with the first alternatives that are possible together."""
        fixed: dict[tuple[int, str], int] = {}
        for request in prioritized:
            for earlier in range(ranks(outcome.choices)[request]):
                if self._is_impossible(request, earlier):
                    continue
                asked = _with_alternatives(self._claims, {**fixed, request: earlier})
                with suppress(AllocationError):
                    attempt = self._search(asked, (), self._limit(_STEPS_BEFORE_PARTS))
                    if isinstance(attempt, Found):
                        outcome = attempt
                        break
            fixed[request] = ranks(outcome.choices)[request]
        return outcome

    def _is_impossible(self, prioritized: tuple[int, str], rank: int) -> bool:
        """Whether an alternative of a request is impossible by itself, and so with all others.

        A search for all would come back to it with each choice of devices for earlier requests.
        """
        if self._may_gain:
            return False
        key = prioritized, rank
        if key not in self._impossible:
            index, name = prioritized
            claim = self._claims[index]
            part = replace(
                claim, requests=tuple(request for request in claim.requests if request.name == name)
            )
            self._impossible[key] = False
            with suppress(AllocationError):
                alone = _with_alternatives([part], {(0, name): rank})
                outcome = self._search(alone, (), self._wish_limit())
                self._impossible[key] = isinstance(outcome, Impossible)
        return self._impossible[key]

    def _find(self, claims: Sequence[Claim]) -> SearchOutcome:
        """Searches; before a long search goes on, each part of the claims must be possible."""
        search = self._begin(claims)
        outcome = self._run(search, self._limit(_STEPS_BEFORE_PARTS), 0)
        if not isinstance(outcome, CutShort) or self._is_over():
            return outcome
        # Where a device can make the search fail, upstream's might come to it before the end.
        is_certain = not (self._may_fail() or self._may_gain)
        for part in _parts(claims) if is_certain else ():
            alone = self._search([part], (), self._limit(_STEPS_BEFORE_PARTS))
            if isinstance(alone, Impossible):
                return Impossible(self.steps)
        return self._run(search, self._limit(None), outcome.steps)

    def _may_fail(self) -> bool:
        """Whether a request fails on a device, or because of those that others have."""
        if constrains_all(self._claims):
            return True
        alternatives = (
            alternative
            for claim in self._claims
            for request in claim.requests
            for alternative in request.alternatives
        )
        try:
            for matching in map(self.matchings.of, alternatives):
                self.matchings.work.spend(CANDIDATE * len(self.matchings.candidates))
                for index in range(len(self.matchings.candidates)):
                    matching.selects(index)
                    matching.amounts(index)
        except AllocationError:
            return True
        return any(
            constraint.rule.name in alternative.derived
            for claim in self._claims
            for constraint in claim.constraints
            for request in claim.requests
            for alternative in request.alternatives
        )

    def _search(
        self, claims: Sequence[Claim], in_common: Sequence[str], limit: int | None
    ) -> SearchOutcome:
        return self._run(self._begin(claims, in_common), limit, 0)

    def _begin(self, claims: Sequence[Claim], in_common: Sequence[str] = ()) -> Search:
        return Search(claims, self._state, self.matchings, in_common=in_common)

    def _run(self, search: Search, limit: int | None, already: int) -> SearchOutcome:
        """Runs a search for `limit` steps after those that it has taken `already`."""
        outcome = search.run(None if limit is None else already + limit, self._expired)
        self.steps += outcome.steps - already
        return outcome

    def _limit(self, limit: int | None) -> int | None:
        """The steps that a search may take."""
        if self._max_steps is None:
            return limit
        left = max(0, self._max_steps - self.steps)
        return left if limit is None else min(limit, left)

    def _wish_limit(self) -> int:
        """Wishes leave half of the steps to the search that decides."""
        if self._max_steps is None:
            return _WISH_STEPS
        return max(0, min(_WISH_STEPS, self._max_steps // 2 - self.steps))

    def _is_over(self) -> bool:
        if self._max_steps is not None and self.steps >= self._max_steps:
            return True
        return self._expired is not None and self._expired()


def _with_alternatives(
    claims: Sequence[Claim], chosen: Mapping[tuple[int, str], int]
) -> list[Claim]:
    """The claims with only the chosen alternatives, by claim and request."""
    if not chosen:
        return list(claims)
    return [
        replace(
            claim,
            requests=tuple(
                request
                if (rank := chosen.get((index, request.name))) is None
                else replace(request, alternatives=(request.alternatives[rank],))
                for request in claim.requests
            ),
        )
        for index, claim in enumerate(claims)
    ]


def _parts(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Each claim, and each request of it. If a part is impossible, so are the claims."""
    for claim in claims:
        if len(claims) > 1:
            yield claim
        if len(claim.requests) > 1:
            yield from (replace(claim, requests=(request,)) for request in claim.requests)


def asks_for_several(claims: Sequence[Claim]) -> bool:
    """Whether the claims may get more than one device, so that it matters how close they are."""
    requests = [request for claim in claims for request in claim.requests]
    alternatives = [alternative for request in requests for alternative in request.alternatives]
    return len(requests) > 1 or any(
        alternative.mode != ExactCount(1) for alternative in alternatives
    )

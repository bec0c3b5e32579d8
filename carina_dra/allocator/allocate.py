"""One question, answered: which devices of a node do these claims get?"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.group import Uses, in_use
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate, InvalidPool
from carina_dra.allocator.preference import FAR, UPSTREAM, Policy, Score, closeness, in_order, score
from carina_dra.allocator.request import Claim
from carina_dra.allocator.result import allocation
from carina_dra.allocator.search import CutShort, Found, Impossible, Outcome, search
from carina_dra.resource import Allocation, ExactCount

_STEPS_FOR_A_WISH: Final = 1_000
"""After so many steps devices that are less close to each other will do."""
_STEPS_BEFORE_DOUBT: Final = 5_000
"""After so many steps it is worth asking whether each request could be satisfied alone."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """The claims get these."""

    allocations: tuple[Allocation, ...]
    """One a claim, in the claims' order."""
    score: Score
    """To compare it with what other nodes have."""
    steps: int
    """How many the search took."""


Answer: TypeAlias = Allocated | Impossible | CutShort


def allocate(
    claims: Sequence[Claim],
    state: NodeState,
    *,
    new_share_id: Callable[[], str],
    policy: Policy = UPSTREAM,
    max_steps: int | None = None,
) -> Answer:
    """Looks for devices for all claims on a node, the best by the policy.

    Whether there are any does not depend on the policy. `new_share_id` gives a fresh UID for each
    share of a device. After `max_steps` steps the search gives up and says so.

    Raises:
        NodeAllocationError: nothing was found, but a pool of the node is invalid.
        AllocationError: there is no answer, on this node or any other.
    """
    uses = in_use(state.ready, state.usage)
    outcome, distance = _best(claims, state, uses, policy, max_steps)
    match outcome:
        case Found(choices=choices, steps=steps):
            return Allocated(
                tuple(
                    allocation(claim, chosen, state.node, state.features, new_share_id)
                    for claim, chosen in zip(claims, choices, strict=True)
                ),
                score(choices, distance, uses, policy),
                steps,
            )
        case Impossible():
            invalid = [pool for pool in state.pools if isinstance(pool, InvalidPool)]
            if invalid:
                reasons = "; ".join(f"{pool.id}: {pool.reason}" for pool in invalid)
                raise NodeAllocationError(f"invalid resource pools were encountered: {reasons}")
        case CutShort():
            pass
    return outcome


def _best(
    claims: Sequence[Claim],
    state: NodeState,
    uses: Uses,
    policy: Policy,
    max_steps: int | None,
) -> tuple[Outcome, int]:
    """The outcome, and how far its devices are from each other: 0 is the closest."""
    find = partial(_find, claims, state)
    if policy.devices is None:
        return find(max_steps=max_steps), 0
    candidates = in_order(state, uses, policy.devices)
    find = partial(find, candidates=candidates)
    if not _wants_several(claims):
        return find(max_steps=max_steps), 0
    a_few = _STEPS_FOR_A_WISH if max_steps is None else min(max_steps, _STEPS_FOR_A_WISH)
    for distance, in_common in closeness(candidates):
        with suppress(AllocationError):  # of a preference; the search without one decides
            outcome = find(in_common=in_common, max_steps=a_few)
            if isinstance(outcome, Found):
                return outcome, distance
    return find(max_steps=max_steps), FAR


def _find(
    claims: Sequence[Claim],
    state: NodeState,
    *,
    candidates: Sequence[Candidate] | None = None,
    in_common: Sequence[str] = (),
    max_steps: int | None = None,
) -> Outcome:
    """Searches; where that takes long, asks first whether a part of it cannot be had at all."""
    ask = partial(search, state=state, candidates=candidates)
    limit = _STEPS_BEFORE_DOUBT
    if max_steps is not None and max_steps <= limit:
        return ask(claims, in_common=in_common, max_steps=max_steps)
    outcome = ask(claims, in_common=in_common, max_steps=limit)
    if not isinstance(outcome, CutShort):
        return outcome
    for part in _parts(claims):
        with suppress(AllocationError):  # if it counts, the whole search will come upon it
            if isinstance(ask([part], max_steps=limit), Impossible):
                return Impossible(outcome.steps)
    return ask(claims, in_common=in_common, max_steps=max_steps)


def _parts(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Each claim, and each request of a claim; what cannot be had of these cannot be had at all."""
    for claim in claims:
        yield claim
        if len(claim.requests) > 1:
            yield from (replace(claim, requests=(request,)) for request in claim.requests)


def _wants_several(claims: Sequence[Claim]) -> bool:
    requests = [request for claim in claims for request in claim.requests]
    alternatives = [alternative for request in requests for alternative in request.alternatives]
    return len(requests) > 1 or any(each.mode != ExactCount(1) for each in alternatives)

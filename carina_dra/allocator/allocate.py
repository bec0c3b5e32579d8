"""Allocates claims on one node: the best devices by a policy."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.group import Uses, in_use
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate, InvalidPool
from carina_dra.allocator.preference import (
    FAR,
    UPSTREAM,
    Policy,
    Score,
    closeness,
    rank_devices,
    score,
)
from carina_dra.allocator.request import Claim
from carina_dra.allocator.result import allocation
from carina_dra.allocator.search import CutShort, Found, Impossible, Outcome, search
from carina_dra.resource import Allocation, ExactCount

_PREFERENCE_STEPS: Final = 1_000
"""The step limit of a search for devices that are close to each other."""
_STEPS_BEFORE_PARTS: Final = 5_000
"""After this many steps, each claim and request is searched for alone."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """The devices of the claims."""

    allocations: tuple[Allocation, ...]
    """One per claim, in the order of the claims."""
    score: Score
    """Compares the allocation with those on other nodes."""
    steps: int
    """The number of steps of the search."""


Answer: TypeAlias = Allocated | Impossible | CutShort


def allocate(
    claims: Sequence[Claim],
    state: NodeState,
    *,
    new_share_id: Callable[[], str],
    policy: Policy = UPSTREAM,
    max_steps: int | None = None,
) -> Answer:
    """Allocates devices of a node to all claims, the best devices by the policy.

    The policy does not decide whether the claims can be allocated. `new_share_id` returns a new UID
    for each share of a device. After `max_steps` steps the search stops with `CutShort`.

    Raises:
        NodeAllocationError: no devices were found, and a pool of the node is invalid.
        AllocationError: no node can satisfy the claims: a claim, class or slice is not valid.
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
    """The outcome, and the distance between its devices: 0 is the closest."""
    find = partial(_find, claims, state)
    if policy.devices is None:
        return find(max_steps=max_steps), 0
    candidates = rank_devices(state, uses, policy.devices)
    find = partial(find, candidates=candidates)
    if not _asks_for_several(claims):
        return find(max_steps=max_steps), 0
    limit = _PREFERENCE_STEPS if max_steps is None else min(max_steps, _PREFERENCE_STEPS)
    for distance, in_common in closeness(candidates):
        with suppress(AllocationError):  # only the search without a preference may fail
            outcome = find(in_common=in_common, max_steps=limit)
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
    """Searches; before a long search goes on, each part of the claims must be possible alone."""
    ask = partial(search, state=state, candidates=candidates)
    limit = _STEPS_BEFORE_PARTS
    if max_steps is not None and max_steps <= limit:
        return ask(claims, in_common=in_common, max_steps=max_steps)
    outcome = ask(claims, in_common=in_common, max_steps=limit)
    if not isinstance(outcome, CutShort):
        return outcome
    for part in _parts(claims):
        with suppress(AllocationError):  # the search for all claims raises it if it matters
            if isinstance(ask([part], max_steps=limit), Impossible):
                return Impossible(outcome.steps)
    return ask(claims, in_common=in_common, max_steps=max_steps)


def _parts(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Each claim, and each request of it. If a part is impossible, so are the claims."""
    for claim in claims:
        yield claim
        if len(claim.requests) > 1:
            yield from (replace(claim, requests=(request,)) for request in claim.requests)


def _asks_for_several(claims: Sequence[Claim]) -> bool:
    requests = [request for claim in claims for request in claim.requests]
    alternatives = [alternative for request in requests for alternative in request.alternatives]
    return len(requests) > 1 or any(
        alternative.mode != ExactCount(1) for alternative in alternatives
    )

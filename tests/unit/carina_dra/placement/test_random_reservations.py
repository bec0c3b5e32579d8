"""Claims of reservations get the best node of a changing cluster, as its nodes one by one say."""

from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from carina_dra.allocator.allocate import Chosen, choose
from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.preference import Policy, Score
from carina_dra.placement.choice.placer import Placed, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.reservation import Reservation
from carina_dra.resource import DeviceResult
from tests.conformance.answer import share_ids
from tests.length import seeds
from tests.samples.followed_cluster import FollowedCluster

_CLUSTERS = seeds(20)
_EVENTS = 16
_RESERVED = 4
"""The number of devices that a reservation keeps at most."""

_Device = tuple[str, str, str]


@pytest.mark.parametrize("policy", ["binpack", "spread", "fragmentation", "spread/binpack"])
def test_claims_with_reservations_get_the_best_node(policy: str) -> None:
    outcomes: Counter[str] = Counter()
    for seed in _CLUSTERS:
        followed, random = FollowedCluster(seed), Random(seed)
        placer = Placer(followed.cluster, Policy.parse(policy), new_share_id=share_ids())
        for event in range(_EVENTS):
            followed.objects.change()
            followed.follow()
            question = followed.request()
            if question is None:
                continue
            _, request = question
            _change_reservations(followed.cluster, request, random)
            for _ in range(2):  # the second time, what was found is remembered
                outcome = _compare(followed.cluster, placer, request, Policy.parse(policy))
                assert " instead of " not in outcome, f"{seed}, {event}: {outcome}"
                outcomes[outcome] += 1
    assert outcomes["placed"] > max(4 * len(_CLUSTERS), 50 * outcomes["placed better"])


def _change_reservations(cluster: Cluster, request: PlacementRequest, random: Random) -> None:
    """Keeps some devices for the claims, and some for others."""
    owners = frozenset(claim.source.key for claim in request.claims)
    for name, claims in (("kept", owners), ("of others", frozenset(["default/another"]))):
        some = random.sample(sorted(cluster.nodes), min(2, len(cluster.nodes)))
        free = sorted({device for node in some for device in _free(cluster, node)})
        if random.random() < 0.2:
            cluster.unreserve(name)
        elif free:
            kept = random.sample(free, min(len(free), random.randint(1, _RESERVED)))
            results = (DeviceResult("r", *device) for device in kept)
            cluster.reserve(name, Reservation(tuple(results), claims))


def _free(cluster: Cluster, node: str) -> list[_Device]:
    """The devices of a node that nobody has, and that cannot be shared."""
    with suppress(AllocationError):
        state = cluster.state(node)
        return [
            (one.id.driver, one.id.pool, one.id.device)
            for one in state.published
            if one.id not in state.usage and not one.device.allow_multiple_allocations
        ]
    return []


def _compare(cluster: Cluster, placer: Placer, request: PlacementRequest, policy: Policy) -> str:
    """What is answered, if it is as the nodes one by one say; else what differs."""
    expected = _best(cluster, request, policy)
    try:
        found = placer.place(request)
    except AllocationError as error:
        return "error" if expected is type(error) else f"{error!r} instead of {expected}"
    if not isinstance(found, Placed):
        return "not placed" if expected is None else f"{found} instead of {expected}"
    answer = found.allocated.score, found.node
    if not isinstance(expected, tuple) or answer > expected:
        return f"{answer} instead of {expected}"
    return "placed" if answer == expected else "placed better"


def _best(
    cluster: Cluster, request: PlacementRequest, policy: Policy
) -> tuple[Score, str] | type[AllocationError] | None:
    """The best score and its node, or the error of a claim that no node can have.

    A node by itself also evaluates selectors for devices that cannot be had. If one fails there, it
    falls back to upstream's order, and may find devices that are farther from each other.
    """
    reserved = cluster.reserved_for([claim.source.key for claim in request.claims])
    best: tuple[Score, str] | None = None
    for node in sorted(cluster.nodes):
        try:
            verdict = choose(request.claims, cluster.state(node, reserved), policy=policy)
        except AllocationError as error:
            if not isinstance(error, NodeAllocationError):
                return type(error)
            continue
        if isinstance(verdict, Chosen) and (best is None or verdict.score < best[0]):
            best = verdict.score, node
    return best

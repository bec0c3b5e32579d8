"""Claims of reservations get the best node of a changing cluster, as its nodes one by one say."""

import os
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from carina_dra.allocator.allocate import Chosen, choose
from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.preference import Policy
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.placer import Placed, PlacementRequest, Placer
from carina_dra.placement.reservation import Reservation
from carina_dra.resource import DeviceResult
from tests.conformance.answer import share_ids
from tests.samples.followed_cluster import FollowedCluster

_CLUSTERS = int(os.environ.get("CARINA_RANDOM_CLUSTERS", "20"))
_EVENTS = 16
_RESERVED = 4
"""The number of devices that a reservation keeps at most."""

_Device = tuple[str, str, str]


@pytest.mark.parametrize("policy", ["binpack", "spread", "spread/binpack"])
def test_claims_with_reservations_get_the_best_node(policy: str) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(_CLUSTERS):
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
                assert outcome in {"placed", "not placed", "error"}, f"{seed}, {event}: {outcome}"
                outcomes[outcome] += 1
    assert outcomes["placed"] > 4 * _CLUSTERS


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
    """What is answered if it is as the nodes one by one say; else what differs."""
    expected = _best(cluster, request, policy)
    try:
        found = placer.place(request)
    except AllocationError as error:
        return "error" if expected is type(error) else f"{error!r} instead of {expected}"
    if not isinstance(found, Placed):
        return "not placed" if expected is None else f"{found} instead of {expected}"
    devices = [
        (one.driver, one.pool, one.device)
        for allocation in found.allocated.allocations
        for one in allocation.devices.results
    ]
    answer = found.node, devices
    return "placed" if answer == expected else f"{answer} instead of {expected}"


def _best(
    cluster: Cluster, request: PlacementRequest, policy: Policy
) -> tuple[str, list[_Device]] | type[AllocationError] | None:
    """The best node and the devices there, or the error of a claim that no node can have."""
    reserved = cluster.reserved_for([claim.source.key for claim in request.claims])
    best: tuple[str, Chosen] | None = None
    for node in sorted(cluster.nodes):
        try:
            verdict = choose(request.claims, cluster.state(node, reserved), policy=policy)
        except AllocationError as error:
            if not isinstance(error, NodeAllocationError):
                return type(error)
            continue
        if isinstance(verdict, Chosen) and (best is None or verdict.score < best[1].score):
            best = node, verdict
    if best is None:
        return None
    chosen = [choice.candidate.id for of_claim in best[1].choices for choice in of_claim]
    return best[0], [(one.driver, one.pool, one.device) for one in chosen]

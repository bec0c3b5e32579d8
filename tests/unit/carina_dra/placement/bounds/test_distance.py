"""How close devices of a node could be: never farther than devices that there are."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import Allocated, allocate
from carina_dra.allocator.group import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.preference import CLOSENESS, FAR, Policy, closeness, have_in_common
from carina_dra.placement.bounds.demand import Demand
from carina_dra.placement.bounds.distance import least_distance
from carina_dra.placement.bounds.packing import Packing, Want
from carina_dra.placement.choice.placer import PlacedClaims
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.offer import PoolState
from carina_dra.resource import ResourceClaim
from tests.samples.fleet import (
    claim,
    claim_of,
    cluster,
    give,
    gpu,
    model_is,
    network,
    placer_of,
    request,
)
from tests.samples.random_questions import questions


def _states(of: Cluster, node: str = "a") -> list[PoolState]:
    return [of.pool_state(pool) for pool in of.offer(node).ready]


def _least(of: Cluster, count: int) -> int:
    """The least distance of so many devices of the node `a`."""
    states = _states(of)
    every = (1 << sum(len(state.offered.devices) for state in states)) - 1
    return least_distance([Want(every, count)], Packing([every], states), of.offer("a"))


def _tried(devices: Sequence[Candidate], count: int, *, lists: bool) -> int:
    """The least distance of so many of the devices, found by trying all."""
    return min(
        (
            distance
            for distance, attributes in closeness(devices)
            for chosen in combinations(devices, count)
            if all(have_in_common(chosen, name, lists=lists) for name in attributes)
        ),
        default=FAR,
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 3))
def test_no_devices_are_closer_than_the_least_distance(seed: int, count: int) -> None:
    for question in questions(seed, Policy()):
        states, lists = question.states, question.cluster.features.list_attributes
        devices = [device for state in states for device in state.offered.devices]
        every = (1 << len(devices)) - 1
        wants = [Want(every, count, draws=False)]
        least = least_distance(wants, Packing([every], states), question.offer)
        assert least <= _tried(devices, count, lists=lists)


def test_devices_are_as_close_as_their_places_say() -> None:
    devices = [
        gpu("g0", numa=0, root="r0", nvlink="n"),
        gpu("g1", numa=0, root="r0", nvlink="n"),
        gpu("g2", numa=0, root="r1", nvlink="n"),
        gpu("g3", numa=1, root="r2", nvlink="n"),
    ]
    nodes = cluster(a=devices)
    by_count = [CLOSENESS[_least(nodes, count)] for count in (2, 3, 4)]
    assert by_count == [(NVLINK_DOMAIN, PCIE_ROOT), (NVLINK_DOMAIN, NUMA_NODE), (NVLINK_DOMAIN,)]
    assert _least(nodes, 5) == FAR


def test_device_without_a_place_is_close_to_all() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2")])
    assert CLOSENESS[_least(nodes, 2)] == (NVLINK_DOMAIN, NUMA_NODE)
    assert _least(nodes, 3) == FAR


def test_attribute_that_no_device_has_says_nothing() -> None:
    assert _least(cluster(a=[gpu("g0"), gpu("g1")]), 2) == FAR


def test_requests_must_all_have_their_devices_in_one_place() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=0), gpu("g2", numa=1)])
    states = _states(nodes)
    near = CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE))

    def least(*masks: int) -> int:
        packing = Packing([0b111], states)
        return least_distance([Want(mask, 1) for mask in masks], packing, nodes.offer("a"))

    assert least(0b001, 0b010) == near
    assert least(0b001, 0b100) == FAR
    assert least(0b011, 0b001) == near
    assert least(0b001, 0b001) == FAR


def test_devices_of_several_pools_may_be_close() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    nodes.put_slice(network("more", gpu("m0", numa=1), nodeName="a"))
    assert _least(nodes, 2) == CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE))


def test_many_combinations_of_places_are_taken_to_fit() -> None:
    devices = [gpu(f"g{n}", nvlink=f"n{n % 17}", root=f"r{n // 17}") for n in range(17 * 17)]
    assert _least(cluster(a=devices), 2) == 0


# The least distance of devices for claims, before it is known which devices they select.


def _least_of_claims(of: Cluster, *claims: ResourceClaim) -> int:
    demand = Demand(request(*claims).claims, of.features)
    return demand.least_distance(of.offer("a"), _states(of))


def _claim(*names: str, constraints: Sequence[Any], **exactly: Any) -> ResourceClaim:
    asked = {"deviceClassName": "gpu", **exactly}
    return claim_of(*({"name": n, "exactly": asked} for n in names), constraints=constraints)


def _match(attribute: str, *requests: str) -> dict[str, Any]:
    return {"matchAttribute": attribute, **({"requests": [*requests]} if requests else {})}


_SEEDS = 300
_ROOT_AND_NUMA = CLOSENESS.index((NVLINK_DOMAIN, PCIE_ROOT))
_NUMA = CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE))
_CROSSING = [gpu(f"g{n}", root=f"r{n // 2}", numa=n % 2) for n in range(8)]
"""The devices of a root are on different NUMA nodes."""


def _random_nodes(random: Random) -> Cluster:
    """Nodes of two pools, with some of the devices in use."""
    nodes = cluster()
    for node in "abc":
        nodes.put_node(Node(node))
        for pool in "xy":
            devices = [_random_gpu(random, f"g{n}") for n in range(random.randint(2, 5))]
            nodes.put_slice(network(f"{node}-{pool}", *devices, nodeName=node))
    for _ in range(random.randint(0, 4)):
        give(nodes, claim())
    return nodes


def _random_gpu(random: Random, name: str) -> dict[str, Any]:
    places: dict[str, Any] = {"numa": random.randint(0, 1), "root": f"r{random.randint(0, 2)}"}
    if random.random() < 0.2:
        places["nvlink"] = f"n{random.randint(0, 1)}"
    if random.random() < 0.2:
        places.pop(random.choice(sorted(places)))
    shared = {"allowMultipleAllocations": True} if random.random() < 0.1 else {}
    return {**gpu(name, **places), **shared}


def _random_claim(random: Random) -> ResourceClaim:
    names = "rst"[: random.randint(1, 3)]
    requests: list[dict[str, Any]] = []
    for name in names:
        asked = {"deviceClassName": "gpu", "count": random.randint(1, 2)}
        if random.random() < 0.2:
            alternatives = [{"name": "x", **asked}, {"name": "y", "deviceClassName": "gpu"}]
            requests.append({"name": name, "firstAvailable": alternatives})
        else:
            requests.append({"name": name, "exactly": asked})
            if random.random() < 0.1:
                asked["adminAccess"] = True
    constraints = []
    for _ in range(random.randint(1, 2)):
        meant = random.sample(names, random.randint(1, len(names)))
        meant = [
            f"{n}/x"
            if "firstAvailable" in requests[names.index(n)] and random.random() < 0.5
            else n
            for n in meant
        ]
        attribute = random.choice([NUMA_NODE, PCIE_ROOT, NVLINK_DOMAIN])
        constraints.append(_match(attribute, *(meant if random.random() < 0.6 else ())))
    if random.random() < 0.2:
        constraints.append({"distinctAttribute": PCIE_ROOT})
    return claim_of(*requests, constraints=constraints)


@pytest.mark.parametrize("policy", ["binpack", "spread", "fragmentation"])
def test_random_claims_are_never_closer_than_estimated_and_get_the_best_node(policy: str) -> None:
    """The estimate must be exact for some, too low for others, and above that of no constraints."""
    found = Counter[str]()
    for seed in range(_SEEDS):
        random = Random(seed)
        nodes = _random_nodes(random)
        asked = request(*(_random_claim(random) for _ in range(random.randint(1, 2))))
        demand = Demand(asked.claims, nodes.features)
        scores = []
        for node in nodes.nodes:
            answer = allocate(
                asked.claims,
                nodes.state(node),
                new_share_id=lambda: "share",
                policy=Policy.parse(policy),
            )
            if isinstance(answer, Allocated):
                least = demand.least_distance(nodes.offer(node), _states(nodes, node))
                assert least <= answer.score.distance, seed
                found["exact" if least == answer.score.distance else "too low"] += 1
                found["above nothing"] += least > 0
                scores.append((answer.score, node))
        placed = placer_of(nodes, policy).place(asked)
        best = (placed.allocated.score, placed.node) if isinstance(placed, PlacedClaims) else None
        assert best == min(scores, default=None), seed
    assert min(found[kind] for kind in ("exact", "too low", "above nothing")) > 20


def test_devices_that_match_in_one_attribute_cannot_be_close_in_one_that_crosses_it() -> None:
    two = _claim("gpus", count=2, constraints=[_match(NUMA_NODE)])
    assert _least_of_claims(cluster(a=_CROSSING), two) == _NUMA
    near = [*_CROSSING, gpu("g8", root="r0", numa=0)]
    assert _least_of_claims(cluster(a=near), two) == _ROOT_AND_NUMA


def test_each_constraint_needs_its_devices_within_the_place() -> None:
    pairs = [_claim("gpus", count=2, constraints=[_match(PCIE_ROOT)]) for _ in range(2)]
    assert _least_of_claims(cluster(a=_CROSSING), *pairs) == FAR
    near = [gpu(f"g{n}", root=f"r{n // 2}", numa=n // 4) for n in range(8)]
    assert _least_of_claims(cluster(a=near), *pairs) == _NUMA


def test_constraints_on_different_requests_are_each_looked_at() -> None:
    chain = [_match(PCIE_ROOT, "a", "b"), _match(NUMA_NODE, "b", "c")]
    asked = _claim("a", "b", "c", constraints=chain)
    assert _least_of_claims(cluster(a=_CROSSING), asked) == FAR
    near = [*_CROSSING, *(gpu(f"g{n}", root="r9", numa=0) for n in (8, 9))]
    assert _least_of_claims(cluster(a=near), asked) == _NUMA


def test_only_free_devices_may_be_close() -> None:
    nodes = cluster(a=[*_CROSSING, gpu("g8", root="r0", numa=0, model="A100")])
    two = _claim("gpus", count=2, constraints=[_match(NUMA_NODE)])
    admin = _claim("gpus", count=2, adminAccess=True, constraints=[_match(NUMA_NODE)])
    assert _least_of_claims(nodes, two) == _ROOT_AND_NUMA
    assert give(nodes, claim(selector=model_is("A100"))) == ["a/g8"]
    assert _least_of_claims(nodes, two) == _NUMA
    assert _least_of_claims(nodes, admin) == _ROOT_AND_NUMA


def test_shares_of_one_device_are_close_but_two_devices_for_a_request_may_not_be() -> None:
    crossing = [{**one, "allowMultipleAllocations": True} for one in _CROSSING]
    shares = _claim("r", "s", constraints=[_match(NUMA_NODE)])
    assert _least_of_claims(cluster(a=crossing), shares) == _ROOT_AND_NUMA
    two = _claim("r", "s", count=2, constraints=[_match(NUMA_NODE)])
    assert _least_of_claims(cluster(a=crossing), two) == _NUMA


def test_alternative_that_need_not_match_may_be_close() -> None:
    alternatives = [{"name": name, "deviceClassName": "gpu", "count": 2} for name in ("x", "y")]
    asked = {"name": "r", "firstAvailable": alternatives}
    some, every = (claim_of(asked, constraints=[_match(NUMA_NODE, name)]) for name in ("r/x", "r"))
    assert _least_of_claims(cluster(a=_CROSSING), some) == _ROOT_AND_NUMA
    assert _least_of_claims(cluster(a=_CROSSING), every) == _NUMA


def test_one_device_is_at_no_distance() -> None:
    one = _claim("gpu", constraints=[_match(NUMA_NODE), _match(PCIE_ROOT)])
    assert _least_of_claims(cluster(a=_CROSSING), one) == 0


def test_distance_is_not_known_for_selectors_that_do_not_compile() -> None:
    """Their error is that of all nodes, and the first node is named."""
    wrong = [{"cel": {"expression": "device.nothing"}}]
    constraints = [_match(NUMA_NODE)]
    asked = _claim("gpus", count=2, selectors=wrong, constraints=constraints)
    assert _least_of_claims(cluster(a=_CROSSING), asked) == 0

"""What holds of every allocation, whatever the cluster and the claims."""

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.allocator.search import Impossible
from carina_dra.allocator.usage import DeviceId, SharedUse, Usage
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceClass,
    DeviceResult,
    ResourceClaim,
    ResourceSlice,
    decode,
)
from tests.conformance.answer import answer, attempt, share_ids
from tests.length import seeds
from tests.model.checker import violation
from tests.model.problem import Problem
from tests.samples.allocator_cases import random_case
from tests.samples.feature_gates import features_of

_POLICIES = ("upstream", "binpack", "spread", "spread/binpack")
_SEEDS = seeds(300)


def _case(seed: int) -> dict[str, Any]:
    return random_case(Random(seed))


@pytest.mark.parametrize("policy", _POLICIES)
def test_allocations_are_valid(policy: str) -> None:
    allocated = 0
    for seed in _SEEDS:
        given = answer(_case(seed), Policy.parse(policy)).get("allocations")
        if given:
            allocated += 1
            assert violation(Problem(_case(seed)), given) is None, f"seed {seed}"
    assert allocated > len(_SEEDS) / 5


@pytest.mark.parametrize("policy", _POLICIES)
def test_order_of_input_does_not_matter(policy: str) -> None:
    for seed in _SEEDS:
        case = _case(seed)
        expected = answer(case, Policy.parse(policy))
        for name in ("slices", "classes", "allocatedDevices", "allocatedSharedDevices"):
            Random(seed).shuffle(case[name])
        assert answer(case, Policy.parse(policy)) == expected, f"seed {seed}"


def test_releasing_undoes_allocating() -> None:
    device = DeviceId("d", "p", "x")
    before = Usage({device: 1}, {DeviceId("d", "p", "y"): SharedUse(2, {"memory": 5})})
    for seed in _SEEDS:
        results = [
            decode(Allocation, allocation).devices.results
            for allocation in answer(_case(seed)).get("allocations", ())
        ]
        added = before
        for of_claim in results:
            added = added.plus(of_claim)
        for of_claim in results:
            added = added.minus(of_claim)
        assert added == before, f"seed {seed}"


def _cluster(
    case: Mapping[str, Any],
) -> tuple[Cluster, dict[str, DeviceClass], list[ResourceClaim]]:
    gates = [gate for feature in case["features"] for gate in feature.split("+")]
    cluster = Cluster(features_of(gate for gate in gates if "Status" not in gate))
    cluster.put_node(Node.of(case["node"]))
    for body in case["slices"]:
        cluster.put_slice(decode(ResourceSlice, body))
    classes = [decode(DeviceClass, body) for body in case["classes"]]
    claims = [decode(ResourceClaim, body) for body in case["claims"]]
    results = [DeviceResult(request="r", **device) for device in case["allocatedDevices"]]
    for number, shared in enumerate(case["allocatedSharedDevices"]):
        named = {name: shared[name] for name in ("driver", "pool", "device")}
        amounts = {
            name: Quantity.parse(text)
            for consumed in case["consumedCapacity"]
            if named.items() <= consumed.items()
            for name, text in consumed["consumedCapacity"].items()
        }
        results.append(
            DeviceResult(request="r", **named, share_id=str(number), consumed_capacity=amounts)
        )
    cluster.allocate("others/claim", Allocation(DeviceAllocation(tuple(results))))
    return cluster, {known.metadata.name: known for known in classes}, claims


@pytest.mark.parametrize("policy", _POLICIES)
def test_whether_claims_fit_does_not_depend_on_the_policy(policy: str) -> None:
    for seed in _SEEDS:
        case = _case(seed)
        expected = answer(case)
        if "error" in expected:
            continue
        cluster, classes, claims = _cluster(case)
        placer = Placer(cluster, Policy.parse(policy), new_share_id=share_ids())
        placement = placer.place(PlacementRequest.of(claims, classes, cluster.features))
        assert isinstance(placement, PlacedClaims) == ("allocations" in expected), f"seed {seed}"


@given(st.lists(st.booleans(), min_size=1, max_size=5), st.data())
def test_impossible_is_confirmed_by_brute_force(free: list[bool], data: st.DataObject) -> None:
    """Small cases: each device and each request has a colour, and constraints compare a number."""
    colours = data.draw(st.lists(st.sampled_from("xy"), min_size=len(free), max_size=len(free)))
    numbers = data.draw(st.lists(st.integers(0, 2), min_size=len(free), max_size=len(free)))
    wanted = data.draw(st.lists(st.sampled_from("xy"), min_size=1, max_size=3))
    rule = data.draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
    devices = [
        {"name": f"dev-{index}", "attributes": {"c": {"string": colour}, "n": {"int": number}}}
        for index, (colour, number) in enumerate(zip(colours, numbers, strict=True))
    ]
    requests = [
        {
            "name": f"r{index}",
            "exactly": {
                "deviceClassName": "any",
                "count": 1,
                "selectors": [{"cel": {"expression": f'device.attributes["d"].c == "{colour}"'}}],
            },
        }
        for index, colour in enumerate(wanted)
    ]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": devices}
    case = {
        "features": [],
        "node": {"metadata": {"name": "n"}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": [{"metadata": {"name": "s"}, "spec": spec}],
        "claims": [
            {
                "metadata": {"name": "c"},
                "spec": {"devices": {"requests": requests, "constraints": [{rule: "d/n"}]}},
            }
        ],
        "allocatedDevices": [
            {"driver": "d", "pool": "p", "device": f"dev-{index}"}
            for index, is_free in enumerate(free)
            if not is_free
        ],
    }

    def suits(chosen: tuple[int, ...]) -> bool:
        values = [numbers[index] for index in chosen]
        different = len(set(values))
        return (
            len(set(chosen)) == len(chosen)
            and all(free[index] for index in chosen)
            and all(colours[index] == colour for index, colour in zip(chosen, wanted, strict=True))
            and different == (1 if rule == "matchAttribute" else len(values))
        )

    possible = any(map(suits, product(range(len(free)), repeat=len(wanted))))
    assert ("allocations" in answer(case)) == possible


def test_request_that_is_impossible_alone_ends_a_long_search() -> None:
    """The last claim is hopeless, and the first two can be satisfied in two million ways."""

    def claim(name: str, count: int, selector: str) -> dict[str, Any]:
        selectors = [{"cel": {"expression": selector}}]
        asked = {"deviceClassName": "any", "count": count, "selectors": selectors}
        request = {"name": "r", "exactly": asked}
        return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}

    devices = [{"name": f"dev-{n}", "attributes": {"n": {"int": n}}} for n in range(24)]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": devices}
    case = {
        "features": [],
        "node": {"metadata": {"name": "n"}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": [{"metadata": {"name": "s"}, "spec": spec}],
        "claims": [
            claim("first", 3, 'device.attributes["d"].n >= 0'),
            claim("second", 3, 'device.attributes["d"].n >= 0'),
            claim("hopeless", 1, 'device.attributes["d"].n > 100'),
        ],
    }
    found = attempt(case)
    assert isinstance(found, Impossible)
    assert found.steps <= 2 * 5_000  # the search, and that for the claim alone

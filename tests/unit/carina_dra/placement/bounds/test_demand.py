"""What claims demand at least: no suitable node is refused, and no bound is too high."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import Allocated, allocate
from carina_dra.allocator.group import NUMA_NODE, PCIE_ROOT
from carina_dra.allocator.preference import CLOSENESS, FAR, Policy
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.bounds.demand import Bound, Demand, Short
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import ResourceClaim
from tests.samples.fleet import (
    DRIVER,
    claim,
    claim_of,
    cluster,
    devices_of,
    give,
    gpu,
    model_is,
    network,
    partitions,
    placer_of,
    request,
)
from tests.samples.random_questions import Question, questions

_NUMA_NODE = "resource.kubernetes.io/numaNode"
_SAME_NUMA_NODE = CLOSENESS.index(("gpu.carina.dev/nvlinkDomain", _NUMA_NODE))


def demand_of(question: Question) -> Demand:
    """What the claims of a random question demand."""
    return Demand(question.request.claims, question.cluster.features)


def bound_of(question: Question) -> Bound | Short:
    """The bound of a random question."""
    offer = question.offer
    is_whole = len(offer.ready) == len(offer.pools)
    return demand_of(question).bound(offer, question.states, is_whole=is_whole, wish=True)


def is_out_of_reach_of(question: Question) -> bool:
    """Whether the node of a random question is out of reach."""
    return demand_of(question).is_out_of_reach(question.states)


def is_out_of_reach(of: Cluster, *claims: ResourceClaim) -> bool:
    """Whether the node `a` is out of reach."""
    states = [of.pool_state(pool) for pool in of.offer("a").ready]
    demand = Demand(request(*claims).claims, of.features)
    return demand.is_out_of_reach(states)


def bound(of: Cluster, *claims: ResourceClaim) -> Bound | Short:
    """The bound of the node `a`."""
    states = [of.pool_state(pool) for pool in of.offer("a").ready]
    demand = Demand(request(*claims).claims, of.features)
    return demand.bound(of.offer("a"), states, is_whole=True, wish=True)


def is_possible(of: Cluster, *claims: ResourceClaim) -> bool:
    """Whether the node `a` has devices for the claims."""
    answer = allocate(request(*claims).claims, of.state("a"), new_share_id=lambda: "share")
    return isinstance(answer, Allocated)


# Random nodes.


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["binpack", "spread", "fragmentation"]))
def test_bound_is_never_worse_than_the_best_allocation(seed: int, policy: str) -> None:
    for question in questions(seed, Policy.parse(policy)):
        if question.allocated is None:
            continue
        found, score = bound_of(question), question.allocated.score
        assert isinstance(found, Bound), question.node
        assert (found.alternatives, found.distance) <= (score.alternatives, score.distance)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_chosen_devices_concern_the_demand_and_have_its_amounts(seed: int) -> None:
    for question in questions(seed, Policy()):
        if question.allocated is None:
            continue
        demand = demand_of(question)
        published = {one.id: one for state in question.states for one in state.offered.devices}
        chosen = [
            published[DeviceId(result.driver, result.pool, result.device)]
            for allocation in question.allocated.allocations
            for result in allocation.devices.results
        ]
        assert all(map(demand.concerns, chosen))
        for name, amount in demand.required.amounts.items():
            assert any(
                one.device.capacity[name].value.nanos >= amount
                for one in chosen
                if name in one.device.capacity
            )


def test_random_questions_are_of_every_kind() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(25):
        for question in questions(seed, Policy()):
            found, allocated = bound_of(question), question.allocated
            if isinstance(found, Short):
                kinds["refused"] += 1
            elif allocated is None:
                kinds["not refused, and impossible"] += 1
            else:
                score = allocated.score
                exact = (found.alternatives, found.distance) == (score.alternatives, score.distance)
                kinds["exact" if exact else "too low"] += 1
    assert min(kinds["refused"], kinds["exact"]) > 50
    assert kinds["refused"] > kinds["not refused, and impossible"]
    assert kinds["exact"] > kinds["too low"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_node_out_of_reach_has_no_allocation(seed: int) -> None:
    for question in questions(seed, Policy()):
        for _ in range(2):  # once more when its selectors have been evaluated
            if is_out_of_reach_of(question):
                assert question.allocated is None, question.node
            bound_of(question)


def test_random_questions_have_nodes_out_of_reach() -> None:
    found = [is_out_of_reach_of(one) for seed in range(25) for one in questions(seed, Policy())]
    assert min(sum(found), len(found) - sum(found)) > 10


# Each condition.


def _memory(amount: str, **device: Any) -> dict[str, Any]:
    return {**gpu("g0"), "capacity": {"memory": {"value": amount}}, **device}


_REFUSED: Mapping[str, tuple[list[dict[str, Any]], ResourceClaim]] = {
    "too few devices": ([gpu("g0")], claim(2)),
    "too few selected devices": (
        [gpu("g0"), gpu("g1", model="A100")],
        claim(2, selector=model_is("H200")),
    ),
    "too few for all requests together": (
        [gpu("g0")],
        claim_of(*({"name": n, "exactly": {"deviceClassName": "gpu"}} for n in ("one", "two"))),
    ),
    "too small": ([_memory("40Gi")], claim(capacity={"requests": {"memory": "80Gi"}})),
    "without the capacity": ([gpu("g0")], claim(capacity={"requests": {"memory": "1"}})),
    "tainted": (
        [{**gpu("g0"), "taints": [{"key": "broken", "effect": "NoSchedule"}]}],
        claim(),
    ),
    "tainted, also harmlessly": (
        [
            {
                **gpu("g0"),
                "taints": [
                    {"key": "noted", "effect": "None"},
                    {"key": "broken", "effect": "NoSchedule"},
                ],
            }
        ],
        claim(),
    ),
    "too few with a value in common": (
        [gpu("g0", numa=0), gpu("g1", numa=1)],
        claim_of(
            {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
            constraints=[{"matchAttribute": _NUMA_NODE}],
        ),
    ),
    "no device of all": (
        [gpu("g0")],
        claim_of(
            {
                "name": "gpus",
                "exactly": {
                    "deviceClassName": "gpu",
                    "allocationMode": "All",
                    "selectors": [{"cel": {"expression": model_is("A100")}}],
                },
            }
        ),
    ),
}


@pytest.mark.parametrize(("devices", "asked"), _REFUSED.values(), ids=list(_REFUSED))
def test_node_is_refused(devices: list[dict[str, Any]], asked: ResourceClaim) -> None:
    nodes = cluster(a=devices)
    assert bound(nodes, asked) == Short("")
    assert not is_possible(nodes, asked)


def test_node_whose_devices_are_in_use_is_refused_but_not_to_admin_access() -> None:
    nodes = cluster(a=[gpu("g0")])
    give(nodes, claim())
    assert bound(nodes, claim()) == Short("")
    assert bound(nodes, claim(adminAccess=True)) == Bound(0, 0)


def test_failing_selector_is_named_where_it_leaves_too_few_devices() -> None:
    nodes = cluster(a=[{"name": "g0"}, gpu("g1")])
    found = bound(nodes, claim(2, selector=model_is("H200")))
    assert isinstance(found, Short)
    assert f"on device {DRIVER}/a/g0: CEL runtime error" in found.error
    assert bound(nodes, claim(1, selector=model_is("H200"))) == Bound(0, 0)


def test_device_that_fits_only_beside_one_that_draws_a_negative_amount_is_counted() -> None:
    nodes = cluster(a=[])
    nodes.remove_slice("a-0")
    for published in partitions("a", 1, gives=-1, takes=2):
        nodes.put_slice(published)
    assert is_possible(nodes, claim(2))
    assert devices_of(placer_of(nodes).place(request(claim(2)))) == ["a/gives", "a/takes"]


def test_shared_device_serves_several_requests() -> None:
    nodes = cluster(a=[_memory("80Gi", allowMultipleAllocations=True)])
    share = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "30Gi"}}}
    asked = claim_of(*({"name": name, "exactly": share} for name in ("one", "two")))
    assert isinstance(bound(nodes, asked), Bound)
    assert is_possible(nodes, asked)


def test_partition_whose_counter_is_used_up_is_refused() -> None:
    nodes = cluster(a=[])
    nodes.remove_slice("a-0")
    for published in partitions("a", 4, one=2, two=2, three=2):
        nodes.put_slice(published)
    give(nodes, claim())
    assert bound(nodes, claim()) == Bound(0, 0)
    give(nodes, claim())
    assert bound(nodes, claim()) == Short("")


def _either(*counts: int) -> ResourceClaim:
    alternatives = [
        {"name": f"x{index}", "deviceClassName": "gpu", "count": count}
        for index, count in enumerate(counts)
    ]
    return claim_of({"name": "gpus", "firstAvailable": alternatives})


def test_bound_counts_the_alternatives_that_are_impossible() -> None:
    nodes = cluster(a=[gpu(f"g{index}") for index in range(2)])
    found = [bound(nodes, _either(*counts)) for counts in ((1,), (3, 1), (4, 3, 2), (3,))]
    assert [one.alternatives if isinstance(one, Bound) else None for one in found] == [
        0,
        1,
        2,
        None,
    ]


def test_bound_knows_how_many_devices_are_on_one_numa_node() -> None:
    nodes = cluster(a=[gpu(f"g{index}", numa=index % 2) for index in range(4)])
    assert bound(nodes, claim(2)) == Bound(0, _SAME_NUMA_NODE)
    assert bound(nodes, claim(3)) == Bound(0, FAR)
    assert bound(nodes, claim(1)) == Bound(0, 0)


def test_only_devices_that_can_be_chosen_are_left_to_the_search() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1", model="L40S"), gpu("g2")])
    give(nodes, claim())
    of_node = bound(nodes, claim(1, selector=model_is("H200")))
    assert isinstance(of_node, Bound)
    assert of_node.among == 0b100


def test_values_of_two_attributes_must_be_had_by_the_same_devices() -> None:
    """Two devices share each root and each NUMA node, but no two share both."""
    places = [("r0", 0), ("r0", 1), ("r1", 0), ("r1", 1)]
    devices = [gpu(f"g{i}", root=root, numa=numa) for i, (root, numa) in enumerate(places)]
    constraints = [{"matchAttribute": PCIE_ROOT}, {"matchAttribute": NUMA_NODE}]
    two = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}
    assert bound(cluster(a=devices), claim_of(two, constraints=constraints)) == Short("")
    near = [*devices, gpu("g4", root="r1", numa=1)]
    assert isinstance(bound(cluster(a=near), claim_of(two, constraints=constraints)), Bound)


# Nodes that are out of reach.


def _two(*names: str, **exactly: Any) -> list[dict[str, Any]]:
    return [{"name": n, "exactly": {"deviceClassName": "gpu", **exactly}} for n in names]


def _of_one_node(*meant: str) -> list[dict[str, Any]]:
    return [{"matchAttribute": _NUMA_NODE, **({"requests": list(meant)} if meant else {})}]


_APART: list[dict[str, Any]] = [gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2")]
_TOGETHER: list[dict[str, Any]] = [gpu("g0", numa=0), gpu("g1", numa=0)]


@pytest.mark.parametrize(
    "asked",
    [
        claim_of(*_two("r", count=2), constraints=_of_one_node()),
        claim_of(*_two("r", "s"), constraints=_of_one_node()),
        claim_of(*_two("r", "s"), *_two("t"), constraints=_of_one_node("r", "s")),
        claim_of(*_two("r", count=2), constraints=[*_of_one_node(), {"matchAttribute": PCIE_ROOT}]),
    ],
    ids=["one request", "two requests", "two of three requests", "two constraints"],
)
def test_node_is_out_of_reach_without_devices_that_match(asked: ResourceClaim) -> None:
    nodes = cluster(a=_APART)
    assert is_out_of_reach(nodes, asked)
    assert not is_possible(nodes, asked)


def test_devices_that_match_on_two_pools_count_together() -> None:
    nodes = cluster(a=[gpu("g0", numa=0)])
    nodes.put_slice(network("more", gpu("m0", numa=0), nodeName="a"))
    asked = claim_of(*_two("r", count=2), constraints=_of_one_node())
    assert not is_out_of_reach(nodes, asked)
    assert is_possible(nodes, asked)


def test_devices_in_use_do_not_count_as_matching_but_for_admin_access() -> None:
    nodes = cluster(a=_TOGETHER)
    asked = claim_of(*_two("r", count=2), constraints=_of_one_node())
    admin = claim_of(*_two("r", count=2, adminAccess=True), constraints=_of_one_node())
    assert not is_out_of_reach(nodes, asked)
    give(nodes, claim())
    assert is_out_of_reach(nodes, asked)
    assert not is_out_of_reach(nodes, admin)
    assert is_possible(nodes, admin)


def test_shares_of_one_device_match() -> None:
    nodes = cluster(a=[_memory("80Gi", allowMultipleAllocations=True, **gpu("g0", numa=0))])
    share = {"capacity": {"requests": {"memory": "30Gi"}}}
    asked = claim_of(*_two("r", "s", **share), constraints=_of_one_node())
    assert not is_out_of_reach(nodes, asked)


def test_devices_of_two_claims_need_not_match() -> None:
    nodes = cluster(a=_APART)
    claims = [claim_of(*_two("r"), constraints=_of_one_node()) for _ in range(2)]
    assert not is_out_of_reach(nodes, *claims)
    assert is_possible(nodes, *claims)


def test_alternative_that_is_not_meant_need_not_match() -> None:
    nodes = cluster(a=_APART)
    alternatives = [
        {"name": name, "deviceClassName": "gpu", "count": 2} for name in ("close", "far")
    ]
    asked = claim_of(
        {"name": "r", "firstAvailable": alternatives}, constraints=_of_one_node("r/close")
    )
    assert not is_out_of_reach(nodes, asked)
    assert is_possible(nodes, asked)


def test_node_is_out_of_reach_if_no_device_has_what_selectors_require() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")])
    asked = claim(selector=model_is("A100"))
    assert is_out_of_reach(nodes, asked)
    bound(nodes, asked)
    assert is_out_of_reach(nodes, asked), "whatever has been evaluated"
    assert is_out_of_reach(nodes, claim(selector=model_is("B200")))
    assert not is_out_of_reach(nodes, claim(selector=model_is("H200")))


def test_node_on_which_a_selector_may_fail_is_not_out_of_reach() -> None:
    nodes = cluster(a=[gpu("g0"), {"name": "g1"}])
    asked = claim(selector=model_is("A100"))
    for _ in range(2):
        assert not is_out_of_reach(nodes, asked)
        found = bound(nodes, asked)
        assert isinstance(found, Short)
        assert found.error
    one, other = _two("r", selectors=[{"cel": {"expression": model_is("A100")}}]), _two("s")
    nodes = cluster(a=[gpu("g0")])
    bound(nodes, claim_of(*one, *other))
    assert not is_out_of_reach(nodes, claim_of(*one, *other))


def test_nothing_is_out_of_reach_of_a_pod_without_claims() -> None:
    assert not is_out_of_reach(cluster(a=[]))


# Devices that must differ.


@pytest.mark.parametrize(("count", "enough"), [(2, True), (3, True), (4, False)])
def test_devices_that_must_differ_have_a_value_each_but_for_one(count: int, enough: bool) -> None:
    roots = [gpu(f"g{index}", root=f"r{index % 2}") for index in range(4)]
    several = {"name": "several", "attributes": {PCIE_ROOT: {"strings": ["r0", "r1"]}}}
    nodes = cluster(a=[several, gpu("anywhere"), *roots])
    distinct = [{"distinctAttribute": PCIE_ROOT}]
    of_one = {"deviceClassName": "gpu"}
    together = claim_of({"name": "r", "exactly": {**of_one, "count": count}}, constraints=distinct)
    one_by_one = claim_of(
        *({"name": f"r{index}", "exactly": of_one} for index in range(count)), constraints=distinct
    )
    for asked in (together, one_by_one):
        assert is_possible(nodes, asked) == enough
        assert isinstance(bound(nodes, asked), Bound if enough else Short)


def test_devices_of_each_request_must_have_as_many_values_as_differ() -> None:
    roots = [gpu(f"g{index}", root=f"r{index}", model=f"m{index // 4}") for index in range(8)]
    nodes = cluster(a=[*roots, gpu("g8", root="r0", model="m2"), gpu("g9", root="r0", model="m2")])

    def asked(count: int) -> ResourceClaim:
        of_model = {
            f"m{index}": {
                "deviceClassName": "gpu",
                "count": number,
                "selectors": [{"cel": {"expression": model_is(f"m{index}")}}],
            }
            for index, number in ((0, 2), (2, count))
        }
        requests = [{"name": name, "exactly": one} for name, one in of_model.items()]
        return claim_of(*requests, constraints=[{"distinctAttribute": PCIE_ROOT}])

    assert isinstance(bound(nodes, asked(1)), Bound)
    assert isinstance(bound(nodes, asked(2)), Short)
    assert not is_possible(nodes, asked(2))


def test_alternatives_that_need_not_differ_need_no_values() -> None:
    nodes = cluster(a=[gpu("g0", root="r0"), gpu("g1", root="r0")])
    either = [{"name": "apart", "deviceClassName": "gpu", "count": 2}]
    either += [{"name": "close", "deviceClassName": "gpu", "count": 2}]
    asked = claim_of(
        {"name": "gpus", "firstAvailable": either},
        constraints=[{"distinctAttribute": PCIE_ROOT, "requests": ["gpus/apart"]}],
    )
    assert isinstance(bound(nodes, asked), Bound)
    assert is_possible(nodes, asked)

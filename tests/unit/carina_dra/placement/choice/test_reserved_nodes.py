"""A claim of a reservation gets the best node, with the devices that are reserved for it."""

from itertools import chain, repeat
from unittest.mock import patch

import pytest

from carina_dra.allocator.allocate import choose
from carina_dra.allocator.errors import ExpressionError
from carina_dra.allocator.node import Node
from carina_dra.allocator.usage import Usage
from carina_dra.placement.choice import findings as findings_module
from carina_dra.placement.choice.placer import Placer, Unplaceable
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.reservation import Reservation
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    ResourceClaim,
    encode,
)
from carina_dra.step_budget import OutOfStepsError, StepBudget
from tests.samples.fleet import (
    DRIVER,
    claim,
    claim_of,
    cluster,
    consumption,
    devices_of,
    give,
    gpu,
    model_is,
    network,
    partitions,
    placer_of,
    request,
    slices,
)


def _results(*devices: str) -> tuple[DeviceResult, ...]:
    """Devices, each `pool/device`."""
    return tuple(
        DeviceResult("r", DRIVER, pool, device)
        for pool, device in (one.split("/") for one in devices)
    )


def _reserve(of: Cluster, name: str, claims: list[ResourceClaim], *devices: str) -> None:
    keys = frozenset(one.key for one in claims)
    of.reserve(name, Reservation(_results(*devices), keys))


def _use(of: Cluster, by: str, *devices: str) -> None:
    of.allocate(f"in-use/{by}", Allocation(DeviceAllocation(_results(*devices))))


def _nodes(of: Cluster, asked: ResourceClaim, policy: str = "binpack") -> list[str]:
    return [placed.node for placed in placer_of(of, policy).best(request(asked))]


# What is reserved.


def test_reserved_device_is_for_its_claim_alone() -> None:
    nodes, owner = cluster(a=[gpu("g0")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0")
    assert give(nodes, claim()) == []
    assert give(nodes, owner) == ["a/g0"]


def test_device_that_its_claim_has_is_no_longer_held() -> None:
    nodes, owner = cluster(a=[gpu("g0")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0")
    give(nodes, owner)
    assert not nodes.nodes_of_reservation("kept")
    nodes.unreserve("kept")
    assert give(nodes, claim()) == []


def test_device_of_a_released_claim_is_reserved_again() -> None:
    nodes, owner = cluster(a=[gpu("g0")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0")
    give(nodes, owner)
    nodes.release(owner.key)
    assert give(nodes, claim()) == []
    nodes.unreserve("kept")
    assert give(nodes, claim()) == ["a/g0"]


def test_reservation_takes_the_place_of_the_former_of_its_name() -> None:
    nodes, former, later = cluster(a=[gpu("g0"), gpu("g1")]), claim(), claim()
    _reserve(nodes, "kept", [former], "a/g0")
    _reserve(nodes, "kept", [later], "a/g1")
    assert nodes.reserved_for([former.key]) == frozenset()
    assert nodes.reserved_for([later.key]) == {"kept"}
    assert give(nodes, former) == ["a/g0"]
    assert give(nodes, claim()) == []


def test_reservation_serves_claims_together_if_it_is_for_all_of_them() -> None:
    nodes, both, one = cluster(a=[gpu("g0"), gpu("g1")]), claim(), claim()
    _reserve(nodes, "wide", [both, one], "a/g0")
    _reserve(nodes, "narrow", [both], "a/g1")
    assert nodes.reserved_for([both.key]) == {"wide", "narrow"}
    assert nodes.reserved_for([both.key, one.key]) == {"wide"}
    assert nodes.reserved_for([both.key, claim().key]) == frozenset()


def test_nodes_of_a_reservation_are_those_that_its_devices_reach() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")], c=[])
    _reserve(nodes, "kept", [claim()], "a/g0", "b/g0")
    assert set(nodes.nodes_of_reservation("kept")) == {"a", "b"}
    nodes.remove_node("b")
    assert set(nodes.nodes_of_reservation("kept")) == {"a"}


def test_reserved_device_of_all_nodes_is_given_on_any_of_them() -> None:
    nodes, owner = cluster(a=[], b=[]), claim()
    nodes.put_slice(network("net", gpu("n0")))
    _reserve(nodes, "kept", [owner], "net/n0")
    assert set(nodes.nodes_of_reservation("kept")) == {"a", "b"}
    assert _nodes(nodes, owner) == ["a", "b"]


def test_state_without_a_reservation_has_the_devices_of_this_node_free() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")])
    _reserve(nodes, "kept", [claim()], "a/g0", "b/g0")
    assert [device.pool for device in nodes.state("a").usage.dedicated] == ["a"]
    assert nodes.state("a", without=["kept"]).usage == Usage()


# Which node is the best for a claim of a reservation.


def test_free_devices_of_a_better_node_come_before_reserved_ones() -> None:
    nodes, owner = cluster(a=[gpu("g0")], b=[gpu("g0"), gpu("g1")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0")
    _use(nodes, "other", "b/g0")
    assert _nodes(nodes, owner) == ["b", "a"]


def test_every_node_comes_once() -> None:
    devices = [gpu("g0"), gpu("g1")]
    nodes, owner = cluster(a=devices, b=devices, c=devices), claim()
    _reserve(nodes, "kept", [owner], "b/g0")
    assert sorted(_nodes(nodes, owner)) == ["a", "b", "c"]


@pytest.mark.parametrize(("policy", "device"), [("binpack", "a/g1"), ("spread", "a/g2")])
def test_reserved_devices_are_chosen_by_the_policy(policy: str, device: str) -> None:
    """One of the two NUMA nodes has a device in use: binpack fills it, spread leaves it."""
    places = {"g0": 0, "g1": 0, "g2": 1, "g3": 1}
    nodes, owner = cluster(a=[gpu(name, numa=numa) for name, numa in places.items()]), claim()
    _use(nodes, "other", "a/g0")
    _reserve(nodes, "kept", [owner], "a/g1", "a/g2", "a/g3")
    placed = placer_of(nodes, policy).place(request(owner))
    assert devices_of(placed) == [device]


def test_reserving_what_is_placed_changes_nothing_for_the_claim() -> None:
    """A selector fails on a device of which the counters are used up."""
    nodes, has_model = Cluster(), {"attributes": {"model": {"string": "H200"}}}
    nodes.put_node(Node("a"))
    counters, whole = partitions("a", 4, whole=4)
    part = {**has_model, **consumption(gpu=1)}
    devices = [encode(whole.spec.devices[0]), *({"name": f"g{one}", **part} for one in range(3))]
    for published in slices("a", encode(counters.spec), {"devices": devices}):
        nodes.put_slice(published)
    _use(nodes, "other", "a/g2")
    three = {"deviceClassName": "gpu", "count": 3, "name": "three"}
    three["selectors"] = [{"cel": {"expression": model_is("H200")}}]
    owner = claim_of(
        {"name": "r", "firstAvailable": [three, {"deviceClassName": "gpu", "name": "one"}]}
    )
    placer = placer_of(nodes)
    before = placer.place(request(owner))
    _reserve(nodes, "kept", [owner], *devices_of(before))
    after = placer.place(request(owner))
    assert devices_of(after) == devices_of(before) == ["a/g0"]


def test_reserved_devices_are_given_on_the_nodes_asked_for() -> None:
    nodes, owner = cluster(a=[gpu("g0")], b=[gpu("g0")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0", "b/g0")
    assert devices_of(placer_of(nodes).place(request(owner), ["b"])) == ["b/g0"]


def test_cost_of_a_node_counts_more_than_its_reserved_devices() -> None:
    nodes, owner = cluster(a=[gpu("g0")], b=[gpu("g0")], c=[gpu("g0")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0", "c/g0")
    costs = {"a": 2, "b": 1, "c": 0}
    placed = placer_of(nodes).best(request(owner), cost=costs.__getitem__)
    assert [one.node for one in placed] == ["c", "b", "a"]


@pytest.mark.parametrize("looks", [0, 1], ids=["before the search", "during the search"])
def test_search_among_reserved_devices_ends_when_time_is_up(looks: int) -> None:
    nodes, owner = cluster(a=[gpu("g0")]), claim()
    _reserve(nodes, "kept", [owner], "a/g0")
    clock = chain(repeat(False, looks), repeat(True))
    placed = placer_of(nodes).place(request(owner), expired=lambda: next(clock))
    assert placed == Unplaceable(undecided=1, failed=())


def test_node_where_like_claims_were_refused_is_undecided_when_time_is_up() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1", model="A100")])
    owner, other = claim(selector=model_is("H200")), claim(selector=model_is("H200"))
    _reserve(nodes, "kept", [owner], "a/g0")
    placer = placer_of(nodes)
    assert placer.place(request(other)) == Unplaceable(undecided=0, failed=())
    placed = placer.place(request(owner), expired=lambda: True)
    assert placed == Unplaceable(undecided=1, failed=())


def _searched(placer: Placer, asked: ResourceClaim) -> list[str]:
    """The nodes that a decision searches."""
    with patch.object(findings_module, "choose", wraps=choose) as searched:
        placer.place(request(asked))
    return [call.args[1].node.name for call in searched.call_args_list]


def test_only_the_best_node_with_reserved_devices_is_searched() -> None:
    """Beside the best of all other nodes."""
    names = [f"n{index:02}" for index in range(20)]
    nodes, owner = cluster(**{name: [gpu("g0"), gpu("g1")] for name in names}), claim()
    _reserve(nodes, "kept", [owner], *(f"{name}/g0" for name in names[:10]))
    _use(nodes, "other", "n07/g1")
    assert sorted(_searched(placer_of(nodes), owner)) == ["n07", "n10"]


def test_what_is_found_with_reserved_devices_is_remembered_until_the_node_changes() -> None:
    nodes, owner, like = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0")], c=[]), claim(), claim()
    _reserve(nodes, "kept", [owner, like], "a/g0", "b/g0")
    placer = placer_of(nodes)
    assert _searched(placer, owner) == ["a"]
    assert _searched(placer, like) == []
    _use(nodes, "other", "b/g0")
    assert _searched(placer, like) == []  # b has become worse
    nodes.release("in-use/other")
    _use(nodes, "other", "a/g1")
    assert _searched(placer, like) == ["a"]


def test_claim_that_takes_a_reserved_device_changes_the_node_of_the_device_only() -> None:
    nodes = cluster(**{f"n{index}": [gpu("g0"), gpu("g1")] for index in range(20)})
    owners = [claim() for _ in range(20)]
    _reserve(nodes, "kept", owners, *(f"n{index}/g0" for index in range(20)))
    before = nodes.changed_nodes.now
    nodes.allocate(owners[0].key, Allocation(DeviceAllocation(_results("n3/g0"))))
    assert set(nodes.changed_nodes.since(before)) == {"n3"}
    before = nodes.changed_nodes.now
    nodes.release(owners[0].key)
    assert set(nodes.changed_nodes.since(before)) == {"n3"}


def test_selector_that_does_not_compile_fails_a_claim_with_a_reservation_too() -> None:
    nodes = cluster(a=[gpu("g0")])
    asked = claim(selector="nonsense")
    device = DeviceResult("r", DRIVER, "a", "g0")
    nodes.reserve("kept", Reservation((device,), frozenset([asked.key])))
    with pytest.raises(ExpressionError, match=r"node a: .*CEL compile error"):
        placer_of(nodes).place(request(asked))


def test_selectors_are_charged_on_nodes_with_reserved_devices_too() -> None:
    nodes = cluster(a=[gpu(f"g{index}") for index in range(3)])
    asked = claim(selector='["x", "y"].exists(name, name == "z")')
    device = DeviceResult("r", DRIVER, "a", "g0")
    nodes.reserve("kept", Reservation((device,), frozenset([asked.key])))
    with pytest.raises(OutOfStepsError):
        placer_of(nodes).place(request(asked), budget=StepBudget(4))
    assert isinstance(placer_of(nodes).place(request(asked), budget=StepBudget(100)), Unplaceable)

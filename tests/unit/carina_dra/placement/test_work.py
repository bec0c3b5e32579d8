"""The work of a decision does not grow with what claims ask for, nor with what has been before."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from carina_dra.allocator.allocate import choose
from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.group import NUMA_NODE, PCIE_ROOT
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.allocator.search import Search
from carina_dra.cel import Selector
from carina_dra.placement.bounds.demand import Demand
from carina_dra.placement.choice.order import NodeOrder
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer, Unplaceable
from carina_dra.placement.cluster import attribute_index, offer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import DeviceTaintRule, ResourceClaim, ResourceSlice, decode
from carina_dra.step_budget import OutOfStepsError, StepBudget
from tests.samples.fleet import (
    CLASSES,
    DRIVER,
    claim,
    claim_of,
    cluster,
    devices_of,
    gpu,
    model_is,
    place,
    slices,
)

_NODES = {f"n{index:02}": [gpu("g0"), gpu("g1")] for index in range(20)}
_ROOT = {PCIE_ROOT: {"string": "r0"}}
_ALL = {"deviceClassName": "gpu", "allocationMode": "All"}


def test_selector_with_many_values_looks_at_all_devices_for_few_of_them() -> None:
    """Each of the first looks indexes an attribute of all devices."""
    nodes = cluster(**_NODES)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    terms = (f'device.attributes["{DRIVER}"].a{index} == "x"' for index in range(100))
    asked = PlacementRequest.of([claim(selector=" && ".join(terms))], CLASSES, nodes.features)
    with patch.object(attribute_index, "_count", wraps=attribute_index._count) as counted:
        assert not isinstance(placer.place(asked), PlacedClaims)
    assert counted.call_count == len(_NODES)


def test_devices_published_anew_cost_no_more_than_the_first() -> None:
    nodes = cluster(a=[gpu("g0")])
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    with_model = f'device.attributes["{DRIVER}"].model == "H200"'
    asked = PlacementRequest.of([claim(selector=with_model)], CLASSES, nodes.features)
    for number in range(50):
        for published in slices("a", {"devices": [gpu("g0", numa=number)]}):
            nodes.put_slice(published)
        assert isinstance(placer.place(asked, budget=StepBudget(10)), PlacedClaims)


def test_attributes_that_claims_compare_are_remembered_for_few() -> None:
    nodes = cluster(a=[gpu("g0", root="r0"), gpu("g1", root="r1")])
    for number in range(100):
        constraints = [
            {"matchAttribute": f"{DRIVER}/unknown-{number}"},
            {"matchAttribute": "resource.kubernetes.io/pcieRoot"},
        ]
        two = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}
        assert not isinstance(place(nodes, claim_of(two, constraints=constraints)), PlacedClaims)
    (offered,) = nodes.offer("a").ready
    assert len(offered._places) <= offer._ATTRIBUTES


def test_taint_rule_that_comes_or_goes_does_not_evaluate_selectors_again() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")])
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    asked = PlacementRequest.of([claim()], CLASSES, nodes.features)
    taint = {"key": "broken", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": DRIVER, "device": "g0"}, "taint": taint}
    rule = decode(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec})
    with patch.object(Selector, "matches", autospec=True, side_effect=Selector.matches) as matches:
        assert devices_of(placer.place(asked)) == ["a/g0"]
        evaluated = matches.call_count
        nodes.put_rule(rule)
        assert devices_of(placer.place(asked)) == ["a/g1"]
        nodes.remove_rule("rule")
        assert devices_of(placer.place(asked)) == ["a/g0"]
    assert matches.call_count == evaluated


def test_next_like_claim_does_not_look_at_the_order_of_all_nodes() -> None:
    nodes = cluster(**_NODES)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    asked = PlacementRequest.of([claim()], CLASSES, nodes.features)
    with patch.object(NodeOrder, "entries", autospec=True, side_effect=NodeOrder.entries) as all_:
        for number in range(10):
            placed = placer.place(asked)
            assert isinstance(placed, PlacedClaims)
            nodes.allocate(f"default/claim-{number}", placed.allocated.allocations[0])
    assert all_.call_count == 1


def test_shares_that_do_not_fit_beside_each_other_are_not_searched_for() -> None:
    capacity = {"memory": {"value": "80Gi"}}
    shared = {**gpu("g0"), "allowMultipleAllocations": True, "capacity": capacity}
    nodes = cluster(**{name: [shared] for name in _NODES})
    wanted = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "30Gi"}}}
    asked = claim_of(*({"name": f"share-{number}", "exactly": wanted} for number in range(3)))
    with patch("carina_dra.placement.choice.findings.choose", wraps=choose) as searched:
        assert not isinstance(place(nodes, asked), PlacedClaims)
    assert searched.call_count == 0


def test_shares_that_do_not_fit_when_they_are_rounded_up_are_not_searched_for() -> None:
    policy = {"validValues": ["10Gi", "41Gi", "80Gi"], "default": "10Gi"}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    shared = {**gpu("g0"), "allowMultipleAllocations": True, "capacity": capacity}
    nodes = cluster(**{name: [shared] for name in _NODES})

    def asked(*amounts: str) -> ResourceClaim:
        wanted = [{"capacity": {"requests": {"memory": amount}}} for amount in amounts]
        requests = [{"deviceClassName": "gpu", **one} for one in (*wanted, {})]
        return claim_of(
            *({"name": f"share-{number}", "exactly": one} for number, one in enumerate(requests))
        )

    with patch("carina_dra.placement.choice.findings.choose", wraps=choose) as searched:
        assert not isinstance(place(nodes, asked("11Gi", "11Gi")), PlacedClaims)
        assert searched.call_count == 0
        assert isinstance(place(nodes, asked("11Gi", "10Gi", "9Gi")), PlacedClaims)


def test_nodes_whose_close_devices_do_not_match_are_not_searched_for_close_ones() -> None:
    devices = [gpu(f"g{index}", root=f"r{index // 2}", numa=index % 2) for index in range(8)]
    nodes = cluster(**dict.fromkeys(_NODES, devices))
    asked = claim_of(
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    with patch("carina_dra.placement.choice.findings.choose", wraps=choose) as searched:
        assert isinstance(place(nodes, asked), PlacedClaims)
    assert searched.call_count == 1


def test_alternatives_without_devices_are_not_searched_for_with_all_devices_of_others() -> None:
    nodes = cluster(a=[gpu(f"g{index}", model=f"m{index}") for index in range(16)])
    alternatives = [
        {
            "name": name,
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": f"{model_is('none')} == {lacks}"}}],
        }
        for name, lacks in (("lacks", "true"), ("has", "false"))
    ]
    asked = claim_of(*({"name": f"r{index}", "firstAvailable": alternatives} for index in range(8)))
    placed = place(nodes, asked)
    assert isinstance(placed, PlacedClaims)
    assert placed.allocated.steps < 200


def test_devices_that_cannot_differ_are_not_searched_for() -> None:
    nodes = cluster(
        **{name: [gpu(f"g{index}", root=f"r{index % 3}") for index in range(8)] for name in "ab"}
    )
    asked = claim_of(
        *({"name": f"r{index}", "exactly": {"deviceClassName": "gpu"}} for index in range(4)),
        constraints=[{"distinctAttribute": PCIE_ROOT}],
    )
    with patch.object(Search, "run", autospec=True, side_effect=Search.run) as searched:
        assert place(nodes, asked) == Unplaceable(undecided=0, failed=())
    assert not searched.called


def test_shares_of_devices_far_from_each_other_are_searched_for_on_one_node() -> None:
    """All nodes have a GPU with room for one share on each NUMA node."""
    capacity = {"memory": {"value": "40Gi"}}
    shared = {"allowMultipleAllocations": True, "capacity": capacity}
    devices = [{**gpu("g0", numa=0), **shared}, {**gpu("g1", numa=1), **shared}]
    nodes = cluster(**dict.fromkeys(_NODES, devices))
    wanted = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "30Gi"}}}
    asked = claim_of(*({"name": f"share-{number}", "exactly": wanted} for number in range(2)))
    with patch("carina_dra.placement.choice.findings.choose", wraps=choose) as searched:
        assert isinstance(place(nodes, asked), PlacedClaims)
    assert searched.call_count == 1


def test_nodes_without_room_for_shares_of_one_device_are_not_looked_at() -> None:
    """Each request alone has room, and both have room on two devices."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    devices = [{**gpu(f"g{index}", root=f"r{index}"), **shared} for index in range(2)]
    nodes = cluster(**dict.fromkeys(_NODES, devices))
    wanted = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "30Gi"}}}
    requests = [{"name": f"share-{number}", "exactly": wanted} for number in range(2)]
    together = claim_of(*requests, constraints=[{"matchAttribute": PCIE_ROOT}])
    with patch.object(Demand, "bound", autospec=True, side_effect=Demand.bound) as bound:
        assert not isinstance(place(nodes, together), PlacedClaims)
        assert bound.call_count == 0
        assert isinstance(place(nodes, claim_of(*requests)), PlacedClaims)


class _Names(list[str]):
    """A list that is not to be searched."""

    def __contains__(self, key: object) -> bool:
        raise AssertionError(f"searched for {key}")


def test_nodes_in_a_list_are_not_compared_one_by_one() -> None:
    nodes = cluster(**_NODES)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    of_nobody = claim(selector='device.driver == "other.example.com"')
    asked = PlacementRequest.of([of_nobody], CLASSES, nodes.features)
    assert not isinstance(placer.place(asked, _Names(_NODES)), PlacedClaims)
    assert not list(placer.best(asked, _Names(_NODES)))


def test_all_devices_of_nodes_with_one_in_use_are_not_searched_for() -> None:
    nodes = cluster(**_NODES)
    for name in _NODES:
        held = Placer(nodes, Policy(), new_share_id=lambda: "share").place(
            PlacementRequest.of([claim()], CLASSES, nodes.features), [name]
        )
        assert isinstance(held, PlacedClaims)
        nodes.allocate(f"default/{name}", held.allocated.allocations[0])
    asked = claim_of({"name": "gpus", "exactly": _ALL})
    with patch("carina_dra.placement.choice.findings.choose", wraps=choose) as searched:
        assert not isinstance(place(nodes, asked), PlacedClaims)
    assert searched.call_count == 0


def test_all_devices_far_from_each_other_are_searched_for_on_one_node() -> None:
    nodes = cluster(**{name: [gpu("g0", numa=0), gpu("g1", numa=1)] for name in _NODES})
    asked = claim_of({"name": "gpus", "exactly": _ALL})
    with patch("carina_dra.placement.choice.findings.choose", wraps=choose) as searched:
        assert isinstance(place(nodes, asked), PlacedClaims)
    assert searched.call_count == 1


def test_device_of_a_pool_over_many_nodes_concerns_its_own_node() -> None:
    nodes = Cluster()
    for number in range(300):
        spec = {
            "driver": DRIVER,
            "nodeName": f"n{number:03}",
            "pool": {"name": "fleet", "generation": 1, "resourceSliceCount": 300},
            "devices": [gpu(f"g{number}")],
        }
        nodes.put_node(Node(f"n{number:03}"))
        content = {"metadata": {"name": f"s{number:03}"}, "spec": spec}
        nodes.put_slice(decode(ResourceSlice, content))
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    asked = PlacementRequest.of([claim()], CLASSES, nodes.features)
    placed = placer.place(asked)
    assert isinstance(placed, PlacedClaims)
    before = nodes.changed_nodes.now
    nodes.allocate("default/one", placed.allocated.allocations[0])
    assert list(nodes.changed_nodes.since(before)) == [placed.node]
    after = placer.place(asked)
    assert isinstance(after, PlacedClaims)
    assert (placed.node, after.node) == ("n000", "n001")


def test_derived_attributes_are_charged_like_selectors() -> None:
    nodes = Cluster(replace(DEFAULT_FEATURES, derived_attributes=True))
    nodes.put_node(Node("a"))
    for published in slices("a", {"devices": [gpu(f"g{index}") for index in range(8)]}):
        nodes.put_slice(published)
    derived = {
        "name": f"{DRIVER}/costly",
        "expression": "lists.range(1000).map(x, x + 1)[0] == 1",
    }
    two = {"deviceClassName": "gpu", "count": 2, "derivedAttributes": [derived]}
    asked = claim_of(
        {"name": "gpus", "exactly": two}, constraints=[{"matchAttribute": f"{DRIVER}/costly"}]
    )
    request = PlacementRequest.of([asked], CLASSES, nodes.features)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    with pytest.raises(OutOfStepsError):
        placer.place(request, budget=StepBudget(100))
    assert isinstance(placer.place(request, budget=StepBudget(10_000)), PlacedClaims)


def test_taint_rule_for_all_devices_keeps_the_order_of_nodes() -> None:
    nodes = cluster(**{f"n{index:03}": [gpu("g0"), gpu("g1")] for index in range(100)})
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    asked = PlacementRequest.of([claim()], CLASSES, nodes.features)
    first = placer.place(asked)
    assert isinstance(first, PlacedClaims)
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "k", "effect": "NoSchedule"}}
    rule = decode(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec})
    with patch.object(NodeOrder, "_renew", side_effect=AssertionError("put in order again")):
        nodes.put_rule(rule)
        assert not isinstance(placer.place(asked), PlacedClaims)
        nodes.remove_rule("rule")
        again = placer.place(asked)
    assert isinstance(again, PlacedClaims)
    assert again.node == first.node


def _of_one_gpu(*kinds: str) -> ResourceClaim:
    of_kind = (
        {
            "name": f"of-{kind}",
            "exactly": {
                "deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": model_is(kind)}}],
            },
        }
        for kind in kinds
    )
    return claim_of(*of_kind, constraints=[{"matchAttribute": PCIE_ROOT}])


def test_search_that_no_wish_has_limited_is_not_repeated_without_it() -> None:
    """The places of the partitions overlap; the slots would suffice."""
    slots = [{"name": "gpu", "counters": {f"slot-{index}": {"value": "1"} for index in range(4)}}]
    devices = [
        {
            **gpu(name, model=name[0], root="r0", numa=0),
            "consumesCounters": [
                {
                    "counterSet": "gpu",
                    "counters": {f"slot-{index}": {"value": "1"} for index in taken},
                }
            ],
        }
        for name, taken in (("a0", (0, 1)), ("a1", (2, 3)), ("b0", (1, 2)))
    ]
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in slices("a", {"sharedCounters": slots}, {"devices": devices}):
        nodes.put_slice(published)
    with patch("carina_dra.allocator.allocate.Search", wraps=Search) as searches:
        assert not isinstance(place(nodes, _of_one_gpu("a", "b")), PlacedClaims)
    assert searches.call_count == 1


def test_devices_that_no_wish_can_be_fulfilled_for_are_found_without() -> None:
    devices = [gpu("g0", model="a", nvlink="n0"), gpu("g1", model="b", nvlink="n1")]
    assert isinstance(place(cluster(a=devices), _of_one_gpu("a", "b")), Unplaceable)  # no root
    devices = [{**one, "attributes": {**one["attributes"], **_ROOT}} for one in devices]
    assert isinstance(place(cluster(a=devices), _of_one_gpu("a", "b")), PlacedClaims)


def test_only_the_best_node_is_checked_where_devices_that_match_cannot_be_close() -> None:
    """The devices of a root are on different NUMA nodes."""
    devices = [gpu(f"g{n}", root=f"r{n // 2}", numa=n % 2) for n in range(4)]
    nodes = cluster(**dict.fromkeys(_NODES, devices))
    two = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}
    asked = claim_of(two, constraints=[{"matchAttribute": NUMA_NODE}])
    with patch.object(Demand, "bound", autospec=True, side_effect=Demand.bound) as checked:
        assert isinstance(place(nodes, asked), PlacedClaims)
    assert checked.call_count == 1

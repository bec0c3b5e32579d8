"""The work of a decision does not grow with what claims ask for, nor with what has been before."""

from dataclasses import replace
from unittest.mock import patch

from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.placement import attribute_index, offer
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.order import NodeOrder
from carina_dra.placement.placer import Placed, PlacementRequest, Placer, Unplaceable
from carina_dra.resource import ResourceSlice, decode
from tests.samples.fleet import CLASSES, DRIVER, claim, claim_of, cluster, gpu, place, slices

_NODES = {f"n{index:02}": [gpu("g0"), gpu("g1")] for index in range(20)}


def test_selector_with_many_values_looks_at_all_devices_for_few_of_them() -> None:
    """Each of the first looks indexes an attribute of all devices."""
    nodes = cluster(**_NODES)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    terms = (f'device.attributes["{DRIVER}"].a{index} == "x"' for index in range(100))
    asked = PlacementRequest.of([claim(selector=" && ".join(terms))], CLASSES, nodes.features)
    with patch.object(attribute_index, "_count", wraps=attribute_index._count) as counted:
        assert not isinstance(placer.place(asked), Placed)
    assert counted.call_count == len(_NODES)


def test_selectors_that_look_at_devices_published_anew_do_not_use_up_their_limit() -> None:
    nodes = cluster(a=[gpu("g0")])
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share", max_selector_cost=10)
    with_model = f'device.attributes["{DRIVER}"].model == "H200"'
    asked = PlacementRequest.of([claim(selector=with_model)], CLASSES, nodes.features)
    for number in range(50):
        for published in slices("a", {"devices": [gpu("g0", numa=number)]}):
            nodes.put_slice(published)
        assert isinstance(placer.place(asked), Placed)


def test_attributes_that_claims_compare_are_remembered_for_few() -> None:
    nodes = cluster(a=[gpu("g0", root="r0"), gpu("g1", root="r1")])
    for number in range(100):
        constraints = [
            {"matchAttribute": f"{DRIVER}/unknown-{number}"},
            {"matchAttribute": "resource.kubernetes.io/pcieRoot"},
        ]
        two = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}
        assert not isinstance(place(nodes, claim_of(two, constraints=constraints)), Placed)
    (offered,) = nodes.offer("a").ready
    assert len(offered._places) <= offer._ATTRIBUTES


def test_next_like_claim_does_not_look_at_the_order_of_all_nodes() -> None:
    nodes = cluster(**_NODES)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    asked = PlacementRequest.of([claim()], CLASSES, nodes.features)
    with patch.object(NodeOrder, "entries", autospec=True, side_effect=NodeOrder.entries) as all_:
        for number in range(10):
            placed = placer.place(asked)
            assert isinstance(placed, Placed)
            nodes.allocate(f"default/claim-{number}", placed.allocated.allocations[0])
    assert all_.call_count == 1


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
    assert isinstance(placed, Placed)
    before = nodes.changed_nodes.now
    nodes.allocate("default/one", placed.allocated.allocations[0])
    assert list(nodes.changed_nodes.since(before)) == [placed.node]
    after = placer.place(asked)
    assert isinstance(after, Placed)
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
    dear = Placer(nodes, Policy(), new_share_id=lambda: "share", max_selector_cost=1_000)
    answer = dear.place(request)
    assert isinstance(answer, Unplaceable)
    assert (answer.undecided, "cost more than" in answer.failed[0]) == (1, True)
    assert isinstance(Placer(nodes, Policy(), new_share_id=lambda: "share").place(request), Placed)

"""The allocation that is written into a claim's status."""

from collections.abc import Sequence
from typing import Any

from carina_dra.allocator.node import Node
from carina_dra.placement.choice.placer import PlacedClaims, Unplaceable
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import Allocation, ResourceClaim, encode
from tests.samples.fleet import DRIVER, claim, claim_of, cluster, gpu, network, place, with_zone

_NODE = Node("a", {"zone": "z", "rack": "r"})


def _allocation(nodes: Cluster, asked: ResourceClaim) -> dict[str, Any]:
    placed = place(nodes, asked)
    assert isinstance(placed, PlacedClaims)
    (allocation,) = placed.allocated.allocations
    assert isinstance(allocation, Allocation)
    written: dict[str, Any] = encode(allocation)
    return written


def _pools(*selectors: dict[str, Any]) -> Cluster:
    """Pools of one device each, for the nodes that each of these selects."""
    nodes = Cluster()
    nodes.put_node(_NODE)
    for index, selector in enumerate(selectors):
        nodes.put_slice(network(f"net-{index}", gpu(f"g{index}"), nodeSelector=selector))
    return nodes


def _term(*expressions: tuple[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": key, "operator": "In", "values": list(values)} for key, values in expressions
        ]
    }


def test_device_of_a_node_is_usable_there_alone() -> None:
    written = _allocation(cluster(a=[gpu("g0")]), claim())
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    assert written["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [field]}]}


def test_device_for_all_nodes_is_usable_everywhere() -> None:
    nodes = Cluster()
    nodes.put_node(_NODE)
    nodes.put_slice(network("net", gpu("g0")))
    assert "nodeSelector" not in _allocation(nodes, claim())


def test_devices_are_usable_where_all_their_selectors_match() -> None:
    rack = {"nodeSelectorTerms": [_term(("rack", ["r", "s"]))]}
    same = {"nodeSelectorTerms": [_term(("rack", ["s", "r"]), ("zone", ["z"]))]}
    written = _allocation(_pools(with_zone("z"), rack, same), claim(3))
    (term,) = written["nodeSelector"]["nodeSelectorTerms"]
    assert [(one["key"], one["values"]) for one in term["matchExpressions"]] == [
        ("zone", ["z"]),
        ("rack", ["r", "s"]),
    ]
    assert "matchFields" not in term


def test_fields_remain_fields() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert _allocation(_pools(selector), claim())["nodeSelector"] == selector


def test_selector_of_several_terms_is_wrong() -> None:
    """The API forbids it."""
    zone = with_zone("z")["nodeSelectorTerms"]
    nodes = _pools({"nodeSelectorTerms": [*zone, _term(("rack", ["s"]))]})
    assert place(nodes, claim()) == Unplaceable(
        undecided=0, failed=("a: unsupported ResourceSlice.NodeSelector with 2 terms",)
    )


def _config(parameters: str, *requests: str) -> dict[str, Any]:
    opaque = {"driver": DRIVER, "parameters": {"name": parameters}}
    return {"opaque": opaque, **({"requests": list(requests)} if requests else {})}


def test_configurations_are_those_of_the_chosen_alternatives() -> None:
    first = {"name": "first", "exactly": {"deviceClassName": "gpu"}}
    alternatives = [
        {"name": "many", "deviceClassName": "gpu", "count": 9},
        {"name": "one", "deviceClassName": "gpu"},
    ]
    second = {"name": "second", "firstAvailable": alternatives}
    config = [
        _config("all"),
        _config("both", "first", "second"),
        _config("first", "first"),
        _config("one", "second/one"),
        _config("many", "second/many"),
    ]
    asked = claim_of(first, second, config=config)
    written = _allocation(cluster(a=[gpu("g0"), gpu("g1")]), asked)
    assert [
        (one["opaque"]["parameters"]["name"], one.get("requests", []))
        for one in written["devices"]["config"]
    ] == [("all", []), ("both", []), ("first", ["first"]), ("one", ["second/one"])]
    assert [result["request"] for result in written["devices"]["results"]] == [
        "first",
        "second/one",
    ]

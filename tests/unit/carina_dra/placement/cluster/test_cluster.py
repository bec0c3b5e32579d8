"""The state of a cluster follows the API objects, and keeps nothing of those that are gone."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.choice.placer import PlacedClaims
from carina_dra.placement.cluster.changes import Changes
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import DeviceTaintRule, ResourceClaim, decode, encode
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
    place,
    placer_of,
    request,
    slices,
    with_zone,
)
from tests.samples.followed_cluster import FollowedCluster

_BAD_SELECTOR = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["high"]}]}
    ]
}


def taint_rule(name: str = "r", **selector: str) -> DeviceTaintRule:
    """A rule that keeps claims away from devices."""
    taint = {"key": "broken", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": DRIVER, **selector}, "taint": taint}
    return decode(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def allocated(name: str, *devices: str) -> ResourceClaim:
    """A claim that has devices, each `pool/device`."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        for pool, device in (one.split("/") for one in devices)
    ]
    return decode(
        ResourceClaim,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}},
        },
    )


# Claims.


def test_released_devices_are_free_again() -> None:
    nodes, first = cluster(a=[gpu("g0")]), claim()
    give(nodes, first)
    assert give(nodes, claim()) == []
    nodes.release(first.key)
    assert give(nodes, claim()) == ["a/g0"]


def test_allocation_of_a_claim_can_be_read_until_it_is_released() -> None:
    nodes, asked = cluster(a=[gpu("g0")]), claim()
    placed = place(nodes, asked)
    assert isinstance(placed, PlacedClaims)
    assert nodes.allocation(asked.key) is None
    nodes.allocate(asked.key, placed.allocated.allocations[0])
    assert nodes.allocation(asked.key) == placed.allocated.allocations[0]
    nodes.release(asked.key)
    assert nodes.allocation(asked.key) is None


def test_claim_that_is_allocated_again_gives_back_its_former_devices() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")])
    nodes.put_claim(allocated("moving", "a/g0"))
    nodes.put_claim(allocated("moving", "a/g1"))
    assert give(nodes, claim()) == ["a/g0"]
    assert give(nodes, claim()) == []


def test_claim_that_loses_its_allocation_gives_back_its_devices() -> None:
    nodes, holder = cluster(a=[gpu("g0")]), allocated("holder", "a/g0")
    nodes.put_claim(holder)
    assert give(nodes, claim()) == []
    nodes.put_claim(decode(ResourceClaim, {**encode(holder), "status": {}}))
    assert give(nodes, claim()) == ["a/g0"]


def test_device_of_two_claims_is_free_once_both_are_released() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.put_claim(allocated("one", "a/g0"))
    nodes.put_claim(allocated("two", "a/g0"))
    nodes.release("default/one")
    assert give(nodes, claim()) == []
    nodes.release("default/two")
    assert give(nodes, claim()) == ["a/g0"]


def test_shares_of_a_device_are_given_until_it_is_full() -> None:
    shared = {**gpu("g0"), "allowMultipleAllocations": True}
    nodes = cluster(a=[{**shared, "capacity": {"memory": {"value": "80Gi"}}}])
    wanted = {"requests": {"memory": "30Gi"}}
    first = claim(capacity=wanted)
    assert [give(nodes, asked) for asked in (first, claim(capacity=wanted))] == [["a/g0"]] * 2
    assert give(nodes, claim(capacity=wanted)) == []
    nodes.release(first.key)
    assert give(nodes, claim(capacity=wanted)) == ["a/g0"]


def test_claim_may_be_known_before_its_device() -> None:
    nodes = Cluster()
    nodes.put_claim(allocated("early", "a/g0"))
    nodes.put_node(Node("a"))
    for published in slices("a", {"devices": [gpu("g0")]}):
        nodes.put_slice(published)
    assert give(nodes, claim()) == []


# Slices and nodes.


def test_devices_of_a_removed_slice_are_gone() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.remove_slice("a-0")
    assert give(nodes, claim()) == []


def test_slice_that_changes_brings_new_devices() -> None:
    nodes = cluster(a=[gpu("g0")])
    for published in slices("a", {"devices": [gpu("g1")]}):
        nodes.put_slice(published)
    assert give(nodes, claim()) == ["a/g1"]


def test_slice_that_moves_to_another_pool_leaves_its_former_pool() -> None:
    nodes = cluster(a=[gpu("g0")])
    moved = network("elsewhere", gpu("g1"), nodeName="a")
    nodes.put_slice(decode(type(moved), {**encode(moved), "metadata": {"name": "a-0"}}))
    assert give(nodes, claim()) == ["elsewhere/g1"]
    assert give(nodes, claim()) == []


def test_node_that_comes_later_brings_its_slices() -> None:
    nodes = cluster()
    for published in slices("late", {"devices": [gpu("g0")]}):
        nodes.put_slice(published)
    assert give(nodes, claim()) == []
    nodes.put_node(Node("late"))
    assert give(nodes, claim()) == ["late/g0"]


def test_node_whose_labels_change_reaches_other_pools() -> None:
    nodes = Cluster()
    nodes.put_slice(network("rack", gpu("g0"), nodeSelector=with_zone("x")))
    nodes.put_node(Node("a", {"zone": "y"}))
    placer, asked = placer_of(nodes), request(claim())
    assert devices_of(placer.place(asked)) == []
    nodes.put_node(Node("a", {"zone": "x"}))
    assert devices_of(placer.place(asked)) == ["rack/g0"]
    nodes.put_node(Node("a"))
    assert devices_of(placer.place(asked)) == []


def test_removed_node_gets_no_claims() -> None:
    nodes = cluster(a=[gpu("g0")])
    placer, asked = placer_of(nodes), request(claim())
    assert devices_of(placer.place(asked)) == ["a/g0"]
    nodes.remove_node("a")
    assert devices_of(placer.place(asked)) == []


def test_network_device_is_given_to_one_claim_of_all_nodes() -> None:
    nodes = cluster(a=[], b=[])
    nodes.put_slice(network("net", gpu("net")))
    assert give(nodes, claim()) == ["net/net"]
    assert give(nodes, claim()) == []


def test_devices_that_are_added_to_a_pool_of_all_nodes_are_given() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.put_slice(network("net", gpu("n0")))
    placer, asked = placer_of(nodes), request(claim(3))
    assert devices_of(placer.place(asked)) == []
    nodes.put_slice(network("net", gpu("n0"), gpu("n1")))
    assert devices_of(placer.place(asked)) == ["a/g0", "net/n0", "net/n1"]


def test_attributes_that_a_slice_no_longer_has_lead_to_no_node() -> None:
    many = {f"n{index}": [gpu("g0", model="A100")] for index in range(20)}
    nodes = cluster(**many, a=[gpu("g0", model="H200")])
    asked = [(f"{DRIVER}/model", "H200")]
    assert nodes.nodes_with(asked) == {"a"}
    for published in slices("a", {"devices": [gpu("g0", model="B200")]}):
        nodes.put_slice(published)
    assert nodes.nodes_with(asked) == set()


def test_attributes_of_removed_slices_do_not_count() -> None:
    nodes = cluster(**{f"n{index}": [gpu("g0", model="H200")] for index in range(20)})
    asked = [(f"{DRIVER}/model", "H200")]
    assert nodes.nodes_with(asked) is None
    for index in range(1, 20):
        nodes.remove_slice(f"n{index}-0")
    assert nodes.nodes_with(asked) == {"n0"}


def test_device_of_all_nodes_with_an_attribute_leads_to_all_nodes() -> None:
    nodes = cluster(**{f"n{index}": [gpu("g0", model="A100")] for index in range(20)})
    nodes.put_slice(network("net", gpu("n0", model="H200")))
    assert nodes.nodes_with([(f"{DRIVER}/model", "H200")]) is None


def test_device_in_use_on_one_node_leaves_less_of_a_counter_on_another() -> None:
    nodes = Cluster()
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 3}
    counters = [{"name": name, "counters": {"memory": {"value": "4"}}} for name in ("x", "y")]
    specs: list[dict[str, Any]] = [
        {"allNodes": True, "nodeName": None, "sharedCounters": counters},
        {"nodeName": "a", "devices": [{"name": "a0", **consumption(x=3)}]},
        {"nodeName": "b", "devices": [{"name": "b0", **consumption(x=3, y=1)}]},
    ]
    for name in "ab":
        nodes.put_node(Node(name))
    for published in slices("fabric", *({**spec, "pool": pool} for spec in specs)):
        nodes.put_slice(published)
    placer, asked = placer_of(nodes), request(claim())
    assert devices_of(placer.place(asked)) == ["fabric/a0"]
    nodes.put_claim(allocated("other", "fabric/b0"))
    assert devices_of(placer.place(asked)) == []
    nodes.release("default/other")
    nodes.put_claim(allocated("other", "fabric/a0"))
    assert devices_of(placer.place(asked)) == []


def test_slice_with_an_invalid_node_selector_is_an_error_of_each_node() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.put_slice(network("bad", gpu("n0"), nodeSelector=_BAD_SELECTOR))
    with pytest.raises(AllocationError, match="rank Gt takes one whole number"):
        nodes.state("a")
    nodes.remove_slice("bad")
    assert give(nodes, claim()) == ["a/g0"]


def test_lists_match_where_they_overlap() -> None:
    def linked(*links: str) -> list[dict[str, Any]]:
        return [
            {"name": f"g{index}", "attributes": {"links": {"strings": list(values)}}}
            for index, values in enumerate(links)
        ]

    nodes = Cluster(Features(list_attributes=True))
    for name, links in {"a": ("pq", "rs", "tu"), "b": ("pq", "qr", "tu")}.items():
        nodes.put_node(Node(name))
        for published in slices(name, {"devices": linked(*links)}):
            nodes.put_slice(published)
    asked = claim_of(
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
        constraints=[{"matchAttribute": f"{DRIVER}/links"}],
    )
    assert give(nodes, asked) == ["b/g0", "b/g1"]


# Taint rules.


@pytest.mark.parametrize(
    "selector",
    [{}, {"pool": "a"}, {"pool": "a", "device": "g0"}],
    ids=["driver", "pool", "device"],
)
def test_taint_rule_keeps_claims_away_until_it_is_gone(selector: dict[str, str]) -> None:
    nodes = cluster(a=[gpu("g0")])
    placer, asked = placer_of(nodes), request(claim())
    assert devices_of(placer.place(asked)) == ["a/g0"]
    nodes.put_rule(taint_rule(**selector))
    assert devices_of(placer.place(asked)) == []
    nodes.remove_rule("r")
    assert devices_of(placer.place(asked)) == ["a/g0"]


def test_taint_rule_that_changes_applies_to_other_devices() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")])
    placer, asked = placer_of(nodes), request(claim())
    nodes.put_rule(taint_rule(pool="a"))
    assert devices_of(placer.place(asked)) == ["b/g0"]
    nodes.put_rule(taint_rule(pool="b"))
    assert devices_of(placer.place(asked)) == ["a/g0"]


def test_taint_rules_that_change_before_a_decision_leave_no_taint_behind() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")])
    placer, asked = placer_of(nodes), request(claim())
    assert devices_of(placer.place(asked)) == ["a/g0"]
    nodes.put_rule(taint_rule("r", device="g0"))
    nodes.put_rule(taint_rule("s", device="g1"))
    assert devices_of(placer.place(asked)) == []
    nodes.remove_rule("s")
    nodes.remove_rule("r")
    nodes.put_rule(taint_rule("s", device="g0"))
    assert devices_of(placer.place(asked)) == ["a/g1"]


def test_slice_that_changes_after_a_taint_rule_offers_its_new_devices() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")])
    placer, asked = placer_of(nodes), request(claim(selector=model_is("A100")))
    assert devices_of(placer.place(asked)) == []
    nodes.put_rule(taint_rule(device="g0"))
    for published in slices("a", {"devices": [gpu("g0", model="A100"), gpu("g2", model="A100")]}):
        nodes.put_slice(published)
    assert devices_of(placer.place(asked)) == ["a/g2"]


# What is not kept, and what does not count as a change.


@pytest.mark.parametrize("again", ["node", "slice", "rule", "claim"])
def test_the_same_object_again_is_no_change(again: str) -> None:
    nodes, held = cluster(a=[gpu("g0"), gpu("g1")]), allocated("held", "a/g0")
    nodes.put_rule(taint_rule(pool="other"))
    nodes.put_claim(held)
    before = nodes.changed_nodes.now, nodes.changed_pools.now, nodes.wide_moment
    match again:
        case "node":
            nodes.put_node(Node("a"))
        case "slice":
            for published in slices("a", {"devices": [gpu("g0"), gpu("g1")]}):
                nodes.put_slice(published)
        case "rule":
            nodes.put_rule(taint_rule(pool="other"))
        case _:
            nodes.put_claim(held)
    assert (nodes.changed_nodes.now, nodes.changed_pools.now, nodes.wide_moment) == before


def test_objects_that_are_not_known_can_be_removed() -> None:
    nodes = cluster(a=[gpu("g0")])
    before = nodes.changed_nodes.now
    nodes.remove_node("x")
    nodes.remove_slice("x")
    nodes.remove_rule("x")
    nodes.release("default/x")
    assert nodes.changed_nodes.now == before


def _containers(of: object) -> dict[str, object]:
    """The containers of an object by the names of its attributes, also those of its parts."""
    found: dict[str, object] = {}
    for name, part in vars(of).items():
        if isinstance(part, dict | set | list):
            found[name] = part
        elif hasattr(part, "__dict__") and not isinstance(part, Changes):
            found |= {f"{name}.{inner}": one for inner, one in _containers(part).items()}
    return found


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_nothing_is_kept_of_objects_that_are_gone(seed: int) -> None:
    followed = FollowedCluster(seed)
    nodes = followed.cluster
    for _ in range(10):
        followed.objects.change()
        followed.follow()
        for name in nodes.nodes:
            for offered in nodes.offer(name).ready:  # fills what is remembered
                nodes.pool_state(offered)
    removals = [
        *((nodes.remove_node, name) for name in followed.objects.nodes),
        *((nodes.remove_slice, name) for name in followed.objects.slices),
        *((nodes.remove_rule, name) for name in followed.objects.rules),
        *((nodes.release, f"default/{name}") for name in followed.objects.claims),
    ]
    Random(seed).shuffle(removals)
    for remove, name in removals:
        remove(name)
    kept = {name: part for name, part in _containers(nodes).items() if part}
    assert not kept


def test_containers_include_those_of_the_parts() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.put_slice(network("rack", gpu("n0"), nodeSelector=with_zone("x")))
    filled = {name for name, part in _containers(nodes).items() if part}
    assert filled >= {"_nodes", "_slices", "_pools", "_reach._targets", "_reach._keys"}


def test_changes_are_kept_once_for_each_name() -> None:
    changes = Changes[str]()
    for name in "abcab":
        changes.add(name)
    assert list(changes.since(-1)) == ["b", "a", "c"]


def test_changes_since_a_moment_are_the_later_ones() -> None:
    changes = Changes[str]()
    changes.add("a")
    changes.add("b")
    moment = changes.now
    assert list(changes.since(moment)) == []
    changes.add("a")
    assert list(changes.since(moment)) == ["a"]


def test_partition_in_use_blocks_those_that_need_the_same_counter() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in partitions("a", 4, half=2, other=2, whole=4):
        nodes.put_slice(published)
    nodes.put_claim(allocated("one", "a/half"))
    assert give(nodes, claim()) == ["a/other"]
    assert give(nodes, claim()) == []


def test_shared_partition_takes_its_counters_once() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    shared = {
        "name": "half",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "2"}},
        **consumption(gpu=2),
    }
    counters = [{"name": "gpu", "counters": {"memory": {"value": "2"}}}]
    for published in slices("a", {"sharedCounters": counters}, {"devices": [shared]}):
        nodes.put_slice(published)
    one: dict[str, Any] = {"capacity": {"requests": {"memory": "1"}}}
    assert [give(nodes, claim(**one)) for _ in range(3)] == [["a/half"], ["a/half"], []]


def test_names_of_nodes_that_come_and_go_are_not_all_kept() -> None:
    nodes = cluster(a=[gpu("g0")])
    for number in range(5_000):
        nodes.put_node(Node(f"n{number}"))
        nodes.remove_node(f"n{number}")
    assert len(nodes.changed_nodes) < 2_000


def test_published_device_is_that_of_the_present_slices() -> None:
    nodes, device = cluster(a=[]), DeviceId(DRIVER, "a", "g0")
    assert nodes.published(device) is None
    (first,) = slices("a", {"devices": [gpu("g0")]})
    nodes.put_slice(first)
    assert nodes.published(device) is first.spec.devices[0]
    changed = replace(first, spec=replace(first.spec, devices=()))
    nodes.put_slice(changed)
    assert nodes.published(device) is None
    nodes.put_slice(first)
    nodes.remove_slice(first.metadata.name)
    assert nodes.published(device) is None

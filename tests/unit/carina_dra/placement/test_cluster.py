"""The state of a cluster follows the API objects, at the cost of what changes."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from carina_dra.placement.shape import Shapes

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.placement import cluster as cluster_module
from carina_dra.placement import shape as shape_module
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.placer import Placed, PlacementRequest, Placer, Unplaceable
from carina_dra.resource import DeviceTaintRule, decode
from tests.samples.fleet import (
    CLASSES,
    DRIVER,
    claim,
    claim_of,
    cluster,
    give,
    gpu,
    place,
    slices,
)


def test_released_devices_are_free_again() -> None:
    nodes, first = cluster(a=[gpu("g0")]), claim()
    give(nodes, first)
    assert give(nodes, claim()) == []
    nodes.release(first.key)
    assert give(nodes, claim()) == ["a/g0"]


def test_devices_of_a_removed_slice_are_gone() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.remove_slice("a-0")
    assert give(nodes, claim()) == []


def test_slice_that_changes_brings_new_devices() -> None:
    nodes = cluster(a=[gpu("g0")])
    for published in slices("a", {"devices": [gpu("g1")]}):
        nodes.put_slice(published)
    assert give(nodes, claim()) == ["a/g1"]


def test_node_that_comes_later_brings_its_slices() -> None:
    nodes = cluster()
    for published in slices("late", {"devices": [gpu("g0")]}):
        nodes.put_slice(published)
    assert give(nodes, claim()) == []
    nodes.put_node(Node("late"))
    assert give(nodes, claim()) == ["late/g0"]


def test_taint_rule_keeps_claims_away_until_it_is_gone() -> None:
    nodes = cluster(a=[gpu("g0")])
    taint = {"key": "broken", "effect": "NoSchedule"}
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint},
    }
    nodes.put_rule(decode(DeviceTaintRule, rule))
    assert give(nodes, claim()) == []
    nodes.remove_rule("r")
    assert give(nodes, claim()) == ["a/g0"]


def test_copy_and_original_go_separate_ways() -> None:
    nodes = cluster(a=[gpu("g0")])
    copied = nodes.copy()
    give(copied, claim())
    assert give(copied, claim()) == []
    assert give(nodes, claim()) == ["a/g0"]


def test_nothing_is_kept_of_objects_that_are_gone() -> None:
    nodes, asked = cluster(a=[gpu("g0")]), claim()
    give(nodes, asked)
    nodes.release(asked.key)
    nodes.remove_slice("a-0")
    nodes.remove_node("a")
    nodes.by_shape()
    assert {name: part for name, part in vars(nodes).items() if isinstance(part, dict | set)} == {
        name: type(part)() for name, part in vars(Cluster()).items() if isinstance(part, dict | set)
    }


def test_selector_that_a_copy_is_asked_with_changes_no_shape_of_the_original() -> None:
    nodes = cluster(a=[gpu("g0", numa=0)], b=[gpu("g0", numa=1)])
    copied = nodes.copy()
    give(copied, claim(selector='device.attributes["resource.kubernetes.io"].numaNode == 1'))
    assert len(copied.by_shape()) == 2
    assert len(nodes.by_shape()) == 1


def test_devices_that_come_to_a_copy_change_no_shape_of_the_original() -> None:
    def serial(node: str, *numbers: int) -> list[dict[str, Any]]:
        return [{"name": f"g{n}", "attributes": {"serial": {"int": n}}} for n in numbers]

    nodes = cluster(a=serial("a", 1), b=serial("b", 2))
    assert len(nodes.by_shape()) == 2
    copied = nodes.copy()
    for published in slices("a", {"devices": serial("a", *range(100))}):
        copied.put_slice(published)
    for published in slices("a", {"devices": serial("a", 2)}):
        copied.put_slice(published)
    assert len(copied.by_shape()) == 1  # by now the attribute is known to tell devices apart
    assert len(nodes.by_shape()) == 2


def test_new_shapes_of_copy_and_original_do_not_mix() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")])
    nodes.by_shape()
    copied = nodes.copy()
    give(copied, claim())
    for published in slices("b", {"devices": [gpu("g0"), gpu("g1")]}):
        nodes.put_slice(published)
    assert give(copied, claim()) == ["b/g0"]
    assert sorted(map(list, copied.by_shape().values())) == [["a", "b"]]
    assert sorted(map(list, nodes.by_shape().values())) == [["a"], ["b"]]


def _mutable_parts(of: object) -> Iterator[object]:
    for value in vars(of).values():
        if isinstance(value, dict | set | list | Shapes):
            yield value
        if isinstance(value, dict):
            yield from (part for part in value.values() if isinstance(part, dict | set | list))


@pytest.mark.parametrize("kind", [Cluster, Shapes], ids=["cluster", "shapes"])
def test_copy_shares_nothing_that_can_change(kind: type[Cluster | Shapes]) -> None:
    nodes = cluster(a=[gpu("g0", numa=0)], b=[gpu("g0")])
    give(nodes, claim())
    original = nodes if kind is Cluster else nodes.shapes
    copied = original.copy()
    assert vars(copied).keys() == vars(original).keys()
    shared = set(map(id, _mutable_parts(original))) & set(map(id, _mutable_parts(copied)))
    assert not shared


def test_network_device_is_given_to_one_claim_of_all_nodes() -> None:
    nodes = cluster(a=[], b=[])
    attached = slices("a", {"devices": [gpu("net")]})[0]
    content = {
        "metadata": {"name": "net"},
        "spec": {
            "driver": DRIVER,
            "allNodes": True,
            "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1},
            "devices": [gpu("net")],
        },
    }
    nodes.put_slice(decode(type(attached), content))
    assert give(nodes, claim()) == ["net/net"]
    assert give(nodes, claim()) == []


def test_nodes_of_one_shape_are_asked_once() -> None:
    names = [f"n{index}" for index in range(50)]
    nodes = cluster(**{name: [gpu("g0"), gpu("g1")] for name in names})
    assert len(nodes.by_shape()) == 1
    give(nodes, claim())
    assert sorted(map(len, nodes.by_shape().values())) == [1, 49]


def test_shapes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_module, "_MOST", 5)
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0"), gpu("g1")])
    given_out = [give(nodes, claim()) for _ in range(5)]
    assert given_out == [["a/g0"], ["a/g1"], ["b/g0"], ["b/g1"], []]


def test_change_on_one_node_looks_at_that_node_only() -> None:
    nodes = cluster(**{f"n{index}": [gpu("g0"), gpu("g1")] for index in range(20)})
    give(nodes, claim())
    with patch.object(cluster_module, "resolve", side_effect=AssertionError("looked again")):
        give(nodes, claim())


def test_selector_on_an_identity_is_answered_node_by_node() -> None:
    nodes = cluster(
        **{
            f"n{index}": [
                {"name": "g0", "attributes": {"uuid": {"string": f"GPU-{index}"}}},
            ]
            for index in range(100)
        }
    )
    wanted = f'device.attributes["{DRIVER}"].uuid == "GPU-73"'
    assert give(nodes, claim(selector=wanted)) == ["n73/g0"]


def test_claims_of_a_pod_go_to_one_node_together() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0"), gpu("g1")])
    pair = [claim(), claim()]
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    placed = placer.place(PlacementRequest.of(pair, CLASSES, nodes.features))
    assert isinstance(placed, Placed)
    assert placed.node == "b"


def test_answer_says_which_pools_are_invalid() -> None:
    answer = place(cluster(a=[gpu("g0"), gpu("g0")]), claim())
    assert isinstance(answer, Unplaceable)
    assert "duplicate device name g0" in answer.invalid[0]


def test_each_node_is_reported_with_its_own_invalid_pool() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g0")], b=[gpu("g1"), gpu("g1")])
    answer = place(nodes, claim())
    assert isinstance(answer, Unplaceable)
    for reported, node, device in zip(answer.invalid, "ab", ("g0", "g1"), strict=True):
        assert reported.startswith(f"{node}: ")
        assert reported.endswith(f"{DRIVER}/{node}: duplicate device name {device}")


def test_pool_that_becomes_invalid_is_reported_though_it_was_incomplete_before() -> None:
    nodes = cluster(a=[])
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    asked = PlacementRequest.of([claim()], CLASSES, nodes.features)
    first, second = slices("a", {"devices": [gpu("g0")]}, {"devices": [gpu("g0")]})
    nodes.put_slice(first)
    assert placer.place(asked) == Unplaceable(undecided=0, invalid=())
    nodes.put_slice(second)
    answer = placer.place(asked)
    assert isinstance(answer, Unplaceable)
    assert "duplicate device name g0" in answer.invalid[0]


def test_search_that_stops_at_its_limit_is_undecided() -> None:
    gpus = [gpu(f"g{index}", numa=index % 2) for index in range(16)]
    nodes = cluster(a=gpus)
    asked = claim_of(
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 9}},
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    short = Placer(nodes, Policy(), new_share_id=lambda: "share", max_steps=5)
    answer = short.place(PlacementRequest.of([asked], CLASSES, nodes.features))
    assert answer == Unplaceable(undecided=1, invalid=())
    assert place(nodes, asked) == Unplaceable(undecided=0, invalid=())


def test_unknown_class_is_an_error_of_the_claim() -> None:
    asked = claim_of({"name": "gpu", "exactly": {"deviceClassName": "nope"}})
    with pytest.raises(AllocationError, match="could not retrieve device class nope"):
        place(cluster(a=[gpu("g0")]), asked)


def test_attribute_that_a_selector_reads_counts_by_value_from_then_on() -> None:
    nodes = cluster(a=[gpu("g0", numa=0)], b=[gpu("g0", numa=1)])
    assert len(nodes.by_shape()) == 1
    on_second = 'device.attributes["resource.kubernetes.io"].numaNode == 1'
    assert give(nodes, claim(selector=on_second)) == ["b/g0"]
    nodes.put_node(Node("c"))
    for published in slices("c", {"devices": [gpu("g0", numa=1)]}):
        nodes.put_slice(published)
    assert give(nodes, claim(selector=on_second)) == ["c/g0"]
    assert give(nodes, claim(selector=on_second)) == []


def test_shares_of_a_device_are_given_until_it_is_full() -> None:
    shared = {**gpu("g0"), "allowMultipleAllocations": True}
    nodes = cluster(a=[{**shared, "capacity": {"memory": {"value": "80Gi"}}}])
    wanted = {"requests": {"memory": "30Gi"}}
    first = claim(capacity=wanted)
    assert [give(nodes, asked) for asked in (first, claim(capacity=wanted))] == [["a/g0"]] * 2
    assert give(nodes, claim(capacity=wanted)) == []
    nodes.release(first.key)
    assert give(nodes, claim(capacity=wanted)) == ["a/g0"]


def test_device_of_two_claims_is_free_once_both_are_released() -> None:
    nodes, first = cluster(a=[gpu("g0")]), claim()
    give(nodes, first)
    clashing = decode(type(first), {"metadata": {"name": "clash", "namespace": "x"}, "spec": {}})
    placed = place(cluster(a=[gpu("g0")]), claim())
    assert isinstance(placed, Placed)
    nodes.allocate(clashing.key, placed.allocated.allocations[0])
    nodes.release(first.key)
    assert give(nodes, claim()) == []
    nodes.release(clashing.key)
    assert give(nodes, claim()) == ["a/g0"]


def test_overlapping_lists_have_another_shape_than_disjoint_lists() -> None:
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

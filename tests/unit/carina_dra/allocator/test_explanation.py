"""Why a claim gets nothing, in words."""

from typing import Any

from carina_dra.allocator.explanation import explain
from carina_dra.allocator.node import Node
from carina_dra.allocator.request import check
from carina_dra.placement.cluster import Cluster
from carina_dra.resource import ResourceClaim
from tests.samples.fleet import (
    CLASSES,
    DRIVER,
    claim,
    claim_of,
    cluster,
    give,
    gpu,
    slices,
)

_MODEL = f'device.attributes["{DRIVER}"].model'


def _explained(nodes: Cluster, asked: ResourceClaim, node: str = "a") -> str:
    explanation = explain([check(asked, CLASSES, nodes.features)], nodes.state(node))
    return "\n".join(explanation.lines())


def test_counts_devices_by_the_test_at_which_they_fell() -> None:
    tainted = {**gpu("g3"), "taints": [{"key": "lost", "value": "xid79", "effect": "NoExecute"}]}
    nodes = cluster(a=[gpu("g0"), gpu("g1", model="L40S"), gpu("g2"), tainted])
    give(nodes, claim(selector=f'{_MODEL} == "H200"'))
    asked = claim(2, f'{_MODEL} == "H200"')
    told = _explained(nodes, asked)
    assert f"claim {asked.key}, request gpus, 2 devices:" in told
    assert f"pool {DRIVER}/a, 4 devices:" in told
    for part in (
        f"1 not selected by claim {asked.key}: selector #0",
        "1 in use",
        "1 tainted lost=xid79:NoExecute",
        "1 would do",
    ):
        assert part in told


def test_names_the_class_whose_selector_refuses() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for each in slices("a", {"driver": "other.example.com", "devices": [gpu("g0")]}):
        nodes.put_slice(each)
    assert "1 not selected by class gpu: selector #0" in _explained(nodes, claim())


def test_says_that_a_pool_is_being_published() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    nodes.put_slice(slices("a", {"devices": [gpu("g0")]}, {"devices": []})[0])
    assert f"pool {DRIVER}/a: its driver is about to publish it" in _explained(nodes, claim())


def test_says_what_is_wrong_with_an_invalid_pool() -> None:
    told = _explained(cluster(a=[gpu("g0"), gpu("g0")]), claim())
    assert "it is invalid: duplicate device name g0" in told


def test_names_the_constraint_that_stands_in_the_way() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    asked = claim_of(
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    told = _explained(nodes, asked)
    assert "2 would do" in told
    assert (
        "matchAttribute resource.kubernetes.io/numaNode stands in the way of request gpus" in told
    )


def test_names_the_request_that_those_before_it_leave_nothing() -> None:
    nodes = cluster(a=[gpu("g0")])
    asked = claim_of(*({"name": name, "exactly": {"deviceClassName": "gpu"}} for name in "ab"))
    assert "request b could be had alone, but not beside the requests before it" in _explained(
        nodes, asked
    )


def test_tells_partitions_that_exclude_each_other() -> None:
    counters: dict[str, Any] = {"memory": {"value": "1"}}
    consumes = [{"counterSet": "gpu-0", "counters": counters}]
    nodes = Cluster()
    nodes.put_node(Node("a"))
    devices = [{**gpu(name), "consumesCounters": consumes} for name in ("whole", "part")]
    sets = [{"name": "gpu-0", "counters": counters}]
    for each in slices("a", {"sharedCounters": sets}, {"devices": devices}):
        nodes.put_slice(each)
    give(nodes, claim())
    assert "1 excluded by other devices of the same GPU that are in use" in _explained(
        nodes, claim()
    )


def test_tells_capacity_that_is_too_small_from_capacity_that_is_taken() -> None:
    shared = {"allowMultipleAllocations": True}
    small = {**gpu("small"), **shared, "capacity": {"memory": {"value": "4Gi"}}}
    large = {**gpu("large"), **shared, "capacity": {"memory": {"value": "16Gi"}}}
    nodes = cluster(a=[small, large])
    wanted = {"requests": {"memory": "10Gi"}}
    give(nodes, claim(capacity=wanted))
    told = _explained(nodes, claim(capacity=wanted))
    assert "1 too small" in told
    assert "1 without enough capacity left" in told

"""The explanation of a claim that gets no devices."""

from typing import Any

from carina_dra.allocator.explanation import explain
from carina_dra.allocator.node import Node
from carina_dra.allocator.request import check
from carina_dra.placement.cluster.cluster import Cluster
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


def test_counts_rejected_devices_by_their_reason() -> None:
    tainted = {**gpu("g3"), "taints": [{"key": "lost", "value": "xid79", "effect": "NoExecute"}]}
    nodes = cluster(a=[gpu("g0"), gpu("g1", model="L40S"), gpu("g2"), tainted])
    give(nodes, claim(selector=f'{_MODEL} == "H200"'))
    asked = claim(2, f'{_MODEL} == "H200"')
    explained = _explained(nodes, asked)
    assert f"claim {asked.key}, request gpus, 2 devices:" in explained
    assert f"pool {DRIVER}/a, 4 devices:" in explained
    for part in (
        f"1 not selected by claim {asked.key}: selector #0",
        "1 in use",
        "1 tainted lost=xid79:NoExecute",
        "1 suitable",
    ):
        assert part in explained


def test_names_the_class_whose_selector_refuses() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in slices("a", {"driver": "other.example.com", "devices": [gpu("g0")]}):
        nodes.put_slice(published)
    assert "1 not selected by class gpu: selector #0" in _explained(nodes, claim())


def test_says_that_a_pool_is_incomplete() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    nodes.put_slice(slices("a", {"devices": [gpu("g0")]}, {"devices": []})[0])
    assert (
        f"pool {DRIVER}/a: incomplete, because its driver has not published all slices"
        in _explained(nodes, claim())
    )


def test_says_why_a_pool_is_invalid() -> None:
    explained = _explained(cluster(a=[gpu("g0"), gpu("g0")]), claim())
    assert "invalid: duplicate device name g0" in explained


def test_names_the_constraint_that_prevents_a_request() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    asked = claim_of(
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    explained = _explained(nodes, asked)
    assert "2 suitable" in explained
    assert (
        "request gpus: prevented by the constraint matchAttribute resource.kubernetes.io/numaNode"
        in explained
    )


def test_names_the_first_request_that_is_impossible_beside_the_others() -> None:
    nodes = cluster(a=[gpu("g0")])
    asked = claim_of(*({"name": name, "exactly": {"deviceClassName": "gpu"}} for name in "ab"))
    assert (
        "request b: can be satisfied alone, but not together with the requests before it"
        in _explained(nodes, asked)
    )


def test_says_that_a_partition_is_blocked_by_another_in_use() -> None:
    counters: dict[str, Any] = {"memory": {"value": "1"}}
    consumes = [{"counterSet": "gpu-0", "counters": counters}]
    nodes = Cluster()
    nodes.put_node(Node("a"))
    devices = [{**gpu(name), "consumesCounters": consumes} for name in ("whole", "part")]
    sets = [{"name": "gpu-0", "counters": counters}]
    for published in slices("a", {"sharedCounters": sets}, {"devices": devices}):
        nodes.put_slice(published)
    give(nodes, claim())
    assert "1 blocked by devices in use that consume the same counters" in _explained(
        nodes, claim()
    )


def test_distinguishes_too_little_capacity_from_too_little_free_capacity() -> None:
    shared = {"allowMultipleAllocations": True}
    small = {**gpu("small"), **shared, "capacity": {"memory": {"value": "4Gi"}}}
    large = {**gpu("large"), **shared, "capacity": {"memory": {"value": "16Gi"}}}
    nodes = cluster(a=[small, large])
    wanted = {"requests": {"memory": "10Gi"}}
    give(nodes, claim(capacity=wanted))
    explained = _explained(nodes, claim(capacity=wanted))
    assert "1 with less capacity than requested" in explained
    assert "1 with less free capacity than requested" in explained

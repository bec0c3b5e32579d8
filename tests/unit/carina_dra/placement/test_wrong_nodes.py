"""What is wrong with one node concerns that node, and is told of it; what is right is no error."""

from typing import Any

import pytest

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import NUMA_NODE, NVLINK_DOMAIN
from carina_dra.allocator.preference import CLOSENESS
from carina_dra.placement.choice.placer import PlacedClaims, Unplaceable
from carina_dra.placement.cluster.cluster import Cluster
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
    place,
    placer_of,
    request,
    slices,
)

_OWN_POLICIES = ("binpack", "spread", "fragmentation", "spread/binpack")
_POLICIES = ("upstream", *_OWN_POLICIES)
_INVALID = "invalid resource pools were encountered: gpu.carina.dev/{}: duplicate device name g0"
_BAD_SELECTOR = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["high"]}]}
    ]
}


def one_without_model(nodes: int = 20) -> Cluster:
    """Nodes with a GPU each; that of the first node lacks its model."""
    return cluster(
        n00=[{"name": "g0"}],
        **{f"n{index:02}": [gpu("g0")] for index in range(1, nodes)},
    )


# Attributes that are missing.


@pytest.mark.parametrize("policy", _OWN_POLICIES)
def test_missing_attribute_concerns_its_node_only(policy: str) -> None:
    placer, asked = (
        placer_of(one_without_model(), policy),
        request(claim(selector=model_is("H200"))),
    )
    assert devices_of(placer.place(asked)) == ["n01/g0"]


@pytest.mark.parametrize("policy", _OWN_POLICIES)
def test_node_with_a_missing_attribute_is_named_if_no_node_is_suitable(policy: str) -> None:
    placer, asked = (
        placer_of(one_without_model(), policy),
        request(claim(selector=model_is("A100"))),
    )
    answer = placer.place(asked)
    assert isinstance(answer, Unplaceable)
    assert answer.undecided == 0
    (reason,) = answer.failed
    assert reason.startswith("n00: ")
    assert f"on device {DRIVER}/n00/g0: CEL runtime error" in reason
    assert placer.place(asked, ["n01", "n02"]) == Unplaceable(undecided=0, failed=())


def test_upstream_fails_with_the_node_of_the_missing_attribute() -> None:
    placer = placer_of(one_without_model(), "upstream")
    with pytest.raises(AllocationError, match=r"^node n00: .* on device gpu\.carina\.dev/n00/g0"):
        placer.place(request(claim(selector=model_is("A100"))))
    with pytest.raises(AllocationError, match=r"^node n00: "):
        placer.place(request(claim(selector=model_is("H200"))), ["n00"])
    placed = placer.place(request(claim(selector=model_is("H200"))), ["n05", "n06"])
    assert devices_of(placed) == ["n05/g0"]


@pytest.mark.parametrize("policy", _OWN_POLICIES)
def test_device_published_before_a_wrong_one_is_given(policy: str) -> None:
    """Upstream comes to the GPU of the model first; the policy must not say no for its order."""
    nodes = cluster(a=[gpu("good"), {"name": "wrong"}])
    asked = request(claim(selector=model_is("H200")))
    assert devices_of(placer_of(nodes, "upstream").place(asked)) == ["a/good"]
    assert devices_of(placer_of(nodes, policy).place(asked)) == ["a/good"]


@pytest.mark.parametrize("policy", _OWN_POLICIES)
def test_missing_attribute_is_reported_whatever_is_known_of_other_devices(policy: str) -> None:
    placer = placer_of(one_without_model(), policy)
    for model in ("A100", "B200"):
        answer = placer.place(request(claim(selector=model_is(model))))
        assert isinstance(answer, Unplaceable)
        assert [reason[:5] for reason in answer.failed] == ["n00: "]


def test_what_is_reported_does_not_depend_on_what_has_changed() -> None:
    devices = [gpu("g0", numa=0), gpu("g1", numa=1), {"name": "g2"}]
    nodes = cluster(a=devices, b=devices)
    asked = request(
        claim_of(
            {
                "name": "gpus",
                "exactly": {
                    "deviceClassName": "gpu",
                    "count": 2,
                    "selectors": [{"cel": {"expression": model_is("H200")}}],
                },
            },
            constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
        )
    )
    placer = placer_of(nodes)
    answer = placer.place(asked)
    assert isinstance(answer, Unplaceable)
    nodes.put_slice(network("more", gpu("m0"), nodeName="a"))
    nodes.remove_slice("more")
    assert placer.place(asked) == placer_of(nodes).place(asked) == answer
    assert placer.place(asked, ["a"]) == placer_of(nodes).place(asked, ["a"]) == answer


@pytest.mark.parametrize("policy", _POLICIES)
def test_expression_that_does_not_compile_is_an_error_whatever_nodes_have(policy: str) -> None:
    asked = request(claim(selector=f"{model_is('A100')} && unknown"))
    with pytest.raises(AllocationError, match="CEL compile error"):
        placer_of(cluster(a=[gpu("g0")]), policy).place(asked)


@pytest.mark.parametrize("count", [1, 2])
def test_devices_before_a_wrong_one_have_the_distance_that_they_have(count: int) -> None:
    """One device is close to itself."""
    good = [gpu(f"good-{index}", numa=0) for index in range(count)]
    beside = gpu("beside", model="L40S", numa=0)  # so that the wrong one is preferred
    nodes = cluster(a=[*good, beside, {"name": "wrong"}])
    placed = placer_of(nodes).place(request(claim(count, selector=model_is("H200"))))
    assert isinstance(placed, PlacedClaims)
    expected = CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE)) if count > 1 else 0
    assert placed.allocated.score.distance == expected


# Errors of upstream that end the attempt.


@pytest.mark.parametrize("count", [33, 40])
def test_upstream_fails_for_more_devices_than_a_claim_may_have(count: int) -> None:
    placer = placer_of(cluster(a=[gpu("g0")]), "upstream")
    with pytest.raises(AllocationError, match="exceeds the claim limit of 32"):
        placer.place(request(claim(count)))


def test_upstream_fails_on_a_device_whose_counters_are_used_up() -> None:
    nodes = cluster(a=[])
    nodes.remove_slice("a-0")
    counters = [{"name": "gpu", "counters": {"memory": {"value": "1"}}}]
    drawn = [{"counterSet": "gpu", "counters": {"memory": {"value": "1"}}}]
    devices = [{**gpu("g0"), "consumesCounters": drawn}, {"name": "g1", "consumesCounters": drawn}]
    for published in slices("a", {"sharedCounters": counters}, {"devices": devices}):
        nodes.put_slice(published)
    assert give(nodes, claim()) == ["a/g0"]
    asked = request(claim(selector=model_is("H200")))
    with pytest.raises(AllocationError, match=r"on device gpu\.carina\.dev/a/g1: CEL"):
        placer_of(nodes, "upstream").place(asked)


# Pools that are invalid.


@pytest.mark.parametrize("policy", _POLICIES)
def test_each_node_is_reported_with_its_own_invalid_pool(policy: str) -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g0")], b=[gpu("g0"), gpu("g0")])
    answer = placer_of(nodes, policy).place(request(claim()))
    assert answer == Unplaceable(
        undecided=0, failed=tuple(f"{name}: {_INVALID.format(name)}" for name in "ab")
    )


@pytest.mark.parametrize("policy", _POLICIES)
@pytest.mark.parametrize("order", [["incomplete", "invalid"], ["invalid", "incomplete"]])
def test_incomplete_pool_beside_an_invalid_one_is_no_failure(policy: str, order: list[str]) -> None:
    nodes = cluster(**{name: [] for name in order})
    incomplete, _ = slices("incomplete", {"devices": [gpu("g0")]}, {"devices": []})
    nodes.put_slice(incomplete)
    for published in slices("invalid", {"devices": [gpu("g0"), gpu("g0")]}):
        nodes.put_slice(published)
    answer = placer_of(nodes, policy).place(request(claim()))
    assert answer == Unplaceable(undecided=0, failed=(f"invalid: {_INVALID.format('invalid')}",))


@pytest.mark.parametrize("policy", _POLICIES)
def test_other_pool_of_a_node_serves_beside_an_invalid_one(policy: str) -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g0")])
    nodes.put_slice(network("more", gpu("m0"), nodeName="a"))
    assert devices_of(placer_of(nodes, policy).place(request(claim()))) == ["more/m0"]


def test_invalid_node_selector_is_told_of_each_node() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")])
    nodes.put_slice(network("bad", gpu("n0"), nodeSelector=_BAD_SELECTOR))
    answer = place(nodes, claim())
    assert isinstance(answer, Unplaceable)
    for name, reason in zip("ab", answer.failed, strict=True):
        assert reason.startswith(f"{name}: node selector: rank Gt takes one whole number")


# Reasons.


def test_nodes_with_the_same_reasons_are_together() -> None:
    nodes = cluster(
        a=[gpu("g0")], b=[gpu("g0", model="A100")], c=[gpu("g0")], d=[gpu("g0", model="A100")]
    )
    give(nodes, claim(selector=model_is("H200")))
    give(nodes, claim(selector=model_is("H200")))
    groups = placer_of(nodes).reasons(request(claim(selector=model_is("H200"))))
    assert [group.nodes for group in groups] == [("a", "c"), ("b", "d")]
    assert [group.explanation.node for group in groups] == ["a", "b"]
    assert "in use" in "\n".join(groups[0].explanation.lines())
    assert "not selected" in "\n".join(groups[1].explanation.lines())


def test_reasons_are_of_the_nodes_asked_for() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")], c=[])
    groups = placer_of(nodes).reasons(request(claim(2)), ["c", "b"])
    assert [group.nodes for group in groups] == [("b",), ("c",)]


def test_invalid_node_selector_is_a_reason() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0")])
    nodes.put_slice(network("bad", gpu("n0"), nodeSelector=_BAD_SELECTOR))
    (group,) = placer_of(nodes).reasons(request(claim()))
    assert group.nodes == ("a", "b")
    assert "node selector: rank Gt takes one whole number" in "\n".join(group.explanation.lines())


# What is no error.


@pytest.mark.parametrize("policy", _POLICIES)
@pytest.mark.parametrize(
    "places",
    [
        [{"numa": 0}, {"numa": 1}],
        [{"root": "r0"}, {"root": "r1"}],
        [{"nvlink": "n0"}, {"nvlink": "n1"}],
    ],
    ids=["NUMA node", "PCIe root", "NVLink domain"],
)
def test_all_devices_may_be_far_from_each_other(policy: str, places: list[dict[str, Any]]) -> None:
    nodes = cluster(a=[gpu(f"g{index}", **place) for index, place in enumerate(places)])
    every = {"deviceClassName": "gpu", "allocationMode": "All"}
    for asked in (every, {**every, "adminAccess": True}):
        placed = placer_of(nodes, policy).place(request(claim_of({"name": "r", "exactly": asked})))
        assert devices_of(placed) == ["a/g0", "a/g1"]


@pytest.mark.parametrize("policy", _POLICIES)
def test_earlier_alternative_is_chosen_on_whichever_node_it_is(policy: str) -> None:
    nodes = cluster(
        a=[gpu(f"g{n}", model="A100", numa=0) for n in range(2)],
        b=[gpu(f"g{n}", numa=n) for n in range(2)],
    )
    alternatives = [
        {
            "name": model.lower(),
            "deviceClassName": "gpu",
            "count": 2,
            "selectors": [{"cel": {"expression": model_is(model)}}],
        }
        for model in ("H200", "A100")
    ]
    placed = placer_of(nodes, policy).place(
        request(claim_of({"name": "gpus", "firstAvailable": alternatives}))
    )
    assert isinstance(placed, PlacedClaims)
    assert placed.node == "b"
    assert placed.allocated.score.alternatives == 0

"""A change that is taken back leaves the cluster as it was, and nothing else is looked at again."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import choose
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import Node
from carina_dra.placement.choice import findings as findings_module
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.placement.cluster import resolution as resolution_module
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    DeviceTaintRule,
    ResourceSlice,
    decode,
)
from tests.samples.fleet import (
    DRIVER,
    claim,
    cluster,
    devices_of,
    give,
    gpu,
    network,
    place,
    placer_of,
    request,
    slices,
    with_zone,
)
from tests.samples.followed_cluster import FollowedCluster

_Change: TypeAlias = Callable[[Cluster], None]

_CACHES = {"_resolution", "_nodes_of", "_index"}


def _copied(part: object) -> object:
    """A container that does not change with the original."""
    if isinstance(part, Mapping):
        return {key: _copied(value) for key, value in part.items()}
    return set(part) if isinstance(part, set | frozenset) else part


def contents(of: Cluster) -> dict[str, object]:
    """Everything that a cluster knows, without what it computes from that."""
    parts = dict(vars(of))
    for part in (of._reach, of._holdings):
        parts |= {f"{type(part).__name__}.{name}": value for name, value in vars(part).items()}
    return {
        name: _copied(part)
        for name, part in parts.items()
        if isinstance(part, dict | set) and name not in _CACHES
    }


def _rule(effect: str = "NoSchedule", pool: str = "a") -> DeviceTaintRule:
    spec = {
        "deviceSelector": {"driver": DRIVER, "pool": pool},
        "taint": {"key": "broken", "effect": effect},
    }
    return decode(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec})


def _taken(device: str, pool: str = "a") -> Allocation:
    return Allocation(DeviceAllocation((DeviceResult("r", DRIVER, pool, device),)))


def _slice(*devices: str, pool: str = "a") -> ResourceSlice:
    """The slice `a-0`."""
    published = slices(pool, {"devices": [gpu(name) for name in devices]})[0]
    if pool == "a":
        return published
    spec = {"driver": DRIVER, "nodeName": "b", "devices": [gpu(name) for name in devices]}
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    return decode(ResourceSlice, {"metadata": {"name": "a-0"}, "spec": {**spec, "pool": of_pool}})


def _rack() -> ResourceSlice:
    return network("rack", gpu("n0"), nodeSelector=with_zone("x"))


def _net() -> ResourceSlice:
    return network("net", gpu("n0"), gpu("n1"))


def sample() -> Cluster:
    """Two nodes, a claim that has a device, a taint rule, and pools of labels and of all nodes."""
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0")])
    nodes.put_node(Node("b", {"zone": "x"}))
    nodes.put_slice(_rack())
    nodes.put_slice(_net())
    nodes.allocate("default/held", _taken("g0"))
    nodes.put_rule(_rule(pool="rack"))
    return nodes


@pytest.fixture(
    params=[
        pytest.param(pair, id=name)
        for name, pair in {
            "node added": (
                lambda nodes: nodes.put_node(Node("c", {"zone": "x"})),
                lambda nodes: nodes.remove_node("c"),
            ),
            "node relabeled": (
                lambda nodes: nodes.put_node(Node("b", {"zone": "y"})),
                lambda nodes: nodes.put_node(Node("b", {"zone": "x"})),
            ),
            "node removed": (
                lambda nodes: nodes.remove_node("b"),
                lambda nodes: nodes.put_node(Node("b", {"zone": "x"})),
            ),
            "slice added": (
                lambda nodes: nodes.put_slice(network("more", gpu("g0"), nodeName="a")),
                lambda nodes: nodes.remove_slice("more"),
            ),
            "slice updated": (
                lambda nodes: nodes.put_slice(_slice("g0", "g7")),
                lambda nodes: nodes.put_slice(_slice("g0", "g1")),
            ),
            "slice moved to another pool": (
                lambda nodes: nodes.put_slice(_slice("g5", pool="moved")),
                lambda nodes: nodes.put_slice(_slice("g0", "g1")),
            ),
            "slice removed": (
                lambda nodes: nodes.remove_slice("a-0"),
                lambda nodes: nodes.put_slice(_slice("g0", "g1")),
            ),
            "slice with a label selector removed": (
                lambda nodes: nodes.remove_slice("rack"),
                lambda nodes: nodes.put_slice(_rack()),
            ),
            "slice of all nodes removed": (
                lambda nodes: nodes.remove_slice("net"),
                lambda nodes: nodes.put_slice(_net()),
            ),
            "slice of all nodes limited to one": (
                lambda nodes: nodes.put_slice(network("net", gpu("n0"), nodeName="a")),
                lambda nodes: nodes.put_slice(_net()),
            ),
            "rule updated": (
                lambda nodes: nodes.put_rule(_rule("NoExecute", pool="b")),
                lambda nodes: nodes.put_rule(_rule(pool="rack")),
            ),
            "rule removed": (
                lambda nodes: nodes.remove_rule("rule"),
                lambda nodes: nodes.put_rule(_rule(pool="rack")),
            ),
            "claim allocated": (
                lambda nodes: nodes.allocate("default/new", _taken("g1")),
                lambda nodes: nodes.release("default/new"),
            ),
            "claim allocated again": (
                lambda nodes: nodes.allocate("default/held", _taken("g1")),
                lambda nodes: nodes.allocate("default/held", _taken("g0")),
            ),
            "device taken a second time": (
                lambda nodes: nodes.allocate("default/new", _taken("g0")),
                lambda nodes: nodes.release("default/new"),
            ),
            "device of all nodes taken": (
                lambda nodes: nodes.allocate("default/new", _taken("n0", "net")),
                lambda nodes: nodes.release("default/new"),
            ),
            "claim released": (
                lambda nodes: nodes.release("default/held"),
                lambda nodes: nodes.allocate("default/held", _taken("g0")),
            ),
        }.items()
    ]
)
def changes(request: pytest.FixtureRequest) -> tuple[_Change, _Change]:
    """One kind of change, and its inverse."""
    made: tuple[_Change, _Change] = request.param
    return made


def test_inverse_of_a_change_restores_the_cluster(changes: tuple[_Change, _Change]) -> None:
    nodes, (change, take_back) = sample(), changes
    before = contents(nodes)
    change(nodes)
    assert contents(nodes) != before
    take_back(nodes)
    assert contents(nodes) == before


def test_change_counts_until_it_is_taken_back(changes: tuple[_Change, _Change]) -> None:
    nodes, (change, take_back) = sample(), changes
    placer, asked = placer_of(nodes), [request(claim(count)) for count in (1, 2, 3, 4)]
    before = [placer.place(one) for one in asked]
    change(nodes)
    assert [placer.place(one) for one in asked] == [placer_of(nodes).place(one) for one in asked]
    take_back(nodes)
    assert [placer.place(one) for one in asked] == before


def _answers(placer: Placer, asked: list[PlacementRequest]) -> list[object]:
    answers: list[object] = []
    for one in asked:
        try:
            placed = placer.place(one)
        except AllocationError as error:
            answers.append(str(error))
        else:
            # Of nodes that failed, only those are known that were looked at.
            answers.append(placed if isinstance(placed, PlacedClaims) else "nothing")
    return answers


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["binpack", "spread", "fragmentation"]))
def test_any_changes_that_are_taken_back_leave_the_answers_as_they_were(
    seed: int, policy: str
) -> None:
    followed = FollowedCluster(seed)
    nodes = followed.cluster
    asked = [question[1] for _ in range(4) if (question := followed.request()) is not None]
    assume(asked)
    placer = placer_of(nodes, policy)
    state, answers = contents(nodes), _answers(placer, asked)
    objects = deepcopy(followed.objects)
    for _ in range(3):
        followed.objects.change()
        followed.follow()
        changed = _answers(placer, asked)
        assert changed == _answers(placer_of(followed.fresh(), policy), asked)
    followed.objects = objects
    followed.follow()
    assert contents(nodes) == state
    assert _answers(placer, asked) == answers
    assert _answers(placer_of(nodes, policy), asked) == answers


# What such changes cost.


def _many() -> Cluster:
    return cluster(**{f"n{index:02}": [gpu("g0"), gpu("g1")] for index in range(40)})


def test_no_pool_is_resolved_again_when_claims_come_and_go() -> None:
    nodes, first, second = _many(), claim(), claim(2)
    give(nodes, claim())
    place(nodes, claim(2))
    with patch.object(resolution_module, "resolve", side_effect=AssertionError("resolved again")):
        assert give(nodes, first) == ["n00/g1"]
        assert give(nodes, second) == ["n01/g0", "n01/g1"]
        nodes.release(second.key)
        nodes.release(first.key)
        assert give(nodes, claim(2)) == ["n01/g0", "n01/g1"]


def test_only_the_touched_node_is_searched_again() -> None:
    nodes = _many()
    placer, pair, single = placer_of(nodes), request(claim(2)), request(claim())
    placer.place(pair)
    placed = placer.place(single)
    assert isinstance(placed, PlacedClaims)
    nodes.allocate("default/taken-back", placed.allocated.allocations[0])
    assert devices_of(placer.place(pair)) == ["n01/g0", "n01/g1"]
    nodes.release("default/taken-back")
    with patch.object(findings_module, "choose", wraps=choose) as searched:
        assert devices_of(placer.place(pair)) == ["n00/g0", "n00/g1"]
        assert devices_of(placer.place(single)) == ["n00/g0"]
    assert [call.args[1].node.name for call in searched.call_args_list] == ["n00", "n00"]


def test_no_node_is_searched_again_for_claims_of_other_devices_than_those_of_all_nodes() -> None:
    nodes = _many()
    nodes.put_slice(network("net", {"name": "n0", "attributes": {"nic": {"bool": True}}}))
    placer = placer_of(nodes)
    asked = request(claim(selector=f'has(device.attributes["{DRIVER}"].model)'))
    answer = placer.place(asked)
    with patch.object(findings_module, "choose", side_effect=AssertionError("searched again")):
        nodes.allocate("default/net", _taken("n0", "net"))
        assert placer.place(asked) == answer
        nodes.release("default/net")
        assert placer.place(asked) == answer

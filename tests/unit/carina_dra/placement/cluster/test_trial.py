"""A trial undoes exactly what was changed in it, and looks at nothing else again."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import choose
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import Node
from carina_dra.placement.choice import findings as findings_module
from carina_dra.placement.choice.placer import Placed, PlacementRequest, Placer
from carina_dra.placement.cluster import resolution as resolution_module
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.reservation import Reservation
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

_CACHES = {"_resolution", "_nodes_of", "_trial", "_index"}


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


def _reserved(claim: str, device: str) -> Reservation:
    return Reservation(_taken(device).devices.results, frozenset([claim]))


def _slice(*devices: str, pool: str = "a") -> ResourceSlice:
    """The slice `a-0`."""
    published = slices(pool, {"devices": [gpu(name) for name in devices]})[0]
    if pool == "a":
        return published
    spec = {"driver": DRIVER, "nodeName": "b", "devices": [gpu(name) for name in devices]}
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    return decode(ResourceSlice, {"metadata": {"name": "a-0"}, "spec": {**spec, "pool": of_pool}})


def sample() -> Cluster:
    """Two nodes, a claim that has a device, a taint rule, and pools of labels and of all nodes."""
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0")])
    nodes.put_node(Node("b", {"zone": "x"}))
    nodes.put_slice(network("rack", gpu("n0"), nodeSelector=with_zone("x")))
    nodes.put_slice(network("net", gpu("n0"), gpu("n1")))
    nodes.allocate("default/held", _taken("g0"))
    nodes.put_rule(_rule(pool="rack"))
    nodes.reserve("kept", Reservation(_taken("n0", "rack").devices.results, frozenset(["x/y"])))
    return nodes


_CHANGES: dict[str, _Change] = {
    "node added": lambda nodes: nodes.put_node(Node("c", {"zone": "x"})),
    "node relabeled": lambda nodes: nodes.put_node(Node("b", {"zone": "y"})),
    "node removed": lambda nodes: nodes.remove_node("b"),
    "slice added": lambda nodes: nodes.put_slice(network("more", gpu("g0"), nodeName="a")),
    "slice updated": lambda nodes: nodes.put_slice(_slice("g0", "g7")),
    "slice moved to another pool": lambda nodes: nodes.put_slice(_slice("g5", pool="moved")),
    "slice removed": lambda nodes: nodes.remove_slice("a-0"),
    "slice with a label selector removed": lambda nodes: nodes.remove_slice("rack"),
    "slice of all nodes removed": lambda nodes: nodes.remove_slice("net"),
    "slice of all nodes limited to one": lambda nodes: nodes.put_slice(
        network("net", gpu("n0"), nodeName="a")
    ),
    "rule updated": lambda nodes: nodes.put_rule(_rule("NoExecute", pool="b")),
    "rule removed": lambda nodes: nodes.remove_rule("rule"),
    "claim allocated": lambda nodes: nodes.allocate("default/new", _taken("g1")),
    "claim allocated again": lambda nodes: nodes.allocate("default/held", _taken("g1")),
    "device taken a second time": lambda nodes: nodes.allocate("default/new", _taken("g0")),
    "device of all nodes taken": lambda nodes: nodes.allocate("default/new", _taken("n0", "net")),
    "claim released": lambda nodes: nodes.release("default/held"),
    "device reserved": lambda nodes: nodes.reserve("new", _reserved("default/later", "g1")),
    "reservation updated": lambda nodes: nodes.reserve("kept", _reserved("x/y", "g1")),
    "reservation removed": lambda nodes: nodes.unreserve("kept"),
    "reserved device taken": lambda nodes: nodes.allocate("x/y", _taken("n0", "rack")),
}


@pytest.fixture(params=_CHANGES.values(), ids=list(_CHANGES))
def change(request: pytest.FixtureRequest) -> _Change:
    """One kind of change."""
    made: _Change = request.param
    return made


def test_change_is_undone(change: _Change) -> None:
    nodes = sample()
    before = contents(nodes)
    with nodes.trial():
        change(nodes)
        assert contents(nodes) != before
    assert contents(nodes) == before


def test_change_counts_in_the_trial_and_not_after_it(change: _Change) -> None:
    nodes = sample()
    placer, asked = placer_of(nodes), [request(claim(count)) for count in (1, 2, 3, 4)]
    before = [placer.place(one) for one in asked]
    with nodes.trial():
        change(nodes)
        assert [placer.place(one) for one in asked] == [
            placer_of(nodes).place(one) for one in asked
        ]
    assert [placer.place(one) for one in asked] == before


def test_change_of_a_nested_trial_is_undone_alone(change: _Change) -> None:
    nodes = sample()
    before = contents(nodes)
    with nodes.trial():
        nodes.put_node(Node("outer"))
        outer = contents(nodes)
        with nodes.trial():
            change(nodes)
        assert contents(nodes) == outer
        change(nodes)
    assert contents(nodes) == before


def test_kept_change_stays(change: _Change) -> None:
    nodes, expected = sample(), sample()
    with nodes.trial() as trial:
        change(nodes)
        trial.keep()
    change(expected)
    assert contents(nodes) == contents(expected)


def test_change_after_those_that_are_kept_is_undone(change: _Change) -> None:
    nodes = sample()
    with nodes.trial() as trial:
        nodes.put_node(Node("kept"))
        trial.keep()
        kept = contents(nodes)
        change(nodes)
    assert contents(nodes) == kept


def test_kept_change_of_a_nested_trial_is_undone_by_the_outer_one(change: _Change) -> None:
    nodes = sample()
    before = contents(nodes)
    with nodes.trial():
        nodes.release("default/held")
        with nodes.trial() as inner:
            change(nodes)
            changed = contents(nodes)
            inner.keep()
        assert contents(nodes) == changed
        nodes.put_node(Node("later"))
    assert contents(nodes) == before


def test_change_that_each_of_nested_trials_keeps_stays(change: _Change) -> None:
    nodes = sample()
    with nodes.trial() as outer:
        with nodes.trial() as inner:
            change(nodes)
            inner.keep()
        changed = contents(nodes)
        outer.keep()
    assert contents(nodes) == changed


def test_kept_change_stays_though_an_exception_follows(change: _Change) -> None:
    nodes = sample()
    changed: list[dict[str, object]] = []

    def change_and_keep() -> None:
        with nodes.trial() as trial:
            change(nodes)
            trial.keep()
            changed.append(contents(nodes))
            raise LookupError

    with pytest.raises(LookupError):
        change_and_keep()
    assert [contents(nodes)] == changed


def test_keeping_after_the_end_changes_nothing(change: _Change) -> None:
    nodes = sample()
    before = contents(nodes)
    with nodes.trial():
        with nodes.trial() as inner:
            change(nodes)
        inner.keep()
        assert contents(nodes) == before
    assert contents(nodes) == before


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_nested_trials_keep_what_is_kept_up_to_the_outermost(data: st.DataObject) -> None:
    nodes = sample()

    def run(depth: int) -> dict[str, object]:
        """What the cluster must contain after a trial."""
        expected = contents(nodes)
        with nodes.trial() as trial:
            for _ in range(data.draw(st.integers(1, 3))):
                if depth < 2 and data.draw(st.booleans()):
                    after = run(depth + 1)
                    assert contents(nodes) == after
                else:
                    data.draw(st.sampled_from(list(_CHANGES.values())))(nodes)
                if data.draw(st.booleans()):
                    trial.keep()
                    expected = contents(nodes)
        return expected

    assert run(0) == contents(nodes)


def test_change_is_undone_after_an_exception(change: _Change) -> None:
    nodes = sample()
    before = contents(nodes)
    with pytest.raises(LookupError):
        _fail_after(change, nodes)
    assert contents(nodes) == before


def _fail_after(change: _Change, nodes: Cluster) -> None:
    with nodes.trial():
        change(nodes)
        raise LookupError


def test_changes_outside_of_a_trial_stay(change: _Change) -> None:
    nodes = sample()
    with nodes.trial():
        change(nodes)
    change(nodes)
    changed = contents(nodes)
    with nodes.trial():
        pass
    assert contents(nodes) == changed


def test_all_changes_together_are_undone_in_any_order() -> None:
    for seed in range(20):
        nodes, changes = sample(), list(_CHANGES.values())
        Random(seed).shuffle(changes)
        before = contents(nodes)
        with nodes.trial():
            for make in changes:
                make(nodes)
        assert contents(nodes) == before


def test_trial_in_an_exception_of_a_nested_trial_goes_on() -> None:
    nodes = sample()
    before = contents(nodes)
    with nodes.trial():
        nodes.release("default/held")
        outer = contents(nodes)
        with pytest.raises(LookupError):
            _fail_after(_CHANGES["node removed"], nodes)
        assert contents(nodes) == outer
    assert contents(nodes) == before


def _answers(placer: Placer, asked: list[PlacementRequest]) -> list[object]:
    answers: list[object] = []
    for one in asked:
        try:
            placed = placer.place(one)
        except AllocationError as error:
            answers.append(str(error))
        else:
            # Of nodes that failed, only those are known that were looked at.
            answers.append(placed if isinstance(placed, Placed) else "nothing")
    return answers


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["binpack", "spread", "fragmentation"]))
def test_any_trial_leaves_the_answers_as_they_were(seed: int, policy: str) -> None:
    followed = FollowedCluster(seed)
    nodes = followed.cluster
    asked = [question[1] for _ in range(4) if (question := followed.request()) is not None]
    assume(asked)
    placer = placer_of(nodes, policy)
    state, answers = contents(nodes), _answers(placer, asked)
    with nodes.trial():
        for _ in range(3):
            followed.objects.change()
            followed.follow()
            inside = _answers(placer, asked)
            assert inside == _answers(placer_of(followed.fresh(), policy), asked)
    assert contents(nodes) == state
    assert _answers(placer, asked) == answers
    assert _answers(placer_of(nodes, policy), asked) == answers


# What a trial costs.


def _many() -> Cluster:
    return cluster(**{f"n{index:02}": [gpu("g0"), gpu("g1")] for index in range(40)})


def test_trial_resolves_no_pool_again_when_claims_come_and_go() -> None:
    nodes = _many()
    give(nodes, claim())
    place(nodes, claim(2))
    with (
        patch.object(resolution_module, "resolve", side_effect=AssertionError("resolved again")),
        nodes.trial(),
    ):
        assert give(nodes, claim()) == ["n00/g1"]
        assert give(nodes, claim(2)) == ["n01/g0", "n01/g1"]


def test_after_a_trial_only_the_touched_node_is_searched_again() -> None:
    nodes = _many()
    placer, pair, single = placer_of(nodes), request(claim(2)), request(claim())
    placer.place(pair)
    placer.place(single)
    with nodes.trial():
        placed = placer.place(single)
        assert isinstance(placed, Placed)
        nodes.allocate("default/trial", placed.allocated.allocations[0])
        assert devices_of(placer.place(pair)) == ["n01/g0", "n01/g1"]
    with patch.object(findings_module, "choose", wraps=choose) as searched:
        assert devices_of(placer.place(pair)) == ["n00/g0", "n00/g1"]
        assert devices_of(placer.place(single)) == ["n00/g0"]
    assert [call.args[1].node.name for call in searched.call_args_list] == ["n00", "n00"]


def test_empty_trial_costs_nothing() -> None:
    nodes = _many()
    placer, asked = placer_of(nodes), request(claim(2))
    answer = placer.place(asked)
    with patch.object(findings_module, "choose", side_effect=AssertionError("searched again")):
        with nodes.trial():
            assert placer.place(asked) == answer
        assert placer.place(asked) == answer


def test_trial_of_a_device_of_all_nodes_searches_no_node_for_claims_of_other_devices() -> None:
    nodes = _many()
    nodes.put_slice(network("net", {"name": "n0", "attributes": {"nic": {"bool": True}}}))
    placer = placer_of(nodes)
    asked = request(claim(selector=f'has(device.attributes["{DRIVER}"].model)'))
    answer = placer.place(asked)
    with (
        patch.object(findings_module, "choose", side_effect=AssertionError("searched again")),
        nodes.trial(),
    ):
        nodes.allocate("default/net", _taken("n0", "net"))
        assert placer.place(asked) == answer

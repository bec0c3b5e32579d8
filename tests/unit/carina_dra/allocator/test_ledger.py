"""What a search takes, in addition to what is in use."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.allocator.features import DEFAULT_FEATURES, Features
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult
from tests.samples.fleet import DRIVER, consumption, partitions, slices

_GROUPS = replace(DEFAULT_FEATURES, compatibility_groups=True)
_FOUR, _SIX = ({"memory": Quantity.parse(text)} for text in ("4", "6"))


def _node(*specs: dict[str, Any], features: Features = DEFAULT_FEATURES) -> Cluster:
    nodes = Cluster(features)
    nodes.put_node(Node("a"))
    for published in slices("a", *specs):
        nodes.put_slice(published)
    return nodes


def _begin(nodes: Cluster) -> tuple[Ledger, list[Candidate]]:
    """The ledger of node a before a search, and the devices of the node."""
    state = nodes.state("a")
    return Ledger(state.ready, state.usage, state.features), list(state.published)


def _shared(**capacity: str) -> dict[str, Any]:
    amounts = {name: {"value": value} for name, value in capacity.items()}
    return {"name": "g0", "allowMultipleAllocations": True, "capacity": amounts}


def _in_use(nodes: Cluster, **share: Any) -> None:
    result = DeviceResult("r", DRIVER, "a", "g0", **share)
    nodes.allocate("default/other", Allocation(DeviceAllocation((result,))))


# Whole devices.


@pytest.mark.parametrize("first_is_admin", [False, True])
@pytest.mark.parametrize("is_admin", [False, True])
def test_claim_gets_a_device_once(*, first_is_admin: bool, is_admin: bool) -> None:
    ledger, (device,) = _begin(_node({"devices": [{"name": "g0"}]}))
    ledger.hold(device.id, 0, admin=first_is_admin)
    assert not ledger.is_free(device.id, 0, admin=is_admin)


@pytest.mark.parametrize(
    ("first_is_admin", "is_admin", "is_free"),
    [(False, False, False), (False, True, True), (True, False, True), (True, True, True)],
)
def test_only_admin_access_leaves_a_device_to_another_claim(
    *, first_is_admin: bool, is_admin: bool, is_free: bool
) -> None:
    ledger, (device,) = _begin(_node({"devices": [{"name": "g0"}]}))
    ledger.hold(device.id, 0, admin=first_is_admin)
    assert ledger.is_free(device.id, 1, admin=is_admin) == is_free


def test_device_in_use_is_free_for_admin_access_only() -> None:
    nodes = _node({"devices": [{"name": "g0"}]})
    _in_use(nodes)
    ledger, (device,) = _begin(nodes)
    assert [ledger.is_free(device.id, 0, admin=admin) for admin in (False, True)] == [False, True]


def test_device_that_is_let_go_remains_with_those_that_had_it_before() -> None:
    ledger, (device,) = _begin(_node({"devices": [{"name": "g0"}]}))
    ledger.hold(device.id, 0, admin=True)
    ledger.hold(device.id, 1, admin=False)
    ledger.let_go(device.id)
    assert ledger.is_free(device.id, 1, admin=False)
    assert not ledger.is_free(device.id, 0, admin=True)


# Shares.


def test_shares_of_a_search_have_room_beside_each_other_and_what_is_in_use() -> None:
    nodes = _node({"devices": [_shared(memory="18")]})
    _in_use(nodes, share_id="s", consumed_capacity=_FOUR)
    ledger, (device,) = _begin(nodes)
    ledger.share(device.id, _FOUR)
    assert ledger.has_room(device, _SIX)
    ledger.share(device.id, _FOUR)
    assert ledger.has_room(device, _SIX)
    ledger.share(device.id, _FOUR)
    assert not ledger.has_room(device, _SIX)


def test_share_that_is_undone_leaves_those_before_it() -> None:
    ledger, (device,) = _begin(_node({"devices": [_shared(memory="10")]}))
    ledger.share(device.id, _SIX)
    ledger.share(device.id, _FOUR)
    ledger.unshare(device.id)
    assert ledger.is_shared(device.id)
    assert ledger.has_room(device, _FOUR)
    assert not ledger.has_room(device, _SIX)
    ledger.unshare(device.id)
    assert not ledger.is_shared(device.id)


def test_device_has_shares_that_are_in_use_or_that_the_search_took() -> None:
    nodes = _node({"devices": [_shared()]})
    ledger, (device,) = _begin(nodes)
    assert not ledger.is_shared(device.id)
    ledger.share(device.id, {})
    assert ledger.is_shared(device.id)
    _in_use(nodes, share_id="s")
    ledger, (device,) = _begin(nodes)
    assert ledger.is_shared(device.id)


def test_what_is_taken_tells_holders_shares_and_amounts_apart() -> None:
    ledger, (device,) = _begin(_node({"devices": [_shared(memory="18")]}))
    taken = [ledger.taken(device.id)]
    for amounts in ({}, {}, _FOUR):
        ledger.share(device.id, amounts)
        taken.append(ledger.taken(device.id))
    for claim, admin in ((0, True), (1, True)):
        ledger.hold(device.id, claim, admin=admin)
        taken.append(ledger.taken(device.id))
        ledger.let_go(device.id)
    assert taken[0] is None
    assert len(set(taken)) == len(taken)


# Counters.


def test_counters_are_drawn_to_the_last_and_put_back() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in partitions("a", 4, p0=3, p1=1, p2=1):
        nodes.put_slice(published)
    ledger, (large, small, other) = _begin(nodes)
    assert ledger.draw(large) is not None
    drawn = ledger.draw(small)
    assert drawn is not None
    assert ledger.draw(other) is None
    ledger.put_back(drawn)
    assert ledger.draw(other) is not None


def _grouped(*groups: list[str]) -> Cluster:
    drawn = {"counterSet": "x", "counters": {"memory": {"value": "1"}}}
    devices = [
        {
            "name": f"p{index}",
            "consumesCounters": [{**drawn, **({"compatibilityGroups": names} if names else {})}],
        }
        for index, names in enumerate(groups)
    ]
    counters = [{"name": "x", "counters": {"memory": {"value": "9"}}}]
    return _node({"sharedCounters": counters}, {"devices": devices}, features=_GROUPS)


@pytest.mark.parametrize(
    ("groups", "may_draw"),
    [
        ([["a", "b"], ["b"], ["b", "c"]], [True, True, True]),
        ([["a", "b"], ["b"], ["a"]], [True, True, False]),
        ([["a"], []], [True, False]),
        ([[], ["a"], []], [True, False, True]),
    ],
)
def test_devices_of_a_counter_set_share_a_group_or_have_none(
    groups: list[list[str]], may_draw: list[bool]
) -> None:
    ledger, devices = _begin(_grouped(*groups))
    assert [ledger.draw(device) is not None for device in devices] == may_draw


def test_device_that_is_put_back_leaves_the_groups_as_before() -> None:
    ledger, (_, second, third) = _begin(_grouped(["a", "b"], ["b"], ["a"]))
    drawn = ledger.draw(second)
    assert drawn is not None
    assert ledger.draw(third) is None
    ledger.put_back(drawn)
    assert ledger.draw(third) is not None


def test_device_in_use_on_another_node_has_drawn_from_the_counters() -> None:
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 3}
    counters = [{"name": "x", "counters": {"memory": {"value": "4"}}}]
    specs = (
        {"allNodes": True, "nodeName": None, "sharedCounters": counters},
        {"nodeName": "a", "devices": [{"name": "a0", **consumption(x=3)}]},
        {"nodeName": "b", "devices": [{"name": "b0", **consumption(x=3)}]},
    )
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in slices("fabric", *({**spec, "pool": pool} for spec in specs)):
        nodes.put_slice(published)

    def can_draw() -> bool:
        ledger, (candidate,) = _begin(nodes)
        return ledger.draw(candidate) is not None

    assert can_draw()
    results = (DeviceResult("r", DRIVER, "fabric", "b0"),)
    nodes.allocate("default/other", Allocation(DeviceAllocation(results)))
    assert not can_draw()

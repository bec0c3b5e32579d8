"""Devices that consume the same counters: which are in use or free, and which block which."""

from typing import Any

from carina_dra.allocator.group import WHOLE, DeviceGroup, groups
from carina_dra.allocator.node import Node
from carina_dra.allocator.usage import DeviceId, Usage
from carina_dra.placement.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceResult
from tests.samples.fleet import DRIVER, consumption, partitions, slices


def _groups(*published: Any) -> tuple[DeviceGroup, ...]:
    """The groups of the only pool of node a."""
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for one in published:
        nodes.put_slice(one)
    (pool,) = nodes.state("a").ready
    return groups(pool)


def _usage(*devices: str, pool: str = "a") -> Usage:
    return Usage.of(DeviceResult("r", DRIVER, pool, name) for name in devices)


def _names(*members: Any) -> list[str]:
    return [member.id.device for member in members]


def _blocked(group: DeviceGroup, usage: Usage) -> dict[str, int]:
    return {device.device: number for device, number in group.blocked(usage).items()}


def test_device_blocks_those_that_need_more_than_it_leaves() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2, quarter=1))
    assert _blocked(group, Usage()) == {"whole": 3, "half": 1, "other": 1, "quarter": 1}


def test_devices_in_use_block_nothing_more() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2, quarter=1))
    assert _blocked(group, Usage())["other"] == 1
    assert _blocked(group, _usage("half")) == {"other": 1, "quarter": 1}


def test_device_blocks_another_once_that_needs_two_of_its_counters() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "1"}}} for name in "xy"]
    devices = [{"name": f"p{index}", **consumption(x=1, y=1)} for index in range(2)]
    (group,) = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert _blocked(group, Usage()) == {"p0": 1, "p1": 1}


def test_device_blocks_through_each_of_its_counters() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "1"}}} for name in "xy"]
    devices = [
        {"name": "both", **consumption(x=1, y=1)},
        {"name": "x", **consumption(x=1)},
        {"name": "y", **consumption(y=1)},
    ]
    (group,) = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert _blocked(group, Usage()) == {"both": 2, "x": 1, "y": 1}


def test_device_of_two_counter_sets_joins_their_devices() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "2"}}} for name in "xyz"]
    devices = [
        {"name": "x", **consumption(x=1)},
        {"name": "y", **consumption(y=1)},
        {"name": "z", **consumption(z=1)},
        {"name": "xy", **consumption(x=1, y=1)},
    ]
    together = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert [_names(*group.members) for group in together] == [["x", "y", "xy"], ["z"]]
    apart = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices[:3]}))
    assert [_names(*group.members) for group in apart] == [["x"], ["y"], ["z"]]


def test_counter_sets_are_joined_through_others() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "2"}}} for name in "xyz"]
    devices = [
        {"name": "x", **consumption(x=1)},
        {"name": "z", **consumption(z=1)},
        {"name": "xy", **consumption(x=1, y=1)},
        {"name": "zy", **consumption(z=1, y=1)},
    ]
    (group,) = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert _names(*group.members) == ["x", "z", "xy", "zy"]


def test_use_is_that_of_the_scarcest_counter() -> None:
    (group,) = _groups(*partitions("a", 4, half=2, quarter=1))
    assert group.used(Usage()) == 0
    assert group.used(_usage("quarter")) == WHOLE // 4
    assert group.used(_usage("quarter", "half")) == WHOLE // 4 * 3


def test_use_is_at_most_all_though_allocators_conflicted() -> None:
    (group,) = _groups(*partitions("a", 4, half=2, most=3))
    assert group.used(_usage("half", "most")) == WHOLE


def test_free_devices_are_not_in_use_and_have_their_counters_left() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2, quarter=1))
    assert _names(*group.free(_usage("half"))) == ["other", "quarter"]


def test_use_of_a_shared_device_is_that_of_its_scarcest_capacity() -> None:
    capacity = {"memory": {"value": "8"}, "cores": {"value": "100"}}
    device = {"name": "g0", "allowMultipleAllocations": True, "capacity": capacity}
    (group,) = _groups(*slices("a", {"devices": [device]}))
    consumed = {"memory": Quantity.parse("2"), "cores": Quantity.parse("10")}
    share = DeviceResult("r", DRIVER, "a", "g0", share_id="s", consumed_capacity=consumed)
    assert group.used(Usage.of([share])) == WHOLE // 4


def test_device_with_shares_has_taken_its_counters() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2))
    share = Usage.of([DeviceResult("r", DRIVER, "a", "half", share_id="s")])
    assert (_names(*group.free(share)), group.used(share)) == (["half", "other"], WHOLE // 2)


def _over_two_nodes() -> DeviceGroup:
    """A device of node a; one of node b consumes its counters and those of another set."""
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 3}
    sets = [{"name": name, "counters": {"memory": {"value": "4"}}} for name in "xy"]
    specs = (
        {"allNodes": True, "nodeName": None, "sharedCounters": sets},
        {"nodeName": "a", "devices": [{"name": "a0", **consumption(x=3)}]},
        {"nodeName": "b", "devices": [{"name": "b0", **consumption(x=2, y=1)}]},
    )
    (group,) = _groups(*slices("fabric", *({**spec, "pool": pool} for spec in specs)))
    return group


def test_device_in_use_on_another_node_leaves_less() -> None:
    group, elsewhere = _over_two_nodes(), _usage("b0", pool="fabric")
    assert (_names(*group.free(Usage())), group.used(Usage())) == (["a0"], 0)
    assert (_names(*group.free(elsewhere)), group.used(elsewhere)) == ([], WHOLE // 2)


def test_what_is_blocked_follows_devices_in_use_on_another_node() -> None:
    group = _over_two_nodes()
    assert group.blocked(Usage()) == {DeviceId(DRIVER, "fabric", "a0"): 0}
    assert group.blocked(_usage("b0", pool="fabric")) == {}

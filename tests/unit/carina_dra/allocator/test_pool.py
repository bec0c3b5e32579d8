"""The pools of a node, from slices of several generations, and with taints of rules."""

from typing import Any

from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import IncompletePool, Pool, PoolSlice, ReadyPool, gather
from carina_dra.resource import DeviceTaintRule, ResourceSlice, decode
from tests.samples.fleet import DRIVER

_NODE = Node("a")


def _slice(name: str, generation: int, count: int = 1, **spec: Any) -> ResourceSlice:
    pool = {"name": "p", "generation": generation, "resourceSliceCount": count}
    body = {"driver": DRIVER, "nodeName": "a", "pool": pool, "devices": [{"name": name}], **spec}
    return decode(ResourceSlice, {"metadata": {"name": name}, "spec": body})


def _gathered(*published: ResourceSlice) -> tuple[Pool, ...]:
    return gather(map(PoolSlice.of, published), _NODE, DEFAULT_FEATURES)


def _devices(*published: ResourceSlice) -> list[str]:
    (pool,) = _gathered(*published)
    assert isinstance(pool, ReadyPool)
    return [candidate.id.device for candidate in pool.devices]


def test_newest_generation_counts() -> None:
    old, new = _slice("old", 1), _slice("new", 2)
    assert _devices(old, new) == _devices(new, old) == ["new"]


def test_pool_whose_newest_generation_lacks_a_slice_is_incomplete() -> None:
    (pool,) = _gathered(_slice("old", 1), _slice("new", 2, count=2))
    assert isinstance(pool, IncompletePool)


def test_pool_with_more_slices_than_its_driver_says_is_incomplete() -> None:
    (pool,) = _gathered(_slice("one", 1), _slice("two", 1))
    assert isinstance(pool, IncompletePool)


def test_pool_whose_newest_generation_is_for_another_node_has_left_this_one() -> None:
    left = _slice("new", 2, nodeName="b")
    assert _gathered(_slice("old", 1, count=2), left) == ()


def test_slices_come_in_the_order_of_their_names() -> None:
    assert _devices(_slice("b", 1, count=2), _slice("a", 1, count=2)) == ["a", "b"]


def test_taints_of_rules_are_added_to_those_of_the_device() -> None:
    taint = {"key": "own", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"device": "d"}, "taint": {**taint, "key": "added"}}
    rule = decode(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec})
    published = _slice("s", 1, devices=[{"name": "d", "taints": [taint]}, {"name": "e"}])
    tainted, other = PoolSlice.of(published, [rule]).devices
    assert [one.key for one in tainted.device.taints] == ["own", "added"]
    assert other.device.taints == ()

"""A pool with slices of its own for each of many nodes."""

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from carina_dra.allocator import pool as pool_module
from carina_dra.allocator.node import Node, reaches
from carina_dra.allocator.pool import IncompletePool, InvalidPool, Pool, ReadyPool, resolve
from carina_dra.allocator.usage import PoolId
from carina_dra.placement.choice.placer import PlacedClaims
from carina_dra.placement.cluster import cluster as cluster_module
from carina_dra.placement.cluster import resolution as resolution_module
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    ResourceSlice,
    decode,
)
from tests.samples.fleet import DRIVER, claim, devices_of, gpu, model_is, placer_of, request

_POOL = PoolId(DRIVER, "all")
_NODES = 12
_SETS = [{"name": "memory", "counters": {"gib": {"value": "80"}}}]
_DRAWS = [{"counterSet": "memory", "counters": {"gib": {"value": "80"}}}]


def _slice(
    number: int, *, node: str = "", generation: int = 1, count: int = _NODES, **spec: Any
) -> ResourceSlice:
    """The slice of a node with one GPU, unless `spec` says otherwise."""
    pool = {"name": _POOL.pool, "generation": generation, "resourceSliceCount": count}
    content = {"devices": [gpu(f"g{number}")]} | spec
    where = {"nodeName": node or _name(number)}
    return decode(
        ResourceSlice,
        {
            "metadata": {"name": f"slice-{number:03}"},
            "spec": {"driver": DRIVER, "pool": pool, **where, **content},
        },
    )


def _name(number: int) -> str:
    return f"n{number:03}"


def _cluster(count: int = _NODES) -> Cluster:
    made = Cluster()
    for number in range(count):
        made.put_node(Node(_name(number)))
    for number in range(count):
        made.put_slice(_slice(number, count=count))
    return made


def _pool(of: Cluster, number: int) -> Pool:
    (only,) = of.offer(_name(number)).pools
    return only


def _seen(of: Cluster) -> list[object]:
    """What each node sees of the pool."""
    return [
        (
            pool.__class__,
            [candidate.device for candidate in pool.devices],
            [candidate.device for candidate in pool.elsewhere],
            pool.counters,
        )
        if isinstance(pool, ReadyPool)
        else pool
        for name in of.nodes
        for pool in of.offer(name).pools
    ]


def test_each_node_sees_its_own_devices() -> None:
    nodes = _cluster()
    for number in range(_NODES):
        pool = _pool(nodes, number)
        assert isinstance(pool, ReadyPool)
        assert [candidate.id.device for candidate in pool.devices] == [f"g{number}"]


def test_a_node_is_resolved_from_its_own_slices() -> None:
    nodes = _cluster()
    with patch.object(pool_module, "reaches", wraps=reaches) as looked:
        for name in nodes.nodes:
            nodes.offer(name)
    assert looked.call_count == _NODES


def test_a_node_without_slices_sees_nothing_of_the_pool() -> None:
    nodes = _cluster()
    nodes.put_node(Node("other"))
    assert nodes.offer("other").pools == ()


def test_an_update_of_a_slice_resolves_the_pool_for_its_node_only() -> None:
    nodes = _cluster()
    placer, asked = placer_of(nodes), request(claim(selector=model_is("new")))
    assert not isinstance(placer.place(asked), PlacedClaims)
    with patch.object(resolution_module, "resolve", wraps=resolve) as resolved:
        nodes.put_slice(_slice(3, devices=[gpu("g3", model="new")]))
        assert devices_of(placer.place(asked)) == ["all/g3"]
    assert resolved.call_count == 1


def test_an_update_of_a_slice_can_be_taken_back() -> None:
    nodes = _cluster()
    before = _seen(nodes)
    nodes.put_slice(_slice(3, devices=[gpu("g3", model="new")]))
    assert _seen(nodes) != before
    nodes.put_slice(_slice(3))
    assert _seen(nodes) == before


def test_a_newer_slice_hides_the_older_ones_from_their_nodes_until_they_are_newer_too() -> None:
    nodes = _cluster()
    nodes.offer(_name(0))
    nodes.put_slice(_slice(3, generation=2))
    assert nodes.offer(_name(0)).pools == ()
    assert _pool(nodes, 3) == IncompletePool(_POOL)
    for number in range(_NODES):
        nodes.put_slice(_slice(number, generation=2))
    assert isinstance(_pool(nodes, 0), ReadyPool)


def test_a_slice_of_another_count_makes_the_pool_incomplete_for_its_node() -> None:
    nodes = _cluster()
    nodes.offer(_name(3))
    nodes.put_slice(_slice(3, count=_NODES + 1))
    assert _pool(nodes, 3) == IncompletePool(_POOL)
    assert isinstance(_pool(nodes, 0), ReadyPool)


def test_a_slice_that_goes_makes_the_pool_incomplete_for_all_nodes() -> None:
    nodes = _cluster()
    nodes.offer(_name(0))
    nodes.remove_slice("slice-003")
    assert _pool(nodes, 0) == IncompletePool(_POOL)


def test_a_slice_that_moves_concerns_both_nodes() -> None:
    nodes = _cluster()
    nodes.offer(_name(3))
    nodes.offer(_name(4))
    nodes.put_slice(_slice(3, node=_name(4)))
    assert nodes.offer(_name(3)).pools == ()
    pool = _pool(nodes, 4)
    assert isinstance(pool, ReadyPool)
    assert {candidate.id.device for candidate in pool.devices} == {"g3", "g4"}


def test_counters_of_another_slice_concern_all_nodes() -> None:
    nodes = _cluster()
    nodes.put_slice(_slice(0, devices=[], sharedCounters=_SETS))
    assert isinstance(_pool(nodes, 5), ReadyPool)
    nodes.put_slice(_slice(1, devices=[], sharedCounters=_SETS))
    assert isinstance(_pool(nodes, 5), InvalidPool)
    nodes.put_slice(_slice(1))
    assert isinstance(_pool(nodes, 5), ReadyPool)


def test_devices_that_consume_counters_concern_all_nodes() -> None:
    nodes = _cluster()
    nodes.offer(_name(5))
    nodes.put_slice(_slice(1, devices=[{**gpu("g1"), "consumesCounters": _DRAWS}]))
    assert isinstance(_pool(nodes, 5), InvalidPool)
    nodes.put_slice(_slice(1))
    assert isinstance(_pool(nodes, 5), ReadyPool)


def test_a_pool_with_slices_of_its_own_for_each_node_is_not_wide() -> None:
    nodes = _cluster(cluster_module._MANY + 1)
    moment = nodes.changed_nodes.now
    nodes.allocate("default/held", _use("g7"))
    assert not nodes.is_wide(_POOL)
    assert list(nodes.changed_nodes.since(moment)) == [_name(7)]


def test_a_pool_with_counters_for_many_nodes_is_wide() -> None:
    nodes = _cluster(cluster_module._MANY + 1)
    nodes.put_slice(_slice(0, count=cluster_module._MANY + 1, devices=[], sharedCounters=_SETS))
    assert nodes.is_wide(_POOL)
    nodes.put_slice(_slice(0, count=cluster_module._MANY + 1))
    assert not nodes.is_wide(_POOL)


@pytest.mark.parametrize("many", [1, 100], ids=["wide", "not wide"])
@pytest.mark.parametrize("seed", range(8))
def test_a_cluster_that_follows_updates_answers_as_a_new_one(seed: int, many: int) -> None:
    random, count = Random(seed), 5
    held: dict[str, Allocation] = {}
    with patch.multiple(cluster_module, _MANY=many, _SLICES=1):
        followed = _cluster(count)
        published = {number: _slice(number, count=count) for number in range(count)}
        placer = placer_of(followed)
        for _ in range(60):
            number = random.randrange(count)
            published[number] = _random_slice(random, number, count)
            followed.put_slice(published[number])
            for device in random.sample(_names(count), 2):
                if device in held:
                    del held[device]
                    followed.release(device)
                elif len(held) < 8:
                    held[device] = _use(device)
                    followed.allocate(device, held[device])
            fresh = Cluster()
            for name in followed.nodes:
                fresh.put_node(Node(name))
            for one in random.sample(list(published.values()), count):
                fresh.put_slice(one)
            for name, allocation in held.items():
                fresh.allocate(name, allocation)
            if random.random() < 0.5:
                assert _seen(followed) == _seen(fresh)
            asked = request(claim(random.randint(1, 2), selector=model_is("m1")))
            assert placer.place(asked) == placer_of(fresh).place(asked)


def _use(device: str) -> Allocation:
    return Allocation(DeviceAllocation((DeviceResult("r", DRIVER, _POOL.pool, device),)))


def _names(count: int) -> list[str]:
    """The names of the devices in random slices of so many nodes."""
    return [f"g{number}-{index}" for number in range(count) for index in range(3)]


def _random_slice(random: Random, number: int, count: int) -> ResourceSlice:
    """Nearly always an update that concerns one node."""
    devices = [
        gpu(f"g{number}-{index}", model=f"m{random.randrange(3)}", numa=random.randrange(2))
        for index in range(random.randrange(4))
    ]
    if random.random() < 0.1:
        return _slice(number, count=count, devices=[], sharedCounters=_SETS)
    if devices and random.random() < 0.1:
        devices[0]["consumesCounters"] = _DRAWS
    return _slice(
        number,
        node=_name(random.randrange(count)) if random.random() < 0.1 else "",
        generation=2 if random.random() < 0.1 else 1,
        count=count,
        devices=devices,
    )


def test_the_nodes_of_devices_are_found_once_for_many_claims() -> None:
    nodes = _cluster()
    find = Cluster._nodes_by_device
    with patch.object(Cluster, "_nodes_by_device", autospec=True, side_effect=find) as found:
        for number in range(_NODES):
            moment = nodes.changed_nodes.now
            nodes.allocate(f"default/claim-{number}", _use(f"g{number}"))
            assert list(nodes.changed_nodes.since(moment)) == [_name(number)]
    assert found.call_count == 1

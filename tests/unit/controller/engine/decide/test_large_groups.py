"""What a group of many pods costs grows with the number of its pods, and not with its square."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from carina_dra.allocator.node import Node
from controller.engine.decide.cycle import plan
from controller.engine.model.group import Group, PodSet, TopologyConstraint
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Evicting, Pod
from controller.engine.model.snapshot import EngineSettings, Snapshot
from tests.calls import calls_of
from tests.unit.controller.engine.decide.small import NOW, group, pod, queue

_NODES = 64


def test_pods_of_one_group_cost_no_more_than_twice_as_much_as_groups_of_one_pod() -> None:
    apart = [group(f"g{number}") for number in range(800)]
    of_many = work_of(_cluster(groups=[group("g")], waiting=800))
    of_one = work_of(_cluster(groups=apart, waiting=1))
    assert of_many < 2 * of_one


def _grows(size: int) -> Snapshot:
    return _cluster(groups=[group("g")], waiting=size)


def _starts_as_a_gang(size: int) -> Snapshot:
    return _cluster(groups=[group("g", least=size)], waiting=size)


def _grows_in_a_rack(size: int) -> Snapshot:
    topology = TopologyConstraint("tree", required="rack")
    return _cluster(groups=[replace(group("g"), root=PodSet("", 1, topology))], waiting=size)


def _grows_beside_pods_that_run(size: int) -> Snapshot:
    return _cluster(groups=[group("g")], running=size, waiting=size)


def _grows_where_another_pod_leaves(size: int) -> Snapshot:
    cluster = _cluster(groups=[group("g")], running=size, waiting=size)
    first, *others = cluster.pods
    return replace(cluster, pods=(replace(first, state=Evicting("n0")), *others))


def _replaces_pods_of_another_group(size: int) -> Snapshot:
    low = group("low")
    high = group("high", priority=1)
    pods = [
        *(pod(low, 1, at=f"n{rank % _NODES}", rank=rank) for rank in range(size)),
        *(pod(high, 1, rank=rank) for rank in range(size // 4)),
    ]
    return _filled([low, high], pods, size)


def _replaces_pods_of_another_group_as_a_gang(size: int) -> Snapshot:
    low = group("low")
    high = group("high", priority=1, least=size // 4)
    pods = [
        *(pod(low, 1, at=f"n{rank % _NODES}", rank=rank) for rank in range(size)),
        *(pod(high, 1, rank=rank) for rank in range(size // 4)),
    ]
    return _filled([low, high], pods, size)


def _replaces_other_groups_below_the_limit_of_their_queue(size: int) -> Snapshot:
    low = [group(f"low{number:03}") for number in range(size)]
    high = group("high", priority=1, least=size // 4)
    pods = [
        *(pod(one, 1, at=f"n{number % _NODES}") for number, one in enumerate(low)),
        *(pod(high, 1, rank=rank) for rank in range(size // 4)),
    ]
    limited = queue("queue", limit=size, quota=None)
    return replace(_filled([*low, high], pods, 2 * size), queues=(limited,))


@pytest.mark.parametrize(
    "cluster",
    [
        _grows,
        _starts_as_a_gang,
        _grows_in_a_rack,
        _grows_beside_pods_that_run,
        _grows_where_another_pod_leaves,
        _replaces_pods_of_another_group,
        _replaces_pods_of_another_group_as_a_gang,
        _replaces_other_groups_below_the_limit_of_their_queue,
    ],
)
def test_work_for_twice_as_many_pods_is_about_twice_as_much(
    cluster: Callable[[int], Snapshot],
) -> None:
    once, twice = work_of(cluster(400)), work_of(cluster(800))
    assert twice < 2.4 * once


def work_of(cluster: Snapshot) -> int:
    """How many calls a decision takes."""
    decided: list[Plan] = []
    calls = calls_of(lambda: decided.append(plan(cluster)))
    assert not decided[0].waiting
    return calls


def _cluster(*, groups: list[Group], waiting: int, running: int = 0) -> Snapshot:
    pods = [
        pod(one, 1, at=f"n{rank % _NODES}" if rank < running else None, rank=rank)
        for one in groups
        for rank in range(running + waiting)
    ]
    return _filled(groups, pods, 2 * len(pods))


def _filled(groups: list[Group], pods: list[Pod], cores: int) -> Snapshot:
    nodes = tuple(
        ClusterNode(
            Node(f"n{number}", {"rack": "r"}),
            cpu=cores * 1_000 // _NODES,
            memory=1,
            pods=cores,
        )
        for number in range(_NODES)
    )
    return Snapshot(
        now=NOW,
        nodes=nodes,
        queues=(queue("queue", quota=None),),
        groups=tuple(groups),
        pods=tuple(pods),
        topologies={"tree": ("rack",)},
        settings=EngineSettings(attempt_steps=10_000_000),
    )

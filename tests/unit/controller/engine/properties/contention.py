"""Clusters of alike GPUs in which queues want more than there is."""

from fractions import Fraction
from random import Random

from carina_dra.allocator.node import Node
from controller.engine.decide.cycle import plan
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import CarriedOver
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import DevicesOf
from tests.unit.controller.engine.properties.clusters import GIB, devices_of, leaves
from tests.unit.controller.engine.properties.jobs import Job, simple_job
from tests.unit.controller.engine.properties.running_cluster import RunningCluster

GPU = DevicesOf("gpu")


def gpu_cluster(nodes: int, gpus: int, queues: tuple[Queue, ...]) -> RunningCluster:
    """So many nodes with so many GPUs each, and room for everything else."""
    names = [f"n{index}" for index in range(nodes)]
    return RunningCluster(
        tuple(ClusterNode(Node(name), cpu=64_000, memory=512 * GIB) for name in names),
        tuple(one for name in names for one in devices_of(name, "whole", gpus)),
        queues,
    )


def queue(
    name: str,
    quota: int | None = 0,
    *,
    parent: str | None = None,
    weight: int | Fraction = 1,
    limit: int | None = None,
    priority: int = 100,
) -> Queue:
    """A queue that shares GPUs."""
    entitlement = Entitlement(quota, limit, Fraction(weight))
    return Queue(name, parent, priority, entitlements={GPU: entitlement})


def contended_cluster(rng: Random) -> RunningCluster:
    """Jobs of some queues have taken what they could before those of the others came."""
    nodes, gpus = rng.randint(1, 4), rng.choice((2, 4))
    names = [f"q{index}" for index in range(rng.randint(2, 4))]
    parents = rng.choice(((None,), (None,), ("left", "right")))
    queues = [queue(parent, rng.choice((0, 2, 4, None))) for parent in parents if parent]
    for name in names:
        quota, weight = rng.choice((0, 1, 2, 4)), rng.choice((0, 1, 1, 2))
        limit = rng.choice((None, None, None, 2, 4))
        parent = rng.choice(parents)
        queues.append(queue(name, quota, parent=parent, weight=weight, limit=limit))
    tree = tuple(one for one in queues if one.name in names or _has_child(one.name, queues))
    cluster = gpu_cluster(nodes, gpus, tuple(Queue(one.name, one.parent) for one in tree))
    cluster.rng, cluster.rounds_to_leave = rng, rng.choice(((1,), (1, 2)))
    jobs = [_job(rng, number, leaves(tree), gpus) for number in range(rng.randint(4, 20))]
    first = rng.randint(0, len(jobs))
    cluster.submit(jobs[:first])
    cluster.apply(plan(cluster.snapshot()))
    cluster.queues, cluster.memory = tree, CarriedOver()
    cluster.submit(jobs[first:])
    return cluster


def _has_child(name: str, queues: list[Queue]) -> bool:
    return any(one.parent == name for one in queues)


def _job(rng: Random, number: int, queues: list[str], gpus: int) -> Job:
    pods = rng.choice((1, 1, 1, 2, 3, 4))
    return simple_job(
        f"j{number}",
        rng.choice(queues),
        pods=pods,
        least=rng.choice((pods, pods, 1, max(1, pods - 1), 0)),
        gpus=rng.choice((1, 1, 1, 2, gpus)),
        created=rng.randint(0, 3),
        priority=rng.choice((0, 0, 0, 5, 9)),
        preemptible=rng.random() < 0.9,
    )

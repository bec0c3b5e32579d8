"""GPUs that a device plugin serves count as whole GPUs, or are refused if nothing counts them."""

import pytest

from carina_dra.placement.cluster.gpu import GPU
from controller.engine.decide.queues.shares import cluster_total
from controller.engine.model.plan import Plan
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import OverLimit, UncountedGpus
from controller.engine.model.resource import CapacityOf, Cpu, Gpus, Resource
from tests.unit.controller.engine.scene import DRIVER, Scene

_TWO = PodNeeds(extended=(("nvidia.com/gpu", 2),))


def _plan(resource: Resource, limit: int | None = None) -> Plan:
    """A pod that asks a device plugin for two GPUs, in a queue that names a resource."""
    scene = Scene().node("n", extended={"nvidia.com/gpu": 8}).node("carina", 8)
    scene.queue("q", quota=None, limit=limit, resource=resource)
    return scene.waits("g", gpus=0, needs=_TWO).plan()


@pytest.mark.parametrize("resource", [Gpus(), Cpu()])
def test_they_are_given_to_a_queue_that_counts_all_gpus_or_none(resource: Resource) -> None:
    assert [start.pod for start in _plan(resource).starts] == ["t/g-0"]


def test_each_counts_as_a_whole_gpu() -> None:
    plan = _plan(Gpus(), GPU)
    assert not plan.starts
    assert OverLimit("q", Gpus(), GPU, 0, 2 * GPU) in plan.waiting["g"]


@pytest.mark.parametrize("resource", [Gpus("H100"), CapacityOf(f"{DRIVER}/memory")])
def test_they_are_refused_in_a_queue_that_counts_only_some_gpus(resource: Resource) -> None:
    plan = _plan(resource)
    assert not plan.starts
    assert UncountedGpus("q") in plan.waiting["g"]


def test_they_are_part_of_what_there_is_but_on_nodes_that_are_cordoned() -> None:
    scene = Scene().node("n", extended={"nvidia.com/gpu": 8})
    scene.node("cordoned", extended={"nvidia.com/gpu": 4}, unschedulable=True)
    assert cluster_total(scene.queue("q").state().occupancy, Gpus()) == 8 * GPU
    assert cluster_total(scene.state().occupancy, Gpus("H100")) == 0

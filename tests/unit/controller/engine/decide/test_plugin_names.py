"""GPUs of device plugins in queues: whatever name they have, a quota of GPUs holds for them."""

import pytest

from carina_dra.placement.cluster.gpu import GPU
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import OverLimit, UncountedGpus
from controller.engine.model.resource import Cpu, Gpus, Resource
from tests.unit.controller.engine.scene import Scene, started


def _scene(name: str, resource: Resource, pods: int = 3) -> Scene:
    scene = Scene().node("n", extended={name: 8})
    scene.queue("q", quota=2 * GPU, limit=2 * GPU, resource=resource)
    for at in range(pods):
        scene.waits(f"g{at}", gpus=0, needs=PodNeeds(extended=((name, 1),)))
    return scene


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"]
)
def test_each_counts_as_a_whole_one(name: str) -> None:
    plan = _scene(name, Gpus()).plan()
    assert len(started(plan)) == 2
    assert isinstance(plan.waiting["g2"][0], OverLimit)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/vgpu",
        "volcano.sh/gpu-memory",
        "volcano.sh/vgpu-number",
        "aliyun.com/gpu-mem",
        "tencent.com/vcuda-core",
    ],
)
def test_those_that_no_resource_of_the_queue_counts_are_refused(name: str) -> None:
    plan = _scene(name, Gpus("NVIDIA H100")).plan()
    assert started(plan) == {}
    assert {type(of[0]) for of in plan.waiting.values()} == {UncountedGpus}


def test_a_queue_that_names_no_gpus_has_no_limit_of_them() -> None:
    assert len(started(_scene("nvidia.com/mig-1g.10gb", Cpu()).plan())) == 3


def test_other_extended_resources_are_none_of_its_business() -> None:
    assert len(started(_scene("example.com/nic", Gpus("NVIDIA H100")).plan())) == 3

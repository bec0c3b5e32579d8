"""Which pods without a queue leave a node whose devices are released."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.node_release import ReleaseEvictions
from controller.engine.decide.victims.released import AT_ONCE
from controller.engine.model.node import NodeRelease
from controller.engine.model.plan import Action
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of


class Cluster:
    """A node with GPUs that is released."""

    def __init__(self, release: NodeRelease = NodeRelease.ALL) -> None:
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        node = Scene().node("n1").nodes["n1"]
        self.mirror.put_node(replace(node, release=release, unschedulable=True))
        self.mirror.put_devices(gpu_slice("n1", 40))
        self.evictions = ReleaseEvictions(self.mirror)

    def pod(self, name: str, gpu: int | None = 0, queue: str | None = None, **more: Any) -> None:
        claims = [] if gpu is None else [f"{name}-c"]
        if gpu is not None:
            body = claim_body(f"{name}-c", allocation=gpus_of("n1", gpu), reserved_for=[name])
            self.mirror.put_claim(decode(ResourceClaim, body))
        fields = {"gates": (), "node": "n1", "queue": queue, "claims": claims, **more}
        self.mirror.put_pod(read_pod(pod_body(name, **fields)))

    def due(self, after: float = 0) -> list[str]:
        self.mirror.refresh(NOW + after)
        found = list(self.evictions.due(NOW + after))
        assert all(eviction.action is Action.RELEASE for eviction, _ in found)
        return [pod.name for _, pod in found]


def test_pods_without_a_queue_leave_if_all_are_to_go() -> None:
    cluster = Cluster()
    cluster.pod("alone")
    cluster.pod("cpu", gpu=None)
    cluster.pod("queued", gpu=1, queue="q", given="n1")
    assert cluster.due() == ["alone"]


@pytest.mark.parametrize("release", [NodeRelease.NONE, NodeRelease.QUEUES])
def test_they_stay_otherwise(release: NodeRelease) -> None:
    cluster = Cluster(release)
    cluster.pod("alone")
    assert cluster.due() == []
    assert cluster.evictions.wake is None


def test_a_few_leave_at_a_time() -> None:
    cluster = Cluster()
    for index in range(AT_ONCE + 2):
        cluster.pod(f"p{index:02}", gpu=index)
    first = cluster.due()
    assert len(first) == AT_ONCE
    for name in first:
        cluster.mirror.assume_evicted(f"t/{name}")
    assert cluster.due() == []
    cluster.mirror.remove_pod(cluster.mirror.pods[f"t/{first[0]}"])
    assert len(cluster.due()) == 1


def test_a_pod_whose_eviction_is_refused_is_asked_for_again() -> None:
    cluster = Cluster()
    cluster.pod("p")
    pod = cluster.mirror.pods["t/p"]
    cluster.mirror.assume_evicted(pod.key)
    cluster.mirror.forget_eviction(pod, NOW + 5)
    assert cluster.due(1) == []
    assert cluster.evictions.wake == NOW + 6
    assert cluster.due(6) == ["p"]

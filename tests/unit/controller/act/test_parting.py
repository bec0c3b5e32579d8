"""What follows when a claim loses a device to another claim."""

from typing import Any

from carina_dra.resource import Allocation, DeviceClass, ObjectMeta, ResourceClaim, decode, encode
from controller.act.commit import Release
from controller.act.parting import Evict, Tell, partings
from controller.act.patch import reservation
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Assumed, Mirror
from controller.observe.pod import read_pod
from controller.report.notice import DeviceLost
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

DEVICE = gpus_of("n1", 0)


class Cluster:
    """A device that a pod without a queue has, `stock`, and what else has it."""

    def __init__(self) -> None:
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        self.mirror.put_node(Scene().node("n1").nodes["n1"])
        self.mirror.put_devices(gpu_slice("n1", 4))
        self.pod("stock", "z-stock", queue=None)
        self.claim("z-stock", DEVICE, "stock")

    def claim(self, name: str, allocation: Allocation | None = None, *pods: str) -> "Cluster":
        body = claim_body(name, allocation=allocation, reserved_for=pods)
        self.mirror.put_claim(decode(ResourceClaim, body))
        return self

    def standalone(self, name: str, *pods: str) -> "Cluster":
        body = claim_body(name, allocation=DEVICE, reserved_for=pods, labels={QUEUE_LABEL: "q"})
        own = encode(reservation(decode(ResourceClaim, body)))
        body["status"]["reservedFor"] = [*body["status"].get("reservedFor", ()), own]
        self.mirror.put_claim(decode(ResourceClaim, body))
        return self

    def pod(self, name: str, claim: str, *, held: bool = False, **fields: Any) -> "Cluster":
        if not held:
            fields = {"gates": (), "given": "n1", "node": "n1", **fields}
        self.mirror.put_pod(read_pod(pod_body(name, claims=[claim], **fields)))
        return self

    def done(self) -> list[str]:
        self.mirror.refresh(NOW)
        return [f"{type(each).__name__} {_about(each)}" for each in partings(self.mirror)]


def _about(each: Tell | Evict | Release) -> str:
    match each:
        case Tell(regarding):
            return regarding.name
        case Evict(pod):
            return pod.name
        case Release(claim):
            return claim.metadata.name


def test_pods_that_others_replace_leave_and_those_of_others_stay() -> None:
    cluster = Cluster().claim("c", DEVICE, "p", "o")
    cluster.pod("p", "c", owner=JOB).pod("o", "c", owner=JOB, queue=None)
    assert cluster.done() == ["Tell c", "Evict p"]


def test_each_of_several_losers_is_dealt_with() -> None:
    cluster = Cluster().claim("c", DEVICE, "p").claim("d", DEVICE, "o")
    cluster.pod("p", "c", owner=JOB).pod("o", "d", owner=JOB)
    assert cluster.done() == ["Tell c", "Evict p", "Tell d", "Evict o"]


def test_a_pod_that_nobody_replaces_is_told_and_not_deleted() -> None:
    cluster = Cluster().claim("c", DEVICE, "p").pod("p", "c", node=None)
    assert cluster.done() == ["Tell c", "Tell p"]
    notices = [each.notice for each in partings(cluster.mirror) if isinstance(each, Tell)]
    assert notices[1] == DeviceLost("gpu.carina.dev/n1/gpu-0", "t/z-stock")


def test_a_pod_that_leaves_already_is_left_alone() -> None:
    cluster = Cluster().claim("c", DEVICE, "p", "o", "r")
    cluster.pod("p", "c", owner=JOB, deleted="2026-01-01T00:00:00Z")
    cluster.pod("o", "c", owner=JOB, phase="Succeeded").pod("r", "c", owner=JOB)
    cluster.mirror.assume_evicted("t/r")
    assert cluster.done() == ["Tell c"]


def test_claims_of_pods_that_the_gate_holds_are_taken_back_otherwise() -> None:
    assert Cluster().claim("c", DEVICE, "p").pod("p", "c", held=True).done() == []


def test_a_claim_waits_for_the_end_of_a_start_that_is_being_written() -> None:
    cluster = Cluster().claim("c", DEVICE, "p").pod("p", "c", owner=JOB)
    cluster.mirror.assume("t/p", Assumed("n1"))
    assert cluster.done() == []


def test_a_standalone_claim_that_no_pod_uses_is_taken_back() -> None:
    cluster = Cluster().standalone("c", "p").pod("p", "c", held=True)
    assert cluster.done() == ["Tell c", "Release c"]
    [release] = [each for each in partings(cluster.mirror) if isinstance(each, Release)]
    assert [pod.name for pod in release.pods] == ["p"], "which must not lose its gate meanwhile"
    cluster.mirror.release("t/c")
    assert cluster.done() == ["Tell c"]


def test_a_claim_of_a_queue_that_kube_scheduler_has_allocated_keeps_its_device() -> None:
    cluster = Cluster().claim("z-stock", None)
    cluster.claim("c", DEVICE, "p").pod("p", "c", owner=JOB)
    body = claim_body("d", allocation=DEVICE, reserved_for=["o"], labels={QUEUE_LABEL: "q"})
    cluster.mirror.put_claim(decode(ResourceClaim, body))
    cluster.pod("o", "d", queue=None)
    assert cluster.done() == ["Tell c", "Evict p"]


def test_a_standalone_claim_that_pods_use_is_not() -> None:
    assert Cluster().standalone("c", "p").pod("p", "c").done() == ["Tell c", "Tell p"]


def test_a_standalone_claim_is_not_taken_back_from_a_pod_that_is_not_seen_yet() -> None:
    assert Cluster().standalone("c", "p").done() == ["Tell c"]


def test_only_the_pods_that_wait_keep_their_gate_while_a_standalone_claim_is_taken_back() -> None:
    cluster = Cluster().standalone("c", "p", "o").pod("p", "c", held=True)
    cluster.pod("o", "c", phase="Succeeded")
    assert cluster.done() == ["Tell c", "Release c"]
    [release] = [each for each in partings(cluster.mirror) if isinstance(each, Release)]
    assert [pod.name for pod in release.pods] == ["p"]

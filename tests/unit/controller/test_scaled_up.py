"""Groups whose minimum is more than runs: scaled up, on a cluster that is full, or without end."""

from dataclasses import replace
from typing import Any

from carina_dra.kube.body import Body
from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Plan
from controller.engine.model.reason import TooFewPods
from controller.engine.model.snapshot import Snapshot
from controller.names import MIN_COUNT_ANNOTATION
from controller.observe.mirror import Mirror
from controller.observe.owner import Owner, OwnerKey, OwnerKind, Part, Parts
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

SET: Body = {**JOB, "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}
DB = OwnerKey(OwnerKind.STATEFUL_SET, "t", "db")
GRACE = 60.0
MOST = {MIN_COUNT_ANNOTATION: "999999999"}


class Site:
    """A StatefulSet with Parallel pods of a GPU each, on a node with two."""

    def __init__(self) -> None:
        self.now = NOW
        settings = replace(Scene().settings, staleness_grace=GRACE)
        self.mirror = Mirror(Snapshot(now=NOW, settings=settings))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        self.mirror.put_node(Scene().node("n1").nodes["n1"])
        self.mirror.put_devices(gpu_slice("n1", 2))
        self.engine = Engine(self.mirror.state)

    def replicas(self, count: int) -> None:
        self.mirror.roster.put_owner(DB, Owner(DB, Parts((Part("", count),))))

    def runs(self, number: int) -> None:
        allocation = gpus_of("n1", number)
        body = claim_body(f"c-{number}", allocation=allocation, reserved_for=[f"db-{number}"])
        self.mirror.put_claim(decode(ResourceClaim, body))
        self._pod(number, gates=(), node="n1", phase="Running", given="n1")

    def waits(self, number: int) -> None:
        self.mirror.put_claim(decode(ResourceClaim, claim_body(f"c-{number}")))
        self._pod(number)

    def decide(self, *, after: float = 0) -> Plan:
        self.now += after
        self.mirror.refresh(self.now)
        plan = self.engine.decide()
        self.mirror.state.memory = plan.memory
        self.mirror.roster.note_stale(plan.stale, self.now)
        return plan

    def _pod(self, number: int, **fields: Any) -> None:
        body = pod_body(f"db-{number}", owner=SET, claims=[f"c-{number}"], **fields)
        self.mirror.put_pod(read_pod(body))


def test_a_service_that_is_scaled_up_is_not_evicted() -> None:
    site = Site()
    site.replicas(2)
    for number in range(2):
        site.runs(number)
    assert site.decide().stale == ()
    site.replicas(4)
    for number in range(2, 4):
        site.waits(number)
    assert site.decide().stale == ()
    plan = site.decide(after=2 * GRACE)
    assert (plan.stale, plan.evictions) == ((), ())
    assert set(plan.waiting) == {"t/statefulset/db"}


def test_its_further_pods_start_one_by_one() -> None:
    site = Site()
    site.replicas(1)
    site.runs(0)
    site.decide()
    site.replicas(4)
    for number in range(1, 4):
        site.waits(number)
    assert [start.pod for start in site.decide().starts] == ["t/db-1"]


def test_a_service_that_loses_a_pod_is_evicted_for_others_that_need_its_devices() -> None:
    site = Site()
    site.mirror.put_claim(decode(ResourceClaim, claim_body("other")))
    site.mirror.put_pod(read_pod(pod_body("other", claims=["other"])))
    site.replicas(2)
    for number in range(2):
        site.runs(number)
    site.decide()
    site.mirror.remove_pod(site.mirror.pods["t/db-0"])
    assert site.decide().stale == ("t/statefulset/db",)
    assert [each.pod for each in site.decide(after=GRACE).evictions] == ["t/db-1"]


def test_a_minimum_beyond_all_pods_is_only_a_number() -> None:
    site = Site()
    site.mirror.put_pod(read_pod(pod_body("p", owner=JOB, annotations=MOST)))
    [(reason,)] = site.decide().waiting.values()
    assert reason == TooFewPods("", 1, 999_999_999)
    body = pod_body("p", version=2, owner=JOB, gates=(), node="n1", annotations=MOST)
    site.mirror.put_pod(read_pod(body))
    assert site.decide().stale == ("t/job/train",)

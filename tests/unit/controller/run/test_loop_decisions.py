"""The loop: when it decides, what it has written, and what it makes of the outcome."""

import gc
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.errors import ApiOperation, Conflict, Forbidden, Invalid, Unreachable
from carina_dra.resource import (
    DeviceClass,
    DeviceTaint,
    ObjectMeta,
    ResourceClaim,
    ResourceSlice,
    TaintEffect,
    decode,
)
from controller.act.writer import (
    CommitFailed,
    Committed,
    EvictionEnded,
    Released,
    ReservationEnded,
    Stored,
)
from controller.engine.decide.gangs.attempt import Outcome
from controller.engine.decide.starts.allocation import Allocating
from controller.engine.model.group import Group
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.names import GROUP, ON_DEVICE_FAILURE_ANNOTATION, RESERVATIONS
from controller.observe.mirror import Assumed, Mirror
from controller.observe.pod import ObservedPod, read_pod
from controller.report.metrics import ControllerMetrics
from controller.report.notice import PodEvictedForTaint, PodStranded
from controller.run.inbox import Inbox
from controller.run.loop import Loop
from tests.fakes.loop_ports import NotedEvents, NotedReports, NotedWrites
from tests.unit.controller.bodies import CREATED, JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, TAINT, Scene, gpu_slice, gpus_of

OPERATION: Final = ApiOperation("patch", "pods")
REFUSED: Final[dict[str, Any]] = {"gates": (), "given": "n1", "verdict": "no", "owner": JOB}


class Controller:
    """A loop over a cluster with two nodes of a GPU each."""

    def __init__(self, *, writes: bool = True, decide_seconds: float = 60) -> None:
        self.now = NOW
        self.inbox = Inbox()
        self.progressed = 0
        self.written = NotedWrites()
        self.events = NotedEvents()
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        for name in ("n1", "n2"):
            self.mirror.put_node(Scene().node(name).nodes[name])
            self.mirror.put_devices(gpu_slice(name, 1))
        self.metrics = ControllerMetrics()
        self.loop = Loop(
            self.mirror,
            self.written if writes else None,
            NotedReports(),
            self.events,
            self.metrics,
            inbox=self.inbox,
            progress=self.progress,
            decide_seconds=decide_seconds,
            verdict_seconds=5,
            avoid_seconds=60,
            now=lambda: self.now,
        )

    def pod(self, name: str, **fields: Any) -> ObservedPod:
        pod = read_pod(pod_body(name, **fields))
        self.mirror.put_pod(pod)
        return pod

    def claim(self, name: str, **fields: Any) -> None:
        self.mirror.put_claim(decode(ResourceClaim, claim_body(name, **fields)))

    def progress(self) -> None:
        self.progressed += 1

    def step(self, after: float = 0) -> bool:
        self.now += after
        return self.loop.step(busy=False)

    def patience(self) -> float:
        return self.loop._patience()


def test_work_that_comes_while_work_is_done_waits_for_a_decision() -> None:
    inbox = Inbox()
    done: list[None] = []

    def work() -> None:
        done.append(None)
        inbox.put(work)

    inbox.put(work)
    assert inbox.do(0)
    assert inbox.do(0)
    assert len(done) <= 4


def test_a_start_is_written_once() -> None:
    controller = Controller()
    controller.claim("c")
    controller.pod("p", claims=["c"])
    assert controller.step()
    assert not controller.loop.step(busy=True)
    assert [commit.group for commit in controller.written.commits] == ["t/pod/p"]


def test_a_decision_whose_time_is_up_is_followed_by_another_at_once() -> None:
    controller = Controller(decide_seconds=1e-9)
    for name in ("p1", "p2"):
        controller.claim(f"c-{name}")
        controller.pod(name, claims=[f"c-{name}"])
    again, cycles = controller.step(), 1
    while again:
        again, cycles = controller.loop.step(busy=True), cycles + 1
    assert 2 < cycles < 10
    assert {commit.group for commit in controller.written.commits} == {"t/pod/p1", "t/pod/p2"}


def test_a_decision_whose_time_is_up_waits_for_a_change_if_nothing_is_written() -> None:
    controller = Controller(writes=False, decide_seconds=1e-9)
    controller.claim("c")
    controller.pod("p", claims=["c"])
    assert not controller.step()


def test_the_garbage_collector_pauses_during_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []
    attempt = Allocating.attempt

    def noted(allocating: Allocating, group: Group) -> Outcome:
        collects.append(gc.isenabled())
        return attempt(allocating, group)

    monkeypatch.setattr(Allocating, "attempt", noted)
    controller = Controller()
    controller.claim("c")
    controller.pod("p", claims=["c"])
    controller.step()
    assert collects == [False]
    assert gc.isenabled()


def test_a_decision_says_in_its_midst_that_it_goes_on() -> None:
    controller = Controller()
    controller.claim("c")
    controller.pod("p", claims=["c"])
    controller.step()
    assert controller.progressed > 2


def test_a_group_whose_decision_fails_is_logged_and_counted_and_others_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = Allocating.attempt

    def odd(self: Allocating, group: Group) -> Outcome:
        if group.key == "t/pod/bad":
            raise KeyError("what nobody expects")
        return attempt(self, group)

    monkeypatch.setattr(Allocating, "attempt", odd)
    controller = Controller()
    for name in ("bad", "good"):
        controller.claim(f"c-{name}")
        controller.pod(name, claims=[f"c-{name}"])
    controller.step()
    assert [commit.group for commit in controller.written.commits] == ["t/pod/good"]
    (record,) = (one for one in caplog.records if "set aside" in one.message)
    assert record.__dict__["group"] == "t/pod/bad"
    assert "what nobody expects" in record.__dict__["error"]
    counted = 'carina_groups_set_aside_total{reason="failed"} 1.0'
    assert counted in controller.metrics.exposition().decode()
    assert controller.patience() <= 10


def test_a_start_that_has_to_wait_for_a_release_does_not_keep_the_loop_busy() -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    controller.pod("p", claims=["c"], gates=("scheduling.carina.dev/queue", "other"))
    assert controller.step()
    assert [release.claim.key for release in controller.written.releases] == ["t/c"]
    assert not controller.step()
    assert len(controller.written.releases) == 1


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Conflict(OPERATION, ""), 0.1), (Unreachable(OPERATION, ""), 1)],
)
def test_a_release_that_fails_is_tried_again_after_a_while(
    error: Exception, seconds: float
) -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    controller.pod("p", claims=["c"], gates=("scheduling.carina.dev/queue", "other"))
    controller.step()
    controller.loop.take(Released(controller.mirror.claims["t/c"], error))
    controller.step(seconds / 2)
    assert len(controller.written.releases) == 1
    controller.step(seconds)
    assert len(controller.written.releases) == 2


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Conflict(OPERATION, ""), 0.1), (Unreachable(OPERATION, ""), 1)],
)
def test_a_group_is_decided_on_again_the_later_the_more_often_its_start_fails(
    error: Exception, seconds: float
) -> None:
    controller = Controller()
    controller.claim("c")
    controller.pod("p", claims=["c"])
    for times in range(4):
        controller.step()
        assert len(controller.written.commits) == times + 1
        controller.loop.take(CommitFailed(controller.written.commits[-1], error))
        controller.step(seconds * 2**times * 0.9)
        assert len(controller.written.commits) == times + 1
        controller.step(seconds * 2**times * 0.2)


def test_a_start_that_the_api_server_refuses_is_tried_as_one_that_kube_scheduler_refuses() -> None:
    controller = Controller()
    for name in ("p", "q"):
        controller.pod(name, owner={**JOB, "kind": "ReplicaSet"})
    controller.step()
    error = Invalid(OPERATION, "annotations: too long", ())
    for commit in list(controller.written.commits):
        controller.loop.take(CommitFailed(commit, error))
    tried: list[float] = []
    for _ in range(600):
        controller.step(1)
        for commit in controller.written.commits[2 + len(tried) :]:
            tried.append(controller.now)
            controller.loop.take(CommitFailed(commit, error))
    waits = [after - before for before, after in pairwise(tried)]
    assert len(tried) <= 7
    assert waits == sorted(waits)
    plan = controller.loop._plan
    assert plan is not None
    assert "its start was refused by the API server" in str(plan.waiting["t/pod/p"][0])


def test_an_answer_that_cannot_be_read_ends_nothing() -> None:
    controller = Controller()
    controller.loop.take(Stored(PODS, {"metadata": {"name": "p"}}))


def test_a_pod_that_kube_scheduler_refuses_is_evicted_once() -> None:
    controller = Controller()
    pod = controller.pod("p", **REFUSED)
    controller.step()
    assert 0 < controller.patience() <= 5
    controller.step(5)
    controller.step(5)
    assert controller.written.evicted == [pod]
    assert controller.patience() > 0


def test_an_eviction_that_is_refused_is_tried_again() -> None:
    controller = Controller()
    pod = controller.pod("p", **REFUSED)
    controller.step()
    controller.step(5)
    controller.loop.take(EvictionEnded(pod, None, Conflict(OPERATION, "")))
    controller.step()
    assert len(controller.written.evicted) == 1
    controller.step(5)
    assert len(controller.written.evicted) == 2


def test_refused_pods_do_not_keep_a_loop_busy_that_writes_nothing() -> None:
    controller = Controller(writes=False)
    controller.pod("p", **REFUSED)
    controller.step()
    controller.step(5)
    assert controller.patience() > 0


def test_a_pod_of_no_queue_that_claims_to_have_been_given_a_node_does_not_either() -> None:
    controller = Controller()
    controller.pod("p", queue=None, **REFUSED)
    controller.step()
    controller.now += 60
    assert controller.patience() > 0


def test_what_is_taken_back_is_decided_again_without_its_node() -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    controller.pod("p", gates=(), given="n1", claims=["c"])
    controller.step()
    controller.pod("p", gates=(), given="n1", claims=["c"], verdict="no", version=2)
    controller.claim("c", version=2)
    controller.step()
    (commit,) = controller.written.commits
    assert commit.assumed["t/p"].node == "n2"


def test_what_is_taken_back_twice_avoids_both_nodes() -> None:
    controller = Controller()
    controller.pod("p", gates=(), given="n1", claims=["c"], verdict="no")
    controller.claim("c")
    controller.step()
    (commit,) = controller.written.commits
    assert commit.assumed["t/p"].node == "n2"
    controller.claim("c", version=2, allocation=gpus_of("n2", 0), reserved_for=["p"])
    controller.loop.take(Committed(commit))
    controller.step()
    controller.claim("c", version=3)
    controller.pod("p", gates=(), given="n1", claims=["c"], verdict="no", version=2)
    controller.step()
    controller.step()
    assert controller.written.commits == [commit], "the pod still says n1"


def test_a_verdict_about_an_earlier_start_is_none_about_one_that_is_being_written() -> None:
    controller = Controller()
    controller.pod("p", gates=(), given="n1", claims=["c"], verdict="no")
    controller.claim("c")
    controller.step()
    assert len(controller.written.commits) == 1
    controller.pod("p", gates=(), given="n1", claims=["c"], verdict="no", version=2)
    assert not controller.mirror.refused


def test_a_pinned_pod_whose_devices_are_taken_back_is_placed_nowhere_else() -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    controller.pod("p", gates=(), given="n1", claims=["c"], owner=JOB)
    controller.step()
    controller.claim("c", version=2)
    controller.step()
    pod = controller.pod("p", gates=(), given="n1", claims=["c"], verdict="", owner=JOB, version=2)
    controller.step()
    assert controller.written.evicted == []
    controller.step(5)
    assert controller.written.evicted == [pod]
    assert controller.written.commits == []
    controller.claim("d")
    controller.pod("replacement", claims=["d"], owner=JOB)
    controller.step()
    (commit,) = controller.written.commits
    assert commit.assumed["t/replacement"].node == "n2", "n1 has refused a pod of the group"


def test_an_end_of_a_reservation_that_is_refused_is_tried_again_after_a_while() -> None:
    controller = Controller()
    body = claim_body("c", allocation=gpus_of("n1", 0), labels={QUEUE_LABEL: "q"})
    body["metadata"]["deletionTimestamp"] = CREATED
    body["status"]["reservedFor"] = [
        {"apiGroup": GROUP, "resource": RESERVATIONS, "name": "c", "uid": "uid-c"}
    ]
    controller.mirror.put_claim(decode(ResourceClaim, body))
    controller.step()
    controller.step()
    assert controller.written.unreserved == ["t/c"]
    controller.loop.take(ReservationEnded("t/c", Forbidden(OPERATION, "")))
    assert 0 < controller.patience() <= 1
    controller.step(0.5)
    assert controller.written.unreserved == ["t/c"]
    controller.step(0.5)
    assert controller.written.unreserved == ["t/c", "t/c"]


def test_a_start_that_is_being_written_does_not_keep_a_loop_busy_that_parts_claims() -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["first"])
    controller.pod("first", claims=["c"], gates=(), node="n1", owner=JOB)
    controller.claim("d", allocation=gpus_of("n1", 0), reserved_for=["second"])
    second = controller.pod("second", claims=["d"], gates=(), node="n1", owner=JOB)
    controller.step()
    controller.loop.take(EvictionEnded(second, None, Conflict(OPERATION, "")))
    controller.mirror.assume("t/second", Assumed("n1"))
    controller.step(10)
    assert controller.patience() > 0


def test_a_standalone_claim_that_loses_its_device_is_taken_back_once_and_decided_again() -> None:
    controller = Controller()
    controller.pod("stock", claims=["s"], gates=(), node="n1", queue=None)
    controller.claim("s", allocation=gpus_of("n1", 0), reserved_for=["stock"])
    body = claim_body("c", allocation=gpus_of("n1", 0), labels={QUEUE_LABEL: "q"})
    own = {"apiGroup": GROUP, "resource": RESERVATIONS, "name": "c", "uid": "uid-c"}
    body["status"]["reservedFor"] = [own]
    controller.mirror.put_claim(decode(ResourceClaim, body))
    controller.step()
    controller.step()
    assert [release.claim.key for release in controller.written.releases] == ["t/c"]
    controller.loop.take(Released(controller.mirror.claims["t/c"], Conflict(OPERATION, "")))
    controller.step(1)
    assert [release.claim.key for release in controller.written.releases] == ["t/c", "t/c"]
    controller.claim("c", version=2, labels={QUEUE_LABEL: "q"})
    controller.loop.take(Released(controller.mirror.claims["t/c"], None))
    controller.step()
    assert controller.written.commits[-1].assumed["t/resourceclaim/c"].node == "n2"


def test_who_loses_a_device_is_told_once() -> None:
    controller = Controller()
    controller.pod("stock", claims=["s"], gates=(), node="n1", queue=None)
    controller.claim("s", allocation=gpus_of("n1", 0), reserved_for=["stock"])
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["bare"])
    controller.pod("bare", claims=["c"], gates=(), given="n1")
    for version in range(2, 5):
        controller.step()
        controller.pod("bare", claims=["c"], gates=(), given="n1", version=version)
    told = sorted((about.kind, about.name) for about, _ in controller.events.told)
    assert told == [("Pod", "bare"), ("ResourceClaim", "c")]
    assert controller.written.evicted == []


def test_a_pod_that_has_to_leave_a_device_is_evicted_again_if_that_is_refused() -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["first"])
    controller.pod("first", claims=["c"], gates=(), node="n1", owner=JOB)
    controller.claim("d", version=2, allocation=gpus_of("n1", 0), reserved_for=["second"])
    controller.pod("second", claims=["d"], gates=(), node="n1", owner=JOB)
    controller.step()
    controller.step()
    (pod,) = controller.written.evicted
    controller.loop.take(EvictionEnded(pod, None, Conflict(OPERATION, "")))
    controller.step(1)
    assert controller.written.evicted == [pod]
    controller.step(5)
    assert controller.written.evicted == [pod, pod]


NOWHERE: Final = '0/2 nodes are available: persistentvolumeclaim "data" not found.'


def test_a_pod_that_no_node_would_do_for_stays_as_long_as_nobody_needs_its_devices() -> None:
    controller = Controller()
    controller.claim("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    pod = controller.pod("p", **REFUSED | {"verdict": NOWHERE}, claims=["c"])
    controller.step()
    controller.step(60)
    assert controller.written.evicted == []
    assert controller.patience() > 0.1
    controller.claim("d")
    controller.claim("e")
    controller.pod("other", claims=["d"])
    controller.pod("another", claims=["e"])
    controller.step()
    controller.step()
    assert controller.written.evicted == [pod]


def test_what_replaces_a_refused_pod_starts_with_its_line_only_one_at_a_time() -> None:
    controller = Controller()
    controller.pod("p", **REFUSED)
    controller.step()
    controller.step(5)
    owner = {**JOB, "kind": "ReplicaSet", "apiVersion": "apps/v1"}
    controller.pod("first", **REFUSED | {"owner": owner})
    controller.step()
    controller.step(5)
    for name in ("a", "b"):
        controller.claim(name)
        controller.pod(name, owner=owner, resourceClaims=[], labels={"x": name})
    controller.step()
    assert len(controller.written.commits) == 1
    waiting = controller.loop._plan
    assert waiting is not None
    assert [str(reasons[0]) for reasons in waiting.waiting.values()] == [
        "its start was refused by kube-scheduler: no"
    ]


# Pods whose devices kube-scheduler chooses -------------------------------------------------------


def sent(controller: Controller, name: str, **fields: Any) -> ObservedPod:
    """A pod that asks by an extended resource, and was sent to kube-scheduler."""
    made = DeviceClass(ObjectMeta(name="gpu"))
    spec = replace(made.spec, extended_resource_name="nvidia.com/gpu")
    controller.mirror.put_devices(replace(made, spec=spec))
    containers = [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]
    fields = {"gates": (), "given": "n1", **fields}
    return controller.pod(name, containers=containers, **fields)


def test_a_gang_of_which_a_pod_gets_no_device_is_evicted_whole() -> None:
    controller = Controller()
    said = {"scheduling.carina.dev/min-count": "2", "scheduling.carina.dev/started-with": "2"}
    sent(controller, "p", owner=JOB, annotations=said, verdict="no")
    sent(controller, "mate", owner=JOB, annotations=said, given="n2", node="n2")
    controller.step()
    controller.step(after=5)
    gone = [pod.name for pod in controller.written.evicted]
    assert gone == ["p", "mate"]
    controller.step(after=5)
    assert [pod.name for pod in controller.written.evicted] == gone


def test_a_bare_pod_that_gets_no_device_is_told_of_once() -> None:
    controller = Controller()
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    sent(controller, "p", verdict="no", affinity={"nodeAffinity": required})
    for _ in range(3):
        controller.step(after=5)
    assert [notice for _, notice in controller.events.told] == [PodStranded("n1")]
    assert not controller.written.evicted


# Devices that fail -------------------------------------------------------------------------------


def tainted_slice(node: str, taint: DeviceTaint) -> ResourceSlice:
    published = gpu_slice(node, 1)
    devices = tuple(replace(device, taints=(taint,)) for device in published.spec.devices)
    return replace(published, spec=replace(published.spec, devices=devices))


def test_a_group_that_is_replaced_avoids_the_node_of_a_device_that_it_tolerates() -> None:
    controller = Controller()
    body = claim_body("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    [result] = body["status"]["allocation"]["devices"]["results"]
    result["tolerations"] = [{"operator": "Exists"}]
    controller.mirror.put_claim(decode(ResourceClaim, body))
    annotations = {ON_DEVICE_FAILURE_ANNOTATION: "replace"}
    running = {"gates": (), "given": "n1", "node": "n1", "owner": JOB, "claims": ["c"]}
    pod = controller.pod("p", annotations=annotations, **running)
    controller.step()
    controller.mirror.put_devices(tainted_slice("n1", TAINT))
    controller.loop.step(busy=True)
    assert controller.written.evicted == [pod]
    controller.mirror.remove_pod(pod)
    controller.mirror.remove_claim(controller.mirror.claims["t/c"])
    controller.claim("d")
    controller.pod("o", owner=JOB, claims=["d"], annotations=annotations)
    controller.loop.step(busy=True)
    assert [commit.assumed["t/o"].node for commit in controller.written.commits] == ["n2"]


def evict_from_device(controller: Controller, **fields: Any) -> ObservedPod:
    """A pod whose extended resource is a device that gets a taint, and that is evicted for it."""
    body = claim_body("c", allocation=gpus_of("n1", 0), reserved_for=["p"])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    controller.mirror.put_claim(decode(ResourceClaim, body))
    pod_with_claim = pod_body("p", gates=(), given="n1", node="n1", owner=JOB, **fields)
    pod_with_claim["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c"}
    pod = read_pod(pod_with_claim)
    controller.mirror.put_pod(pod)
    controller.mirror.put_devices(
        tainted_slice("n1", replace(TAINT, effect=TaintEffect.NO_EXECUTE))
    )
    controller.step()
    assert controller.written.evicted[0] == pod
    return pod


def test_a_pod_that_is_evicted_for_a_taint_has_an_event_of_it() -> None:
    controller = Controller()
    pod = evict_from_device(controller)
    [eviction] = controller.written.reasons
    controller.loop.take(EvictionEnded(pod, eviction, None))
    [(regarding, notice)] = controller.events.told
    assert regarding.name == "p"
    text = "gpu.carina.dev/drain=recovery-action-4:NoExecute"
    assert notice == PodEvictedForTaint("gpu.carina.dev/n1/gpu-0", text)


def test_a_gang_of_which_a_pod_is_evicted_for_a_taint_goes_as_a_whole() -> None:
    controller = Controller()
    annotations = {
        ON_DEVICE_FAILURE_ANNOTATION: "replace",
        "scheduling.carina.dev/min-count": "2",
        "scheduling.carina.dev/started-with": "2",
    }
    running = {"gates": (), "given": "n2", "node": "n2", "owner": JOB}
    mate = controller.pod("mate", annotations=annotations, **running)
    pod = evict_from_device(controller, annotations=annotations)
    controller.mirror.remove_pod(pod)
    controller.loop.step(busy=True)
    assert controller.written.evicted == [pod, mate]

"""The writer, against the embedded API: in which order it writes, and how everything ends."""

import math
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from carina_dra.kube.api_resource import NAMESPACES, PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import (
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
)
from carina_dra.resource import ResourceClaim, decode
from controller.act import patch
from controller.act.commit import ClaimStart, ClaimUse, Commit, PodStart, Release
from controller.act.takeover import Unsettled
from controller.act.writer import (
    CommitFailed,
    Committed,
    EvictionEnded,
    Fenced,
    Released,
    Stored,
    WriteOutcome,
    Writer,
)
from controller.engine.model.group import Group, PodSet
from controller.engine.model.plan import Action, Eviction
from controller.names import DELETE_PROTECTION, GATE, PREEMPTIBLE_ANNOTATION
from controller.observe.mirror import Assumed
from controller.observe.pod import ObservedPod, read_pod
from controller.report.metrics import ControllerMetrics
from simulation.api_server.api import Api, Observed
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually
from tests.unit.controller.bodies import claim_body, pod_body
from tests.unit.controller.engine.scene import gpus_of

LATE: Final = math.inf
ALONE = Group("t/pod/p", "q", PodSet("", 1))


def unsettled(claim: ResourceClaim) -> Unsettled:
    metadata = claim.metadata
    return Unsettled(RESOURCE_CLAIMS, ObjectKey(metadata.namespace, metadata.name), metadata.uid)


@dataclass
class Site:
    """An API server, and a writer with what it has delivered."""

    server: ApiServer
    client: Client
    requests: list[Observed] = field(default_factory=list)
    delivered: queue.SimpleQueue[WriteOutcome] = field(default_factory=queue.SimpleQueue)

    def claim(self, name: str, **fields: Any) -> ResourceClaim:
        body = claim_body(name, **fields)
        del body["metadata"]["resourceVersion"]
        status = body.pop("status")
        self.client.create(RESOURCE_CLAIMS, body)
        stored = self.client.patch(
            RESOURCE_CLAIMS,
            name,
            MergePatch({"status": status}),
            namespace="t",
            subresource="status",
        )
        return decode(ResourceClaim, stored)

    def pod(self, name: str, *claims: str) -> ObservedPod:
        body = pod_body(name, claims=claims)
        del body["metadata"]["resourceVersion"]
        return read_pod(self.client.create(PODS, body))

    def gang(self, size: int) -> Commit:
        """The start of pods with a claim each."""
        pods = [self.pod(f"p{index}", f"c{index}") for index in range(size)]
        claims = [self.claim(f"c{index}") for index in range(size)]
        given = [gpus_of("n1", index) for index in range(size)]
        self.requests.clear()
        return Commit(
            "t/g",
            tuple(map(ClaimStart, claims, given, ((patch.consumer(pod),) for pod in pods))),
            tuple(PodStart(pod, "n1", Group("t/g", "q", PodSet("", size))) for pod in pods),
            {
                pod.key: Assumed("n1", {claim.key: allocation})
                for pod, claim, allocation in zip(pods, claims, given, strict=True)
            },
        )

    def label(self, pod: str) -> None:
        """Somebody changes a pod."""
        self.client.patch(
            PODS, pod, MergePatch({"metadata": {"labels": {"a": "b"}}}), namespace="t"
        )

    def fail(self, code: int, reason: str, plural: str, times: int = 1) -> None:
        failure = Failure(code, reason, "injected")
        self.server.api.faults.fail(failure, verb="patch", plural=plural, times=times)

    def end(self) -> WriteOutcome:
        """How what was begun ends; everything has one end only."""
        while isinstance(outcome := self.delivered.get(timeout=10), Stored):
            pass
        return outcome

    def stored(self) -> list[Body]:
        """What has been delivered as stored."""
        found = []
        while not self.delivered.empty():
            outcome = self.delivered.get()
            assert isinstance(outcome, Stored), outcome
            found.append(outcome.body)
        return found

    def is_held(self, pod: str) -> bool:
        spec = self.client.get(PODS, pod, namespace="t")["spec"]
        return {"name": GATE} in spec["schedulingGates"]

    def reserved(self, claim: str) -> list[str]:
        status = self.client.get(RESOURCE_CLAIMS, claim, namespace="t").get("status") or {}
        return [entry["name"] for entry in status.get("reservedFor") or ()]

    def devices(self, claim: str) -> list[str]:
        status = self.client.get(RESOURCE_CLAIMS, claim, namespace="t").get("status") or {}
        results = (status.get("allocation") or {"devices": {"results": []}})["devices"]["results"]
        return [result["device"] for result in results]


@pytest.fixture
def site() -> Iterator[Site]:
    requests: list[Observed] = []
    with ApiServer(Api(on_request=requests.append)) as server, Client(server.connection) as client:
        client.create(NAMESPACES, {"metadata": {"name": "t"}})
        yield Site(server, client, requests)


@pytest.fixture
def writer(site: Site) -> Iterator[Writer]:
    writer = Writer(
        site.client,
        site.delivered.put,
        pool=ThreadPoolExecutor(4),
        leading=lambda: True,
        metrics=ControllerMetrics(),
        retry_seconds=0.01,
    )
    yield writer
    writer.close()
    site.stored()  # and no second end of anything


def test_all_claims_of_a_gang_are_written_before_any_gate_is_removed(
    site: Site, writer: Writer
) -> None:
    commit = site.gang(3)
    writer.commit(commit)
    assert site.end() == Committed(commit)
    order = [request.route.served.resource.plural for request in site.requests]
    assert order == ["resourceclaims"] * 6 + ["pods"] * 3
    assert not any(map(site.is_held, ("p0", "p1", "p2")))
    assert [site.devices(f"c{index}") for index in range(3)] == [["gpu-0"], ["gpu-1"], ["gpu-2"]]


def test_a_claim_is_reserved_for_a_further_pod_before_its_gate_is_removed(
    site: Site, writer: Writer
) -> None:
    first, pod = site.pod("first", "c"), site.pod("p", "c")
    claim = site.claim("c", allocation=gpus_of("n1", 0), reserved_for=["first"])
    site.requests.clear()
    use = ClaimUse(claim, (patch.consumer(pod),))
    writer.commit(Commit("t/pod/p", (use,), (PodStart(pod, "n1", ALONE),), {}))
    assert isinstance(site.end(), Committed)
    order = [request.route.served.resource.plural for request in site.requests]
    assert order == ["resourceclaims", "pods"]
    assert site.reserved("c") == ["first", "p"]
    assert first.is_held


def test_a_pod_does_not_start_if_the_other_users_of_its_claim_have_just_ended(
    site: Site, writer: Writer
) -> None:
    pod = site.pod("p", "c")
    claim = site.claim("c", allocation=gpus_of("n1", 0), reserved_for=["first"])
    taken_back = MergePatch({"status": {"allocation": None, "reservedFor": None}})
    site.client.patch(RESOURCE_CLAIMS, "c", taken_back, namespace="t", subresource="status")
    use = ClaimUse(claim, (patch.consumer(pod),))
    writer.commit(Commit("t/pod/p", (use,), (PodStart(pod, "n1", ALONE),), {}))
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, Conflict)
    assert site.is_held("p")
    assert site.reserved("c") == []


def test_a_claim_that_has_its_finalizer_is_written_once(site: Site, writer: Writer) -> None:
    pod, claim = site.pod("p", "c"), site.claim("c", finalizers=[DELETE_PROTECTION])
    site.requests.clear()
    start = ClaimStart(claim, gpus_of("n1", 0), (patch.consumer(pod),))
    writer.commit(Commit("t/pod/p", (start,), (), {}))
    assert isinstance(site.end(), Committed)
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (409, "Conflict", Conflict),
        (500, "InternalError", ServerError),
        (429, "TooManyRequests", TooManyRequests),
        (403, "Forbidden", Forbidden),
    ],
)
def test_no_gate_is_removed_if_a_claim_cannot_be_written(
    site: Site, writer: Writer, code: int, reason: str, error: type[Exception]
) -> None:
    commit = site.gang(3)
    site.fail(code, reason, "resourceclaims")
    writer.commit(commit)
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, error)
    assert all(map(site.is_held, ("p0", "p1", "p2")))


def test_a_pod_that_is_gone_ends_its_commit(site: Site, writer: Writer) -> None:
    commit = site.gang(1)
    site.client.delete(PODS, "p0", namespace="t", grace_period_seconds=0)
    writer.commit(commit)
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, NotFound)


def test_a_pod_of_the_same_name_is_not_started(site: Site, writer: Writer) -> None:
    commit = site.gang(1)
    site.client.delete(PODS, "p0", namespace="t", grace_period_seconds=0)
    site.pod("p0", "c0")
    writer.commit(commit)
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, Conflict)
    assert site.is_held("p0")


def test_what_a_failed_write_has_left_is_read_before_the_commit_ends(
    site: Site, writer: Writer
) -> None:
    commit = site.gang(1)
    site.label("p0")
    site.fail(500, "InternalError", "pods", times=3)
    writer.commit(commit)
    bodies = []
    while isinstance(outcome := site.delivered.get(timeout=10), Stored):
        bodies.append(outcome.body)
    assert isinstance(outcome, CommitFailed)
    assert bodies[-1]["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize("plural", ["resourceclaims", "pods"])
def test_a_write_whose_outcome_is_unknown_is_refused_if_it_is_carried_out_later(
    site: Site, writer: Writer, plural: str
) -> None:
    commit = site.gang(1)
    site.fail(500, "InternalError", plural)
    writer.commit(commit)
    site.end()
    (start,) = commit.pods
    late = {
        "resourceclaims": (RESOURCE_CLAIMS, "c0", patch.protect(commit.claims[0].claim)),
        "pods": (PODS, "p0", patch.admit(start.pod, start.node, start.group)),
    }
    resource, name, body = late[plural]
    with pytest.raises(Conflict):
        site.client.patch(resource, name, MergePatch(body), namespace="t")
    assert site.is_held("p0")


@pytest.mark.parametrize("times", [0, 2])
def test_what_is_fenced_refuses_writes_that_were_decided_before(
    site: Site, writer: Writer, times: int
) -> None:
    pod, claim = site.pod("p", "c"), site.claim("c")
    site.fail(503, "ServiceUnavailable", "resourceclaims", times=times)
    each = unsettled(claim)
    writer.fence(each, until=LATE)
    assert site.end() == Fenced(each)
    assert writer.settled
    start = ClaimStart(claim, gpus_of("n1", 0), (patch.consumer(pod),))
    writer.commit(Commit("t/pod/p", (start,), (), {}))
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, Conflict)
    assert site.devices("c") == []


def test_what_is_gone_counts_as_fenced(site: Site, writer: Writer) -> None:
    each = Unsettled(RESOURCE_CLAIMS, ObjectKey("t", "c"), "uid-c")
    writer.fence(each, until=LATE)
    assert site.end() == Fenced(each)
    assert writer.settled


@pytest.mark.parametrize(
    ("code", "reason"),
    [(500, "InternalError"), (403, "Forbidden"), (401, "Unauthorized"), (422, "Invalid")],
)
def test_what_cannot_be_fenced_is_given_up(
    site: Site, writer: Writer, code: int, reason: str
) -> None:
    each = unsettled(site.claim("c"))
    site.requests.clear()
    site.fail(code, reason, "resourceclaims", times=100)
    writer.fence(each, until=LATE)
    assert site.end() == Fenced(each)
    assert len(site.requests) == (1 if reason == "Invalid" else 5)
    assert writer.settled  # nobody could do better


def test_a_fence_that_fails_unexpectedly_has_an_end(
    site: Site, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    each = unsettled(site.claim("c"))
    monkeypatch.setattr(site.client, "patch", fail)
    writer.fence(each, until=LATE)
    end = site.end()
    assert isinstance(end, Fenced)
    assert end.unsettled == each
    assert isinstance(end.error, ZeroDivisionError)


def test_fencing_ends_in_time_if_nobody_answers(site: Site, writer: Writer) -> None:
    each = unsettled(site.claim("c"))
    site.fail(503, "ServiceUnavailable", "resourceclaims", times=10_000)
    writer.fence(each, until=time.monotonic() + 0.3)
    assert site.end() == Fenced(each)
    assert writer.settled  # what it writes itself is known


def test_what_a_failed_write_has_left_is_asked_a_few_times_if_the_question_is_refused(
    site: Site, writer: Writer
) -> None:
    """As for an object as large as etcd takes: the threads that write are needed by others."""
    pod, claim = site.pod("p", "c"), site.claim("c")
    site.requests.clear()
    site.fail(500, "InternalError", "resourceclaims", times=100)
    start = ClaimStart(claim, gpus_of("n1", 0), (patch.consumer(pod),))
    writer.commit(Commit("t/pod/p", (start,), (), {}))
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, ServerError)
    assert len(site.requests) < 10


def test_a_writer_that_is_closed_says_that_a_write_may_still_be_carried_out(
    site: Site, writer: Writer
) -> None:
    claim = site.claim("c")
    site.fail(503, "ServiceUnavailable", "resourceclaims", times=10_000)
    start = ClaimStart(claim, gpus_of("n1", 0), ())
    writer.commit(Commit("t/pod/p", (start,), (), {}))
    eventually(lambda: len(site.requests) > 3)
    settled_before = writer.settled
    writer.close()
    assert (settled_before, writer.settled) == (True, False)
    site.end()


def test_a_write_that_fails_unexpectedly_ends_its_commit(site: Site, writer: Writer) -> None:
    commit = site.gang(1)
    site.client.close()
    broken: Any = site.client
    broken.patch = None
    writer.commit(commit)
    outcome = site.end()
    assert isinstance(outcome, CommitFailed)
    assert isinstance(outcome.error, TypeError)


def test_devices_are_taken_back(site: Site, writer: Writer) -> None:
    pod, claim = site.pod("p", "c"), site.claim("c", allocation=gpus_of("n1", 0))
    writer.release(Release(claim, (pod,)))
    assert site.end() == Released(claim, None)
    assert site.devices("c") == []


def test_devices_are_not_taken_from_a_pod_that_has_changed(site: Site, writer: Writer) -> None:
    pod, claim = site.pod("p", "c"), site.claim("c", allocation=gpus_of("n1", 0))
    site.label("p")
    writer.release(Release(claim, (pod,)))
    outcome = site.end()
    assert isinstance(outcome, Released)
    assert isinstance(outcome.error, Conflict)
    assert site.devices("c") == ["gpu-0"]


def test_a_release_that_fails_unexpectedly_has_an_end(site: Site, writer: Writer) -> None:
    claim = site.claim("c", allocation=gpus_of("n1", 0))
    broken: Any = site.client
    broken.patch = None
    writer.release(Release(claim, ()))
    outcome = site.end()
    assert isinstance(outcome, Released)
    assert isinstance(outcome.error, TypeError)


@pytest.mark.parametrize("past_budgets", [False, True])
def test_a_pod_that_nothing_can_be_added_to_is_made_smaller_before_it_ends(
    site: Site, writer: Writer, past_budgets: bool
) -> None:
    pod = site.pod("p")
    annotations = {"fill": "x" * 100, PREEMPTIBLE_ANNOTATION: "true"}
    changes = MergePatch({"metadata": {"annotations": annotations}})
    site.client.patch(PODS, "p", changes, namespace="t")
    failure = Failure(500, "InternalError", "etcdserver: request is too large")
    verb = "delete" if past_budgets else "create"
    site.server.api.faults.fail(failure, verb=verb, plural="pods")
    eviction = Eviction("t/p", "n1", Action.RECLAIM, "t/g", 30, past_budgets=past_budgets)
    writer.evict(pod, eviction)
    left: list[object] = []
    while isinstance(outcome := site.delivered.get(timeout=10), Stored):
        left.append(outcome.body["metadata"].get("annotations"))
    assert outcome == EvictionEnded(pod, eviction, None)
    assert {PREEMPTIBLE_ANNOTATION: "true"} in left


def test_a_pod_that_is_gone_counts_as_evicted(site: Site, writer: Writer) -> None:
    pod = site.pod("p")
    site.client.delete(PODS, "p", namespace="t", grace_period_seconds=0)
    writer.evict(pod, None)
    assert site.end() == EvictionEnded(pod, None, None)

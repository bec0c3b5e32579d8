"""What is read of a pod."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GATE, GROUP_LABEL, PREEMPTIBLE_ANNOTATION
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, pod_body


def test_the_least_that_a_pod_has_is_enough() -> None:
    metadata = pod_body("p", queue=None)["metadata"]
    del metadata["labels"], metadata["annotations"]
    pod = read_pod({"metadata": metadata})
    assert (pod.key, pod.queue, pod.claims, pod.is_held) == ("t/p", None, (), False)


def test_the_node_that_a_pod_was_given_counts_once_its_gate_is_gone() -> None:
    assert read_pod(pod_body("p", given="n1", gates=())).given == "n1"
    assert read_pod(pod_body("p", given="n1", gates=[GATE])).given is None


@pytest.mark.parametrize(
    ("gates", "says", "firm"),
    [
        ((), {PREEMPTIBLE_ANNOTATION: "false"}, True),
        ((), {PREEMPTIBLE_ANNOTATION: "true"}, False),
        ((), {}, False),
        ((GATE,), {PREEMPTIBLE_ANNOTATION: "false"}, False),
        (("other",), {PREEMPTIBLE_ANNOTATION: "false"}, True),
    ],
)
def test_a_pod_is_firm_if_it_has_started_so(
    gates: tuple[str, ...], says: dict[str, str], firm: bool
) -> None:
    assert read_pod(pod_body("p", gates=gates, annotations=says)).firm == firm


def test_claims_of_templates_count_when_they_have_been_made() -> None:
    body = pod_body("p", claims=["own"])
    body["spec"]["resourceClaims"].append({"name": "made", "resourceClaimTemplateName": "gpus"})
    body["spec"]["resourceClaims"].append({"name": "none", "resourceClaimTemplateName": "gpus"})
    body["status"]["resourceClaimStatuses"] = [
        {"name": "made", "resourceClaimName": "p-made-x"},
        {"name": "none"},
    ]
    pod = read_pod(body)
    assert pod.claims == ("t/own", "t/p-made-x")
    assert not pod.lacks_claims


def test_a_pod_lacks_a_claim_that_has_to_be_made_from_a_template() -> None:
    body = pod_body("p")
    body["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    assert read_pod(body).lacks_claims


def test_only_its_controller_owns_a_pod() -> None:
    body = pod_body("p")
    body["metadata"]["ownerReferences"] = [{**JOB, "controller": False}]
    assert read_pod(body).owner is None
    owner = read_pod(pod_body("p", owner=JOB)).owner
    assert owner is not None
    assert (owner.kind, owner.name) == ("Job", "train")


@pytest.mark.parametrize(
    ("phase", "succeeded"),
    [("Pending", None), ("Running", None), ("Succeeded", True), ("Failed", False)],
)
def test_a_pod_ends_with_success_or_without(phase: str, succeeded: bool | None) -> None:
    assert read_pod(pod_body("p", phase=phase)).succeeded is succeeded


def test_the_word_of_kube_scheduler_is_kept() -> None:
    assert read_pod(pod_body("p", verdict="0/3 nodes")).verdict == "0/3 nodes"
    assert read_pod(pod_body("p", node="n1")).verdict is None


@pytest.mark.parametrize(
    ("end", "grace", "deleted", "counted"),
    [
        (0, 0, 0, 0),
        (30, 30, 0, 30),
        (3_000_000_000, 3_000_000_000, 0, 3_000_000_000),
        (30, None, 30, 0),
        (30, -1, 31, -1),
        (30, "soon", 30, 0),
        # The API server's arithmetic overflows: its time is not the sum. Nobody waits for that.
        (1_000_000, 9_223_372_036, 1_000_000 - 9_223_372_036, 9_223_372_036),
    ],
)
def test_a_pod_was_deleted_a_grace_period_before_its_end(
    end: int, grace: object, deleted: int, counted: int
) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    timestamp = (first + timedelta(seconds=end)).isoformat()
    pod = read_pod(pod_body("p", node="n1", deleted=timestamp, grace=grace))
    assert (pod.deleted, pod.deletion_grace) == (first.timestamp() + deleted, counted)


@pytest.mark.parametrize("year", ["+292277026596", "12026"])
def test_an_end_that_no_calendar_has_is_not_waited_for(year: str) -> None:
    pod = read_pod(pod_body("p", node="n1", deleted=f"{year}-01-01T00:00:00Z"))
    assert (pod.deleted, pod.deletion_grace) == (0, math.inf)


def test_a_pod_that_is_not_deleted_need_not_leave() -> None:
    assert read_pod(pod_body("p", node="n1")).deleted is None


@pytest.mark.parametrize(
    ("reason", "status", "begun"),
    [
        ("DeletionByDeviceTaintManager", "True", 60.0),
        ("DeletionByDeviceTaintManager", "False", None),
        ("EvictionByEvictionAPI", "True", None),
    ],
)
def test_a_pod_that_kubernetes_evicts_from_its_device_says_since_when(
    reason: str, status: str, begun: float | None
) -> None:
    body = pod_body("p", node="n1")
    since = {"status": status, "lastTransitionTime": "1970-01-01T00:01:00Z"}
    body["status"]["conditions"].append({"type": "DisruptionTarget", "reason": reason, **since})
    assert read_pod(body).device_eviction == begun


def test_of_a_huge_number_of_labels_those_that_say_the_group_count_and_some_others() -> None:
    body = pod_body("p")
    many = {f"a{n}": "" for n in range(50_000)}
    last = {QUEUE_LABEL: "q", GROUP_LABEL: "g", "batch.kubernetes.io/job-completion-index": "3"}
    body["metadata"]["labels"] = many | last
    labels = read_pod(body).labels
    assert len(labels) == 256
    assert last.items() <= labels.items()

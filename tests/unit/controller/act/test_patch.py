"""What is written, word by word."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from carina_dra.resource import ResourceClaim, decode
from controller.act import patch
from controller.engine.model.group import Group, PodSet, SubGroups
from controller.names import DELETE_PROTECTION, GATE, PREEMPTIBLE_ANNOTATION
from controller.observe.pod import read_pod
from simulation.api_server.patch import merge
from tests.unit.controller.bodies import JOB, claim_body, pod_body
from tests.unit.controller.engine.scene import gpus_of

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
VERSION = {"uid": "uid-c", "resourceVersion": "7"}
GANG = Group("t/g", "q", SubGroups("", (PodSet("a", 1), PodSet("b", 2)), 2))
CLAIM = decode(ResourceClaim, claim_body("c", version=7))
HERE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_a_claim_gets_its_devices_and_its_pods_with_one_write() -> None:
    consumers = [patch.consumer(read_pod(pod_body("p")))]
    assert patch.allocate(CLAIM, gpus_of("n1", 0), consumers, NOW) == {
        "metadata": VERSION,
        "status": {
            "allocation": {
                "allocationTimestamp": "2026-01-02T03:04:05Z",
                "devices": {
                    "results": [
                        {
                            "driver": "gpu.carina.dev",
                            "pool": "n1",
                            "device": "gpu-0",
                            "request": "gpus",
                        }
                    ]
                },
                "nodeSelector": {"nodeSelectorTerms": [HERE]},
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        },
    }


def test_a_claim_is_protected_beside_what_it_has() -> None:
    claim = decode(ResourceClaim, claim_body("c", version=7, finalizers=["other"]))
    assert patch.protect(claim) == {
        "metadata": {**VERSION, "finalizers": ["other", DELETE_PROTECTION]}
    }


def test_devices_are_taken_back_with_all_that_follows_from_them() -> None:
    assert patch.deallocate(CLAIM) == {
        "metadata": VERSION,
        "status": {"allocation": None, "reservedFor": None, "devices": None},
    }


def test_a_bare_pod_loses_the_gate_of_the_controller_only() -> None:
    pod = read_pod(pod_body("p", version=3, gates=[GATE, "other"]))
    assert patch.admit(pod, "n1", GANG) == {
        "metadata": {
            "uid": "uid-p",
            "resourceVersion": "3",
            "annotations": {
                "scheduling.carina.dev/node": "n1",
                "scheduling.carina.dev/preemptible": "true",
                "scheduling.carina.dev/started-with": "3",
            },
        },
        "spec": {"schedulingGates": [{"name": "other"}]},
    }


def test_a_pod_says_what_it_started_as_whatever_it_said_before() -> None:
    pod = read_pod(pod_body("p", annotations={PREEMPTIBLE_ANNOTATION: "true"}))
    started = merge(pod_body("p"), patch.admit(pod, "n1", replace(GANG, preemptible=False)))
    assert started["metadata"]["annotations"][PREEMPTIBLE_ANNOTATION] == "false"
    seen = read_pod({**started, "metadata": {**started["metadata"], "resourceVersion": "2"}})
    assert (seen.firm, seen.started_with) == (True, 3)


def test_a_pod_that_is_replaced_is_pinned() -> None:
    pod = read_pod(pod_body("p", owner=JOB))
    assert patch.admit(pod, "n1", GANG)["spec"] == {
        "schedulingGates": [],
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [HERE]}}},
    }


def test_a_bare_pod_for_which_kube_scheduler_may_choose_devices_is_pinned() -> None:
    body = pod_body("p")
    change = patch.admit(read_pod(body), "n1", GANG, is_chosen_for=True)
    started = merge(body, change)
    seen = read_pod({**started, "metadata": {**started["metadata"], "resourceVersion": "2"}})
    assert seen.is_pinned
    assert seen.needs.affinity is None  # so that its place can be found again


def test_a_pod_that_is_pinned_keeps_its_own_affinity() -> None:
    others: dict[str, Any] = {"podAntiAffinity": {REQUIRED: []}}
    pod = read_pod(pod_body("p", owner=JOB, affinity=others))
    affinity = patch.admit(pod, "n1", GANG)["spec"]["affinity"]
    assert affinity == patch.pinned(others, "n1")
    assert affinity["podAntiAffinity"] == {REQUIRED: []}


_ZONE = [{"key": "zone", "operator": "In", "values": ["a"]}]
_OTHER_FIELD = {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}


@pytest.mark.parametrize(
    ("terms", "pinned"),
    [
        (None, [HERE]),
        ([], [HERE]),
        ([{"matchExpressions": _ZONE}], [{"matchExpressions": _ZONE, **HERE}]),
        (
            [{"matchFields": [_OTHER_FIELD]}],
            [{"matchFields": [_OTHER_FIELD, *HERE["matchFields"]]}],
        ),
        ([{}, {"matchExpressions": _ZONE}], [{}, {"matchExpressions": _ZONE, **HERE}]),
    ],
    ids=["none", "no terms", "labels", "fields", "a term that matches no node"],
)
def test_a_pin_holds_in_every_term(terms: Any, pinned: Any) -> None:
    affinity = {} if terms is None else {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    made = patch.pinned(affinity, "n1")
    assert made == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": pinned}}}


def test_a_pin_leaves_all_other_affinity() -> None:
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAffinity": {REQUIRED: []}, "nodeAffinity": {preferred: [{"weight": 1}]}}
    made = patch.pinned(affinity, "n1")
    assert made["podAffinity"] == {REQUIRED: []}
    assert made["nodeAffinity"][preferred] == [{"weight": 1}]


@pytest.mark.parametrize(
    ("unchanged", "conditions"),
    [
        (False, {"uid": "uid-p"}),
        (True, {"uid": "uid-p", "resourceVersion": "3"}),
    ],
)
def test_an_eviction_is_of_this_very_pod(unchanged: bool, conditions: object) -> None:
    pod = read_pod(pod_body("p", version=3))
    assert patch.evict(pod, unchanged=unchanged) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "t", "name": "p"},
        "deleteOptions": {"preconditions": conditions},
    }


@pytest.mark.parametrize(
    ("own", "longest", "expected"),
    [(31536000, 10.0, 10), (5, 10.0, None), (31536000, None, None), (3600, 0.2, 1), (60, 1.5, 2)],
)
def test_an_eviction_shortens_a_grace_that_is_longer_than_the_queue_allows(
    own: int, longest: float | None, expected: int | None
) -> None:
    body = pod_body("p")
    body["spec"]["terminationGracePeriodSeconds"] = own
    options = patch.evict(read_pod(body), unchanged=False, longest=longest)["deleteOptions"]
    assert options.get("gracePeriodSeconds") == expected


def test_a_pod_is_confirmed_by_a_write_that_changes_nothing() -> None:
    pod = read_pod(pod_body("p", version=3))
    assert patch.confirm(pod) == {"metadata": {"uid": "uid-p", "resourceVersion": "3"}}


def test_a_pod_that_budgets_guard_keeps_its_other_conditions() -> None:
    body = pod_body("p", version=3)
    old = {"type": "DisruptionTarget", "status": "False"}
    ready = {"type": "Ready", "status": "True"}
    body["status"] = {"conditions": [old, ready]}
    written = patch.disrupted(body, patch.RECLAIMED, datetime(2026, 1, 1, tzinfo=UTC))
    assert written["metadata"] == {"uid": "uid-p", "resourceVersion": "3"}
    kept, added = written["status"]["conditions"]
    assert kept == ready
    assert (added["type"], added["status"]) == ("DisruptionTarget", "True")

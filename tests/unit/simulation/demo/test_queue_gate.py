"""The demo's stand-in for the admission policies of queues."""

from typing import Any

import pytest
import yaml

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import DELETE_PROTECTION, GATE
from simulation.demo.manifests import DEPLOY
from simulation.demo.queue_gate import admit

QUEUE = {QUEUE_LABEL: "team"}


def body(labels: dict[str, str], spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "one", "labels": labels, **metadata}, "spec": spec}


def test_pod_of_a_queue_gets_the_gate_beside_its_own() -> None:
    pod = body(QUEUE, {"schedulingGates": [{"name": "other"}], "containers": []})
    assert admit(PODS, pod)["spec"] == {
        "schedulingGates": [{"name": "other"}, {"name": GATE}],
        "containers": [],
    }


def test_claim_of_a_queue_gets_the_finalizer_beside_its_own() -> None:
    claim = body(QUEUE, {}, finalizers=["other"])
    assert admit(RESOURCE_CLAIMS, claim)["metadata"]["finalizers"] == ["other", DELETE_PROTECTION]


@pytest.mark.parametrize("resource", [PODS, RESOURCE_CLAIMS])
def test_what_has_been_admitted_stays_as_it_is(resource: ApiResource) -> None:
    admitted = admit(resource, body(QUEUE, {}))
    assert admit(resource, admitted) == admitted


@pytest.mark.parametrize(
    ("resource", "labels", "spec"),
    [
        (PODS, {}, {}),
        (PODS, QUEUE, {"nodeName": "node-1"}),
        (RESOURCE_CLAIMS, {}, {}),
        (ApiResource("", "v1", "secrets", "Secret", PODS.scope), QUEUE, {}),
    ],
    ids=["pod without a queue", "pod with a node", "claim without a queue", "another resource"],
)
def test_nothing_else_is_changed(
    resource: ApiResource, labels: dict[str, str], spec: dict[str, Any]
) -> None:
    given = body(labels, spec)
    assert admit(resource, given) == given


def test_policies_are_about_the_same_label_gate_and_finalizer() -> None:
    documents = yaml.safe_load_all((DEPLOY / "queue-gate.yaml").read_text())
    policies = {
        policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"][0]: policy["spec"]
        for policy in documents
        if policy["kind"] == "MutatingAdmissionPolicy"
    }
    assert set(policies) == {PODS.plural, RESOURCE_CLAIMS.plural}
    for plural, name in ((PODS.plural, GATE), (RESOURCE_CLAIMS.plural, DELETE_PROTECTION)):
        selector = policies[plural]["matchConstraints"]["objectSelector"]
        assert selector == {"matchExpressions": [{"key": QUEUE_LABEL, "operator": "Exists"}]}
        [mutation] = policies[plural]["mutations"]
        assert f"'{name}'" in mutation["applyConfiguration"]["expression"]

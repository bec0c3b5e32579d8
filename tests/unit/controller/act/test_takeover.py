"""What gets another version before the first decision, if the last leader may still be writing."""

from typing import Any

from carina_dra.resource import ResourceClaim, decode
from controller.act.takeover import unsettled
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import CREATED, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpus_of

GIVEN = gpus_of("n1", 0)
POD = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}


def names(claims: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> set[str]:
    """The names of what is unsettled in a cluster of these claims and pods."""
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_queue("q", declared_queue())
    for name, fields in claims.items():
        mirror.put_claim(decode(ResourceClaim, claim_body(name, **fields)))
    for name, fields in pods.items():
        mirror.put_pod(read_pod(pod_body(name, **fields)))
    mirror.refresh(NOW)
    return {each.key.name for each in unsettled(mirror)}


def test_a_claim_of_a_pod_that_waits_may_be_written() -> None:
    assert names({"c": {}}, {"p": {"claims": ["c"]}}) == {"c"}


def test_the_gate_of_a_pod_may_be_removed_once_all_its_claims_have_devices() -> None:
    claims: dict[str, dict[str, Any]] = {"c": {"allocation": GIVEN}, "d": {"allocation": GIVEN}}
    pods = {"p": {"claims": ["c", "d"]}}
    assert names(claims, pods) == {"c", "d", "p"}
    assert names(claims | {"d": {}}, pods) == {"c", "d"}
    assert names({"c": claims["c"]}, pods) == {"c"}


def test_the_gate_of_a_pod_without_claims_may_be_removed() -> None:
    assert names({}, {"p": {}}) == {"p"}


def test_a_claim_whose_devices_were_taken_back_may_be_written_again() -> None:
    assert names({"c": {}}, {"p": {"claims": ["c"], "gates": (), "given": "n1"}}) == {"c"}


def test_a_claim_that_asks_by_itself_may_be_written() -> None:
    label: dict[str, Any] = {"labels": {QUEUE_LABEL: "q"}}
    assert names({"c": label, "d": {**label, "allocation": GIVEN}}, {}) == {"c", "d"}


def test_a_claim_whose_pods_are_gone_may_be_written_if_it_has_no_devices() -> None:
    template = {"resource.kubernetes.io/pod-claim-name": "gpus"}
    of_pod: dict[str, Any] = {
        "labels": {QUEUE_LABEL: "q"},
        "annotations": template,
        "ownerReferences": [POD],
    }
    claims = {"c": of_pod, "d": {**of_pod, "allocation": GIVEN}, "others": {}}
    assert names(claims, {}) == {"c"}


def test_namespaces_take_turns() -> None:
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_queue("q", declared_queue())
    for number in range(6):
        body = claim_body(f"c{number}", labels={QUEUE_LABEL: "q"})
        body["metadata"]["namespace"] = "many" if number < 4 else "t"
        mirror.put_claim(decode(ResourceClaim, body))
    mirror.refresh(NOW)
    found = [each.key.namespace for each in unsettled(mirror)]
    assert found == ["many", "t", "many", "t", "many", "many"]


def test_what_others_schedule_and_what_has_a_node_or_an_end_is_not_written() -> None:
    claims: dict[str, dict[str, Any]] = {f"c{index}": {"allocation": GIVEN} for index in range(4)}
    pods: dict[str, dict[str, Any]] = {
        "p0": {"claims": ["c0"], "queue": None, "gates": ()},
        "p1": {"claims": ["c1"], "gates": (), "node": "n1"},
        "p2": {"claims": ["c2"], "gates": (), "phase": "Succeeded"},
        "p3": {"claims": ["c3"], "deleted": CREATED},
    }
    assert names(claims, pods) == set()

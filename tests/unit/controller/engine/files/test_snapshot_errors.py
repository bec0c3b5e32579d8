"""What is wrong with a snapshot is said with its file, document, field and reason."""

import json
from typing import Any

import pytest
import yaml

from carina_dra.manifests.manifest import ManifestError
from controller.engine.files.file import read_snapshot

_HEADER: dict[str, Any] = {"apiVersion": "scheduling.carina.dev/v1alpha1"}
_SNAPSHOT: dict[str, Any] = {**_HEADER, "kind": "Snapshot", "now": 0}
_NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}},
}


def queue(*resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body = {**_HEADER, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}
    if resources:
        body["spec"] = {**spec, "resources": list(resources)}
    return body


def group(**fields: Any) -> dict[str, Any]:
    root = {"podSet": {"name": "", "minCount": 1}}
    return {**_SNAPSHOT, "groups": [{"key": "a/g", "queue": "q", "root": root, **fields}]}


def pod(**fields: Any) -> dict[str, Any]:
    return {**_SNAPSHOT, "pods": [{"key": "a/p", "needs": {}, "state": "pending", **fields}]}


def refusal(*documents: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        read_snapshot("a.yaml", yaml.safe_dump_all(documents).encode())
    return str(caught.value)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({**_SNAPSHOT, "nwo": 1}, "Snapshot: nwo: is not a field of Snapshot; did you mean now?"),
        ({**_HEADER, "kind": "Snapshot"}, "Snapshot: lacks now"),
        ({**_SNAPSHOT, "now": "noon"}, "Snapshot: now: is 'noon', not a number or inf"),
        (
            {**_SNAPSHOT, "kind": "Snapshots"},
            "kind is 'Snapshots', which a snapshot does not have;",
        ),
        (
            {**_SNAPSHOT, "apiVersion": "scheduling.carina.dev/v1"},
            "apiVersion is scheduling.carina.dev/v1; write scheduling.carina.dev/v1alpha1",
        ),
        (
            group(priorty=1),
            "Snapshot: groups[0].priorty: is not a field of Group; did you mean priority?",
        ),
        (
            group(root={"podsets": {}}),
            "Snapshot: groups[0].root: has 'podsets'; did you mean podSet?",
        ),
        (
            group(placement="tight"),
            "Snapshot: groups[0].placement: policy 'tight': write binpack, spread,",
        ),
        (
            pod(state="running"),
            "Snapshot: pods[0].state: is 'running', not one of pending, gated, placed,",
        ),
        (
            pod(state={"placed": {}}),
            "Snapshot: pods[0].state.placed: lacks node",
        ),
        (
            pod(needs={"extended": [["a/b"]]}),
            "Snapshot: pods[0].needs.extended[0]: is ['a/b'], not a list of 2 values",
        ),
        (pod(needs={"cpu": -1}), "Snapshot: pods[0].needs.cpu: is -1; it must not be negative"),
        (
            {**_SNAPSHOT, "usage": {"q": {"gpu": 1}}},
            "Snapshot: usage[q][gpu]: resource 'gpu': write gpus,",
        ),
        (
            {**_SNAPSHOT, "settings": {"actions": ["evict"]}},
            "Snapshot: settings.actions[0]: is 'evict', not one of consolidate, reclaim,",
        ),
        (
            {**_SNAPSHOT, "pods": pod()["pods"] * 2},
            "Snapshot: has pods with the same key a/p; remove one of them",
        ),
        (
            {**_HEADER, "kind": "Queue", "metadata": {}},
            "Queue: lacks metadata.name",
        ),
        (queue(quota=3), "Queue q: spec.quota: is not a field of QueueSpec; write one of parent,"),
        (
            queue({"deviceClass": "gpu", "quota": -1}),
            "Queue q: spec.resources[0].quota: is -1; it must not be negative",
        ),
        (
            queue({"deviceClass": "gpu", "limit": "1500m"}),
            "Queue q: spec.resources[0].limit: is '1500m'; write a whole number",
        ),
        (
            queue({"name": "memory", "quota": "much"}),
            "Queue q: spec.resources[0].quota: 'much' is not a quantity",
        ),
        (
            queue({"quota": 1}),
            "Queue q: spec.resources[0]: names no resource; write one of gpus: {},",
        ),
        (
            queue({"gpus": {}, "deviceClass": "gpu"}),
            "Queue q: spec.resources[0]: names no resource; write one of gpus: {},",
        ),
        (
            queue({"gpus": {}}, {"gpus": {"model": "H100"}}, {"gpus": {"model": "H100"}}),
            "Queue q: spec.resources[2]: is a resource that occurs twice; remove one of them",
        ),
        (
            queue({"gpus": {"model": "H100 "}}),
            "Queue q: spec.resources[0].gpus.model: is 'H100 ', not the product name of GPUs",
        ),
        (
            queue({"gpus": {"product": "H100"}}),
            "Queue q: spec.resources[0].gpus.product: is not a field of QueueGpus; write",
        ),
        (
            queue({"gpus": {}, "quota": "500m"}),
            "Queue q: spec.resources[0].quota: is '500m'; write a number such as 8 or 0.5",
        ),
        (
            queue({"name": "gpu"}),
            "Queue q: spec.resources[0].name: is 'gpu', not one of cpu, memory, pods",
        ),
        (
            queue({"name": "cpu"}, {"name": "cpu"}),
            "Queue q: spec.resources[1]: is a resource that occurs twice; remove one of them",
        ),
        (
            queue({"name": "cpu", "weight": "one"}),
            "Queue q: spec.resources[0].weight: is 'one', not a number, or a fraction such as 1/3",
        ),
        (
            queue(reclaimMinRuntime="soon"),
            "Queue q: spec.reclaimMinRuntime: is 'soon', not a duration such as 1h30m,",
        ),
        (
            {**_NODE, "kind": "Pod"},
            "Pod (v1) is not part of a snapshot",
        ),
    ],
)
def test_the_message_names_document_field_and_reason(document: Any, problem: str) -> None:
    assert refusal(document).startswith(f"a.yaml, document 1: {problem}")


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([_NODE], "a.yaml: has no Snapshot; write apiVersion: scheduling.carina.dev/v1alpha1,"),
        ([_SNAPSHOT, _SNAPSHOT], "a.yaml, document 2: Snapshot: is also in a.yaml, document 1"),
        ([queue(), queue()], "a.yaml, document 2: Queue q: is also in a.yaml, document 1; remove"),
        (
            [_SNAPSHOT, {**_NODE, "status": {}}],
            "a.yaml: Node n1: lacks status.allocatable.cpu",
        ),
        (
            [_SNAPSHOT, {**_NODE, "spec": {"taints": [{"key": "a"}]}}],
            "a.yaml: Node n1: spec.taints[0]: lacks effect",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(documents: list[Any], problem: str) -> None:
    assert refusal(*documents).startswith(problem)


def test_objects_can_be_in_a_list() -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": [_NODE, _SNAPSHOT, queue()]}
    snapshot = read_snapshot("a.yaml", yaml.safe_dump(body).encode())
    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert [each.name for each in snapshot.queues] == ["q"]


def test_an_unknown_field_of_a_newer_api_can_be_let_pass() -> None:
    newer = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"newer": 1},
    }
    content = yaml.safe_dump_all([_SNAPSHOT, newer]).encode()
    assert len(read_snapshot("a.yaml", content, strict=False).classes) == 1
    with pytest.raises(ManifestError, match="newer: is not a field"):
        read_snapshot("a.yaml", content)


def test_a_tree_of_groups_that_is_too_deep_is_refused() -> None:
    part: dict[str, Any] = {"podSet": {"name": "", "minCount": 1}}
    for _ in range(300):
        part = {"subGroups": {"name": "", "minCount": 1, "children": [part]}}

    with pytest.raises(ManifestError, match=r"document 1: Snapshot: is nested too deeply"):
        read_snapshot("a.json", json.dumps(group(root=part)).encode())

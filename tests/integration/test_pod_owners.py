"""Pods of Kubernetes' own controllers are grouped by the labels and owners that these write."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from carina_dra.resource import ObjectMeta, decode
from controller.engine.model.group import Group, PodSet
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import MIN_COUNT_ANNOTATION
from controller.observe.grouping import group_of
from controller.observe.member import GroupMember, group_id_of, place_of
from controller.observe.owner import Owner
from controller.observe.owners.stateful_set import STATEFUL_SET
from simulation.kubernetes.cluster import Cluster
from tests.eventually import eventually

_NAMESPACE: Final = "owners"
_MIN_COUNT: Final = {MIN_COUNT_ANNOTATION: "3"}


@pytest.fixture(scope="module", autouse=True)
def namespace(cluster: Cluster) -> Iterator[None]:
    """A namespace for the owners."""
    cluster.kubectl("create", "namespace", _NAMESPACE)
    yield
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")


def _create(
    cluster: Cluster,
    api_version: str,
    kind: str,
    name: str,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> None:
    template: dict[str, Any] = {
        "metadata": {
            "labels": {QUEUE_LABEL: "research", "owner": name},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"owner": name}}
    manifest = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"template": template, **spec},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def _pods(cluster: Cluster, owner: str, count: int) -> list[GroupMember]:
    """The pods of an owner, the first of its pod set first, as soon as there are enough."""

    def found() -> list[GroupMember]:
        listed = cluster.kubectl("get", "pods", "-n", _NAMESPACE, "-l", f"owner={owner}", "-o=json")
        pods = [_member(body) for body in json.loads(listed)["items"]]
        return pods if len(pods) == count else []

    return sorted(eventually(found, within=30), key=lambda pod: place_of(pod).rank)


def _member(body: Mapping[str, Any]) -> GroupMember:
    metadata = decode(ObjectMeta, body["metadata"])
    return GroupMember(
        metadata.namespace,
        metadata.name,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owner=next(each for each in metadata.owner_references if each.controller),
    )


def _stateful_set(cluster: Cluster, name: str) -> Owner:
    return STATEFUL_SET.read(
        json.loads(cluster.kubectl("get", "statefulset", "-n", _NAMESPACE, name, "-o=json"))
    )


def _group(pods: list[GroupMember], owner: Owner | None = None) -> Group:
    ids = {group_id_of(pod) for pod in pods}
    assert len(ids) == 1
    found = group_of(ids.pop(), pods, owner=owner)
    assert isinstance(found, Group), found
    return found


def test_pods_of_an_indexed_job_are_a_group_in_the_order_of_their_index(cluster: Cluster) -> None:
    _create(
        cluster, "batch/v1", "Job", "train", _MIN_COUNT,
        completionMode="Indexed", completions=3, parallelism=3,
    )  # fmt: skip
    pods = _pods(cluster, "train", 3)

    group = _group(pods)

    assert (group.key, group.root) == ("owners/job/train", PodSet("", 3))
    assert [place_of(pod).rank for pod in pods] == [0, 1, 2]


def test_pods_of_a_job_start_one_by_one(cluster: Cluster) -> None:
    _create(cluster, "batch/v1", "Job", "tasks", parallelism=2)

    assert _group(_pods(cluster, "tasks", 2)).root == PodSet("", 1)


def test_all_pods_of_a_parallel_stateful_set_start_together(cluster: Cluster) -> None:
    _create(
        cluster, "apps/v1", "StatefulSet", "together",
        serviceName="none", replicas=3, podManagementPolicy="Parallel",
    )  # fmt: skip
    pods = _pods(cluster, "together", 3)

    group = _group(pods, _stateful_set(cluster, "together"))

    assert (group.key, group.root) == ("owners/statefulset/together", PodSet("", 3))
    assert [place_of(pod).rank for pod in pods] == [0, 1, 2]


def test_an_ordered_stateful_set_has_one_pod_and_does_not_wait_for_more(cluster: Cluster) -> None:
    _create(cluster, "apps/v1", "StatefulSet", "ordered", serviceName="none", replicas=3)
    pods = _pods(cluster, "ordered", 1)

    assert _group(pods, _stateful_set(cluster, "ordered")).root == PodSet("", 1)


def test_pods_of_a_deployment_start_by_themselves(cluster: Cluster) -> None:
    _create(cluster, "apps/v1", "Deployment", "web", replicas=2)
    pods = _pods(cluster, "web", 2)

    assert {group_id_of(pod).key for pod in pods} == {f"owners/pod/{pod.name}" for pod in pods}


def test_pods_of_a_deployment_may_be_a_group(cluster: Cluster) -> None:
    _create(cluster, "apps/v1", "Deployment", "shards", _MIN_COUNT, replicas=3)

    group = _group(_pods(cluster, "shards", 3))

    assert group.key.startswith("owners/owner:replicaset.apps/shards-")
    assert group.root == PodSet("", 3)

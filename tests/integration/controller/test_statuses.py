"""Statuses of Queues and PodGroups on a real API server, with the schemas that ship."""

from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body, key_of
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.engine.decide.cycle import Engine
from controller.names import POD_GROUPS, QUEUES
from controller.report.cycle_report import CycleReport, ObjectVersion, Observed
from controller.report.metrics import ControllerMetrics
from controller.report.status_writer import StatusTarget, StatusWriter
from simulation.kubernetes.cluster import DEPLOY, Cluster
from tests.eventually import eventually
from tests.unit.controller.engine.scene import Scene

_TEAM = "statuses"
_QUEUE = f"{_TEAM}-queue"


@pytest.fixture(scope="module", autouse=True)
def namespace(cluster: Cluster) -> Iterator[None]:
    """A namespace in a cluster that has the CustomResourceDefinitions."""
    cluster.kubectl("apply", "-f", str(DEPLOY / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "-f", str(DEPLOY / "crds"))
    cluster.kubectl("create", "namespace", _TEAM)
    yield
    cluster.kubectl("delete", "namespace", _TEAM, "--wait=false")
    cluster.kubectl("delete", "queue", _QUEUE)


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        yield client


class _NoEvents:
    """GroupEvents that records nothing."""

    def report(self, *_: object) -> bool:
        return False

    def report_degraded(self, *_: object) -> bool:
        return False


def create(client: Client, resource: ApiResource, name: str, spec: Body) -> Body:
    namespace = {"namespace": _TEAM} if resource is POD_GROUPS else {}
    metadata = {"name": name, **namespace}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return client.create(resource, {**body, "spec": spec})


def version(body: Body) -> ObjectVersion:
    return ObjectVersion(body["metadata"]["uid"], body["metadata"]["generation"])


def objects(client: Client) -> dict[StatusTarget, Body]:
    """The queue and the groups of these tests, as they are."""
    queue = client.get(QUEUES, _QUEUE)
    groups = client.list(POD_GROUPS, Selection(_TEAM)).items
    return {
        StatusTarget(QUEUES, key_of(queue)): queue,
        **{StatusTarget(POD_GROUPS, key_of(group)): group for group in groups},
    }


@pytest.fixture(scope="module")
def writer(client: Client, namespace: None) -> Iterator[StatusWriter]:
    """A writer that has reported a cycle: one group has all GPUs, and the other waits."""
    queue = create(client, QUEUES, _QUEUE, {"resources": [{"deviceClass": "gpu", "quota": 2}]})
    groups = [create(client, POD_GROUPS, name, {"minCount": 2}) for name in ("old", "new")]
    scene = Scene().node("n", 2).queue(_QUEUE, quota=2)
    scene.runs(f"{_TEAM}/old", "n", "n", queue=_QUEUE).waits(f"{_TEAM}/new", 2, queue=_QUEUE)
    state = scene.state()
    events: Any = _NoEvents()
    observed = Observed(
        {str(key_of(group)): version(group) for group in groups}, {_QUEUE: version(queue)}
    )
    with StatusWriter(client, ControllerMetrics()) as writer:
        for target, body in objects(client).items():
            writer.observe(target, body)
        plan = Engine(state).decide()
        CycleReport(writer, events, ControllerMetrics(), lambda _: ()).report(
            state, plan, observed, 0
        )
        yield writer


def test_kubectl_can_wait_for_conditions(cluster: Cluster, writer: StatusWriter) -> None:
    waits = ("wait", f"--namespace={_TEAM}", "--timeout=5s")
    cluster.kubectl(*waits, "podgroup/old", "--for=condition=Admitted")
    cluster.kubectl(*waits, "podgroup/new", "--for=condition=Admitted=False")
    cluster.kubectl(*waits, f"queue/{_QUEUE}", "--for=condition=Active")


def test_a_group_that_waits_says_why(client: Client, writer: StatusWriter) -> None:
    def reason() -> object:
        status = client.get(POD_GROUPS, "new", namespace=_TEAM).get("status") or {}
        return [each["reason"] for each in status.get("conditions", ())]

    assert eventually(reason) == ["NoRoom"]


def test_a_queue_says_what_it_has_and_waits_for(client: Client, writer: StatusWriter) -> None:
    status = eventually(lambda: client.get(QUEUES, _QUEUE).get("status") or {})
    assert status["groups"] == {"pending": 1, "running": 1}
    assert status["resources"] == [
        {"deviceClass": "gpu", "allocated": 2, "fairShare": 2, "pending": 2}
    ]


def test_what_the_api_server_stores_is_as_desired(client: Client, writer: StatusWriter) -> None:
    """It drops fields that the schema does not have, and adds the defaults of others."""
    eventually(
        lambda: writer.backlog == 0 and all("status" in one for one in objects(client).values())
    )
    for target, body in objects(client).items():
        writer.observe(target, body)
        assert writer.backlog == 0, target

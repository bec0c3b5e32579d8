"""The writer of statuses, against the embedded API. Nodes stand for any object with a status."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from carina_dra.kube.api_resource import NODES, ApiResource
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client, MergePatch
from controller.observe.set_aside import SetAsideObjects
from controller.report.metrics import ControllerMetrics
from controller.report.status_writer import StatusTarget, StatusWriter
from simulation.api_server.api import Api, Observed
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually

NODE = StatusTarget(NODES, ObjectKey("", "n"))


def status(reason: str = "NoRoom", message: str = "", holds: str = "False") -> Body:
    condition = {"type": "Admitted", "status": holds, "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


@dataclass
class Cluster:
    """An API server with one node."""

    server: ApiServer
    client: Client
    writes: list[Observed] = field(default_factory=list)

    def status(self) -> Body:
        """The node's status, without times."""
        body = self.client.get(NODES, "n")
        found: Body = body.get("status") or {}
        for condition in found.get("conditions", ()):
            condition.pop("lastTransitionTime", None)
        return found

    def fail(self, code: int, reason: str, times: int = 1) -> None:
        failure = Failure(code, reason, "injected")
        self.server.api.faults.fail(failure, verb="patch", plural="nodes", times=times)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    writes: list[Observed] = []

    def observe(request: Observed) -> None:
        if request.verb == "patch":
            writes.append(request)

    with ApiServer(Api(on_request=observe)) as server, Client(server.connection) as client:
        client.create(NODES, {"metadata": {"name": "n"}})
        yield Cluster(server, client, writes)


@pytest.fixture
def metrics() -> ControllerMetrics:
    return ControllerMetrics()


@pytest.fixture
def writer(cluster: Cluster, metrics: ControllerMetrics) -> Iterator[StatusWriter]:
    with StatusWriter(cluster.client, metrics) as writer:
        yield writer


def show(cluster: Cluster, writer: StatusWriter) -> None:
    """Shows the writer the node, as a watch does."""
    writer.observe(NODE, cluster.client.get(NODES, "n"))


def test_a_status_is_written_once_the_object_was_seen(
    cluster: Cluster, writer: StatusWriter
) -> None:
    writer.want(NODE, status())
    assert writer.backlog == 0
    show(cluster, writer)
    eventually(lambda: cluster.status() == status())


def test_an_object_whose_status_cannot_be_made_keeps_no_other_from_its_own(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_aside = SetAsideObjects()
    patch = cluster.client.patch

    def patching(resource: ApiResource, name: str, *arguments: Any, **named: Any) -> Body:
        if name == "bad":
            raise RuntimeError("a defect")
        return patch(resource, name, *arguments, **named)

    monkeypatch.setattr(cluster.client, "patch", patching)
    with StatusWriter(cluster.client, ControllerMetrics(), set_aside=set_aside) as writer:
        bad = StatusTarget(NODES, ObjectKey("", "bad"))
        writer.observe(bad, {"metadata": {"name": "bad", "resourceVersion": "1"}})
        writer.want(bad, status())
        eventually(lambda: set_aside.counts() == {"nodes": 1})
        show(cluster, writer)
        writer.want(NODE, status())
        eventually(lambda: cluster.status() == status())
        assert writer.backlog == 1, "it is tried again after a while"


def test_writes_of_statuses_are_counted_by_their_outcome(
    cluster: Cluster, writer: StatusWriter, metrics: ControllerMetrics
) -> None:
    cluster.fail(500, "InternalError")
    writer.want(NODE, status())
    show(cluster, writer)
    written = b'carina_writes_total{kind="group_status",outcome="written"} 1.0'
    eventually(lambda: written in metrics.exposition())
    failed = b'carina_writes_total{kind="group_status",outcome="failed"} 1.0'
    assert failed in metrics.exposition()


def test_a_status_that_the_object_has_is_not_written(cluster: Cluster) -> None:
    with StatusWriter(cluster.client, ControllerMetrics()) as first:
        show(cluster, first)
        first.want(NODE, status())
    assert len(cluster.writes) == 1
    with StatusWriter(cluster.client, ControllerMetrics()) as second:
        show(cluster, second)
        second.want(NODE, status())
        assert second.backlog == 0
    assert len(cluster.writes) == 1


def test_an_old_version_from_the_watch_changes_nothing(
    cluster: Cluster, writer: StatusWriter
) -> None:
    before = cluster.client.get(NODES, "n")
    writer.observe(NODE, before)
    writer.want(NODE, status())
    eventually(lambda: cluster.writes)
    eventually(lambda: cluster.status() == status() and writer.backlog == 0)
    writer.observe(NODE, before)
    assert writer.backlog == 0


def test_what_another_has_written_is_corrected(cluster: Cluster, writer: StatusWriter) -> None:
    show(cluster, writer)
    writer.want(NODE, status())
    eventually(lambda: cluster.status() == status())
    cluster.client.patch(
        NODES, "n", MergePatch({"status": status("OverLimit")}), subresource="status"
    )
    show(cluster, writer)
    eventually(lambda: cluster.status() == status())


def test_the_last_of_many_values_is_written_within_two_seconds(
    cluster: Cluster, writer: StatusWriter
) -> None:
    show(cluster, writer)
    for index in range(100):
        writer.want(NODE, status(f"Reason{index}"))
    eventually(lambda: cluster.status() == status("Reason99"), within=2)
    assert len(cluster.writes) <= 3


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "Unavailable")],
)
def test_a_write_that_fails_is_repeated(
    cluster: Cluster, writer: StatusWriter, code: int, reason: str
) -> None:
    cluster.fail(code, reason)
    show(cluster, writer)
    writer.want(NODE, status())
    eventually(lambda: cluster.status() == status())


def test_a_value_survives_a_restart_of_the_api_server(
    cluster: Cluster, writer: StatusWriter
) -> None:
    show(cluster, writer)
    cluster.server.stop()
    writer.want(NODE, status())
    cluster.server.start()
    eventually(lambda: cluster.status() == status())


def test_an_object_that_is_gone_is_forgotten(cluster: Cluster, writer: StatusWriter) -> None:
    show(cluster, writer)
    cluster.client.delete(NODES, "n")
    writer.want(NODE, status())
    eventually(lambda: cluster.writes)
    cluster.client.create(NODES, {"metadata": {"name": "n"}})
    show(cluster, writer)
    assert writer.backlog == 0


def test_a_write_that_is_not_accepted_waits_for_a_minute(
    cluster: Cluster, writer: StatusWriter
) -> None:
    cluster.fail(422, "Invalid")
    show(cluster, writer)
    writer.want(NODE, status())
    eventually(lambda: cluster.writes)
    eventually(lambda: writer.backlog == 1)
    assert len(cluster.writes) == 1


def test_closing_writes_what_is_left(cluster: Cluster) -> None:
    with StatusWriter(cluster.client, ControllerMetrics()) as writer:
        show(cluster, writer)
        writer.want(NODE, status("First"))
        eventually(lambda: cluster.writes)
        writer.want(NODE, status("Last"))
    assert cluster.status() == status("Last")

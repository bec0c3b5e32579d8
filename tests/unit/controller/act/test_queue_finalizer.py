"""The finalizer of Queues, written to an API server."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.errors import NotFound
from controller.act.queue_finalizer import QueueFinalizers
from controller.names import QUEUE_FINALIZER, QUEUES
from controller.report.metrics import ControllerMetrics
from simulation.api_server.api import Api
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster with one Queue, and what watches it."""

    api: Api
    client: Client
    finalizers: QueueFinalizers

    def show(self) -> Body:
        """Shows the Queue, as a watch does."""
        body = self.client.get(QUEUES, "q")
        self.finalizers.observe("q", body)
        return body

    def finalizers_of_queue(self) -> list[str]:
        found: list[str] = self.client.get(QUEUES, "q")["metadata"].get("finalizers", [])
        return found

    def has_finalizer(self) -> bool:
        self.show()
        return QUEUE_FINALIZER in self.finalizers_of_queue()

    def is_gone(self) -> bool:
        try:
            self.show()
        except NotFound:
            return True
        return False


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        ApiServer(Api()) as server,
        Client(server.connection) as client,
        QueueFinalizers(client, ControllerMetrics()) as finalizers,
    ):
        metadata = {"name": "q", "finalizers": ["example.com/other"]}
        client.create(QUEUES, {"metadata": metadata, "spec": {}})
        yield Cluster(server.api, client, finalizers)


def test_a_queue_in_use_gets_the_finalizer_beside_others(cluster: Cluster) -> None:
    cluster.finalizers.want({"q"})
    eventually(cluster.has_finalizer)
    assert cluster.finalizers_of_queue() == ["example.com/other", QUEUE_FINALIZER]


def test_it_keeps_the_finalizer_when_nothing_uses_it_any_more(cluster: Cluster) -> None:
    cluster.finalizers.want({"q"})
    eventually(cluster.has_finalizer)
    cluster.finalizers.want(set())
    cluster.show()
    cluster.finalizers.close()
    assert cluster.has_finalizer()


def test_a_deleted_queue_loses_it_once_nothing_uses_it(cluster: Cluster) -> None:
    cluster.finalizers.want({"q"})
    eventually(cluster.has_finalizer)
    cluster.client.delete(QUEUES, "q")
    cluster.show()
    assert cluster.has_finalizer()

    cluster.finalizers.want(set())

    eventually(lambda: not cluster.has_finalizer())
    assert cluster.finalizers_of_queue() == ["example.com/other"]


def test_nothing_is_written_before_it_is_known_what_is_in_use(cluster: Cluster) -> None:
    cluster.finalizers.want({"q"})
    eventually(cluster.has_finalizer)
    cluster.client.delete(QUEUES, "q")
    with QueueFinalizers(cluster.client, ControllerMetrics()) as of_next_leader:
        of_next_leader.observe("q", cluster.client.get(QUEUES, "q"))
    assert QUEUE_FINALIZER in cluster.finalizers_of_queue()


def test_a_failure_is_tried_again(cluster: Cluster) -> None:
    failure = Failure(500, "InternalError", "injected")
    cluster.api.faults.fail(failure, verb="patch", plural="queues", times=2)
    cluster.finalizers.want({"q"})
    eventually(cluster.has_finalizer)


def test_others_are_written_before_a_queue_that_was_refused(cluster: Cluster) -> None:
    cluster.show()
    cluster.client.create(QUEUES, {"metadata": {"name": "other"}, "spec": {}})
    cluster.finalizers.observe("other", cluster.client.get(QUEUES, "other"))
    refused = Failure(403, "Forbidden", "injected")
    cluster.api.faults.fail(refused, verb="patch", plural="queues")
    cluster.finalizers.want({"q", "other"})
    eventually(lambda: QUEUE_FINALIZER in cluster.finalizers_of_queue())
    bodies = (cluster.client.get(QUEUES, name) for name in ("other", "q"))
    other, refused_first = (int(body["metadata"]["resourceVersion"]) for body in bodies)
    assert other < refused_first


def test_a_queue_that_was_seen_late_is_written_at_its_newer_version(cluster: Cluster) -> None:
    old = cluster.client.get(QUEUES, "q")
    cluster.client.replace(QUEUES, {**old, "spec": {"priority": 1}})
    cluster.finalizers.want({"q"})
    cluster.finalizers.observe("q", old)
    eventually(cluster.has_finalizer)


def test_a_queue_that_is_gone_is_not_written(cluster: Cluster) -> None:
    """Not even if another one of the same name is there, until it is seen."""
    cluster.show()
    cluster.finalizers.forget("q")
    cluster.client.create(QUEUES, {"metadata": {"name": "r"}, "spec": {}})
    cluster.finalizers.observe("r", cluster.client.get(QUEUES, "r"))
    cluster.finalizers.want({"q", "r"})
    eventually(lambda: "finalizers" in cluster.client.get(QUEUES, "r")["metadata"])
    assert cluster.finalizers_of_queue() == ["example.com/other"]


def test_a_deleted_queue_gets_no_finalizer_any_more(cluster: Cluster) -> None:
    """The API server would refuse it, and the writes for others would wait after that."""
    cluster.client.delete(QUEUES, "q")
    cluster.show()
    cluster.client.create(QUEUES, {"metadata": {"name": "r"}, "spec": {}})
    cluster.finalizers.observe("r", cluster.client.get(QUEUES, "r"))
    cluster.finalizers.want({"q", "r"})
    eventually(lambda: "finalizers" in cluster.client.get(QUEUES, "r")["metadata"])
    assert cluster.finalizers_of_queue() == ["example.com/other"]

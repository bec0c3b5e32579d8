"""What the watches say of resources that the API server does not serve."""

import logging
from collections.abc import Callable, Iterator

import pytest

from carina_dra.kube.api_resource import RESOURCE_SLICES
from carina_dra.kube.client import Client
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.run.watches import Watches
from simulation.api_server.api import Api, Observed
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually

NOT_SERVED = Failure(404, "", "404 page not found")


@pytest.fixture
def failed() -> list[str]:
    """The resources whose list has failed."""
    return []


@pytest.fixture
def server(failed: list[str]) -> Iterator[ApiServer]:
    def note(observed: Observed) -> None:
        if observed.code == 404:
            failed.append(observed.route.served.resource.plural)

    with ApiServer(Api(on_request=note)) as server:
        yield server


@pytest.fixture
def watch(server: ApiServer) -> Iterator[Callable[[], Watches]]:
    started: list[Watches] = []

    def start() -> Watches:
        started.append(Watches(client, Mirror(Snapshot(now=0)), lambda work: work()))
        started[-1].start()
        return started[-1]

    with Client(server.connection) as client:
        yield start
        for watches in started:
            watches.stop()


@pytest.mark.parametrize(
    ("plural", "resource", "remedy"),
    [
        (
            "queues",
            "queues.scheduling.carina.dev",
            (
                "install the CustomResourceDefinition queues.scheduling.carina.dev: "
                "kubectl apply -k deploy/"
            ),
        ),
        (
            "deviceclasses",
            "deviceclasses.resource.k8s.io",
            "serve resource.k8s.io/v1: Kubernetes 1.36 or later does by default",
        ),
    ],
)
def test_a_required_resource_that_is_not_served_is_named_with_the_remedy_now_and_then(
    server: ApiServer,
    watch: Callable[[], Watches],
    failed: list[str],
    caplog: pytest.LogCaptureFixture,
    plural: str,
    resource: str,
    remedy: str,
) -> None:
    server.api.faults.fail(NOT_SERVED, verb="list", plural=plural, times=1000)
    watches = watch()
    eventually(lambda: failed.count(plural) > 2)
    eventually(lambda: watches.unsynced() == [resource])
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.__dict__["resource"] == resource
    assert error.__dict__["remedy"] == remedy


def test_a_least_share_that_is_none_is_logged(
    server: ApiServer, watch: Callable[[], Watches], caplog: pytest.LogCaptureFixture
) -> None:
    device = {"name": "d", "attributes": {"type": {"string": "mig"}, "leastShare": {"int": 3}}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": [device]}
    with Client(server.connection) as client:
        client.create(RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec})
    watch()
    eventually(lambda: any("least share" in record.message for record in caplog.records))


def test_an_optional_resource_need_not_be_served(
    server: ApiServer, watch: Callable[[], Watches], caplog: pytest.LogCaptureFixture
) -> None:
    server.api.faults.fail(NOT_SERVED, verb="list", plural="devicetaintrules", times=1000)
    watches = watch()
    eventually(lambda: watches.unsynced() == [])
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]

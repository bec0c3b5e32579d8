"""A 404 for the path is a failure to be retried: nobody takes it for a missing object."""

import threading
from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import EVENTS, LEASES
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.event import EventType, ObjectReference, ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.kube.lease import LeaderElector, LeadershipEnd
from simulation.api_server.api import Api, Observed
from simulation.api_server.failure import no_such_path
from simulation.api_server.server import ApiServer
from tests.eventually import eventually

POD = ObjectReference("v1", "Pod", "sample", "default")


@pytest.fixture
def requests() -> list[Observed]:
    return []


@pytest.fixture
def server(requests: list[Observed]) -> Iterator[ApiServer]:
    with ApiServer(Api(on_request=requests.append)) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(server.connection) as client:
        yield client


def test_a_lease_is_created_only_where_it_is_missing(
    server: ApiServer, client: Client, requests: list[Observed]
) -> None:
    server.api.faults.fail(no_such_path(), verb="get", plural=LEASES.plural)
    elector = LeaderElector(client, ObjectKey("default", "controller"), "first")
    stopping = threading.Event()
    stopping.set()
    assert elector.run(lambda stop: None, stopping) is LeadershipEnd.STOPPED
    assert [request.verb for request in requests] == ["get"]


def test_a_series_goes_on_in_its_event(server: ApiServer, client: Client) -> None:
    def events() -> list[int]:
        items = client.list(EVENTS, Selection("default")).items
        return [item.get("series", {}).get("count", 1) for item in items]

    with EventRecorder(client, ReportingController("example.com/test", "here")) as recorder:
        recorder.record(POD, EventType.WARNING, "Broken", "it is broken", action="Look")
        eventually(events)
        server.api.faults.fail(no_such_path(), verb="patch", plural=EVENTS.plural)
        recorder.record(POD, EventType.WARNING, "Broken", "it is broken", action="Look")
        eventually(lambda: events() == [2])
        assert recorder.dropped == 0
    assert events() == [2]

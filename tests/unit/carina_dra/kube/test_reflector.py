"""What a reflector does where a server misbehaves: seen on the embedded API, with its faults."""

import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.kube import client as kube_client
from carina_dra.kube.api_resource import CONFIG_MAPS
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, ObjectKey, key_of
from carina_dra.kube.client import Client
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import ObjectChange
from simulation.api_server.api import Api, Observed
from simulation.api_server.failure import Failure, expired
from simulation.api_server.server import ApiServer
from tests.eventually import eventually

UNAVAILABLE = Failure(503, "ServiceUnavailable", "starting up")


class RecordedBackoff(Backoff):
    """Says which delays it would have been, and does not wait."""

    def __init__(self) -> None:
        super().__init__(initial=1.0, cap=8.0, jitter=0.0)
        self.delays: list[float] = []

    def next(self) -> float:
        self.delays.append(super().next())
        return 0.0


@pytest.fixture
def requests() -> list[str]:
    return []


@pytest.fixture
def server(requests: list[str]) -> Iterator[ApiServer]:
    def note(observed: Observed) -> None:
        requests.append(f"{observed.verb} {observed.code}")

    with ApiServer(Api(on_request=note)) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(server.connection) as client:
        yield client


@pytest.fixture
def backoff() -> RecordedBackoff:
    return RecordedBackoff()


@pytest.fixture
def reflector(client: Client, backoff: RecordedBackoff) -> Iterator[Reflector[str]]:
    reflector = Reflector(client, CONFIG_MAPS, lambda body: "seen", backoff=backoff)
    yield reflector
    reflector.stop()


def make(client: Client, name: str) -> None:
    client.create(CONFIG_MAPS, {"metadata": {"namespace": "default", "name": name}})


def test_it_waits_longer_after_each_failure(
    server: ApiServer, reflector: Reflector[str], backoff: RecordedBackoff
) -> None:
    server.api.faults.fail(UNAVAILABLE, verb="list", times=5)
    reflector.start()
    assert reflector.wait_synced(10)
    assert backoff.delays == [1.0, 2.0, 4.0, 8.0, 8.0]


def test_progress_makes_it_wait_less_again(
    server: ApiServer, client: Client, reflector: Reflector[str], backoff: RecordedBackoff
) -> None:
    server.api.faults.fail(UNAVAILABLE, verb="list", times=3)
    reflector.start()
    assert reflector.wait_synced(10)
    make(client, "a")
    eventually(lambda: len(reflector.store) == 1)
    server.api.end_streams()
    eventually(lambda: len(backoff.delays) == 4)
    assert backoff.delays[-1] == 1.0


def test_it_waits_after_a_stream_that_ended_well_too(
    server: ApiServer, reflector: Reflector[str], requests: list[str], backoff: RecordedBackoff
) -> None:
    reflector.start()
    assert reflector.wait_synced(10)

    def streams_ended() -> int:
        server.api.end_streams()
        return len(backoff.delays)

    eventually(lambda: streams_ended() >= 3)
    assert backoff.delays[:3] == [1.0, 2.0, 4.0]
    assert requests.count("list 200") == 1


def test_a_version_that_is_gone_leads_to_a_new_list(
    server: ApiServer, client: Client, reflector: Reflector[str], requests: list[str]
) -> None:
    reflector.start()
    assert reflector.wait_synced(10)
    server.api.faults.fail(expired("too old resource version"), verb="watch")
    server.api.end_streams()
    eventually(lambda: requests.count("list 200") == 2)
    make(client, "a")
    eventually(lambda: reflector.store.get(ObjectKey("default", "a")) == "seen")


def test_pages_that_expire_are_read_again_in_one_piece(
    server: ApiServer, client: Client, requests: list[str]
) -> None:
    for name in ("a", "b", "c"):
        make(client, name)
    requests.clear()
    server.api.faults.fail(expired("The provided continue parameter is too old"), verb="list")
    assert len(client.list(CONFIG_MAPS, page_size=1).items) == 3
    assert requests == ["list 410", "list 200"]


def test_only_the_bodies_of_one_page_are_kept_at_a_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tracked(dict[str, Any]):
        """A body that says whether it is still kept."""

        def __hash__(self) -> int:  # type: ignore[override]
            return id(self)

    living: weakref.WeakSet[Tracked] = weakref.WeakSet()
    most = 0

    def parse_json(content: bytes) -> Any:
        nonlocal most
        page = json.loads(content)
        page["items"] = [Tracked(item) for item in page["items"]]
        living.update(page["items"])
        most = max(most, len(living))
        return page

    for name in ("a", "b", "c", "d", "e", "f"):
        make(client, name)
    monkeypatch.setattr(kube_client, "parse_json", parse_json)
    listing = client.list_as(CONFIG_MAPS, lambda body: str(key_of(body)), page_size=2)
    assert listing.items == [f"default/{name}" for name in "abcdef"]
    assert most == 2


def test_a_list_that_begins_again_has_each_object_once(
    server: ApiServer, client: Client, reflector: Reflector[str]
) -> None:
    for name in ("a", "b", "c"):
        make(client, name)
    seen: list[str] = []

    def read(body: Body) -> str:
        seen.append(body["metadata"]["name"])
        if seen == ["a"]:  # the next page
            server.api.faults.fail(expired("The provided continue parameter is too old"))
        return seen[-1]

    assert client.list_as(CONFIG_MAPS, read, page_size=1).items == ["a", "b", "c"]
    assert seen == ["a", "a", "b", "c"]


def test_a_server_restored_from_a_backup_is_listed_again(
    server: ApiServer, client: Client, reflector: Reflector[str], requests: list[str]
) -> None:
    for name in ("a", "b", "c"):
        make(client, name)
    reflector.start()
    eventually(lambda: len(reflector.store) == 3)
    server.stop()
    server.api = Api()  # nothing in it, and its versions begin anew
    server.start()
    make(client, "d")
    eventually(lambda: list(reflector.store.snapshot()) == [ObjectKey("default", "d")])


def test_the_collector_is_paused_while_a_list_is_reported_and_not_later(client: Client) -> None:
    enabled: list[bool] = []

    def note(_: ObjectChange[str]) -> None:
        enabled.append(gc.isenabled())

    make(client, "a")
    reflector = Reflector(client, CONFIG_MAPS, lambda body: "seen", on_change=note)
    reflector.start()
    try:
        assert reflector.wait_synced(10)
        assert enabled == [False]
        make(client, "b")
        eventually(lambda: enabled == [False, True])
    finally:
        reflector.stop()

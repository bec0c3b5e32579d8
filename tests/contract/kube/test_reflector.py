"""The reflector: its store becomes, and stays, what the API server has, whatever happens."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from carina_dra.kube.api_resource import CONFIG_MAPS, EVENTS, ApiResource
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client, MergePatch, Selection
from carina_dra.kube.event import (
    EventType,
    ObjectReference,
    Occurrence,
    ReportingController,
    event_body,
)
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from tests.contract.kube.backend import Backend, ThroughProxy
from tests.contract.kube.proxy import Proxy
from tests.eventually import eventually
from tests.samples.objects import config_map

MINE = "contract=yes"


def color(body: Body) -> str:
    found: str = body["data"]["color"]
    return found


@dataclass
class Mirror:
    """What the reported changes add up to. A change that cannot follow on the last fails."""

    known: dict[ObjectKey, object] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)

    def take(self, change: ObjectChange[str]) -> None:
        self.reported.append(f"{type(change).__name__} {change.key.name}")
        match change:
            case Created(key, value):
                assert key not in self.known
                self.known[key] = value
            case Updated(key, before, after):
                assert self.known[key] == before
                self.known[key] = after
            case Removed(key, value):
                assert self.known.pop(key) == value


@contextmanager
def following(
    client: Client,
    selection: Selection,
    *,
    resource: ApiResource = CONFIG_MAPS,
    parse: Callable[[Body], str] = color,
    mirror: Mirror | None = None,
) -> Iterator[Reflector[str]]:
    reflector = Reflector(
        client,
        resource,
        parse,
        selection=selection,
        on_change=(mirror or Mirror()).take,
        backoff=Backoff(initial=0.01, cap=0.1),
    )
    reflector.start()
    try:
        yield reflector
    finally:
        reflector.stop()


def create(api: Client, namespace: str, name: str, own_color: str = "blue") -> None:
    body = config_map(namespace, name, labels={"contract": "yes"})
    api.create(CONFIG_MAPS, body | {"data": {"color": own_color}})


def paint(api: Client, namespace: str, name: str, new_color: str) -> None:
    api.patch(CONFIG_MAPS, name, MergePatch({"data": {"color": new_color}}), namespace=namespace)


def cut(proxy: Proxy) -> None:
    """Cuts the connections and waits for the client to come back."""
    accepted = proxy.accepted
    proxy.cut()
    eventually(lambda: proxy.accepted > accepted)


def present(api: Client, selection: Selection) -> dict[ObjectKey, str]:
    items = api.list(CONFIG_MAPS, selection).items
    return {ObjectKey(i["metadata"]["namespace"], i["metadata"]["name"]): color(i) for i in items}


def test_the_first_list_is_reported_before_it_is_synced(api: Client, namespace: str) -> None:
    create(api, namespace, "a")
    create(api, namespace, "b", "red")
    mirror = Mirror()
    with following(api, Selection(namespace, labels=MINE), mirror=mirror) as reflector:
        assert reflector.wait_synced(10)
        assert sorted(mirror.reported) == ["Created a", "Created b"]
        assert reflector.store.get(ObjectKey(namespace, "a")) == "blue"
        assert reflector.store.get(ObjectKey(namespace, "b")) == "red"


def test_changes_are_followed(api: Client, namespace: str) -> None:
    mirror = Mirror()
    with following(api, Selection(namespace, labels=MINE), mirror=mirror) as reflector:
        assert reflector.wait_synced(10)
        create(api, namespace, "a")
        paint(api, namespace, "a", "red")
        api.delete(CONFIG_MAPS, "a", namespace=namespace)
        eventually(lambda: len(mirror.reported) == 3)
        assert mirror.reported == ["Created a", "Updated a", "Removed a"]
        assert len(reflector.store) == 0


def test_it_converges_though_its_connections_break(
    api: Client, disturbed: ThroughProxy, namespace: str
) -> None:
    draw = random.Random(7)
    selection = Selection(namespace, labels=MINE)
    mirror = Mirror()
    names: set[str] = set()
    with following(disturbed.client, selection, mirror=mirror) as reflector:
        for step in range(120):
            name = f"sample-{draw.randrange(8)}"
            if name not in names:
                create(api, namespace, name, str(step))
                names.add(name)
            elif draw.random() < 0.3:
                api.delete(CONFIG_MAPS, name, namespace=namespace)
                names.remove(name)
            else:
                paint(api, namespace, name, str(step))
            if step % 10 == 0:
                cut(disturbed.proxy)
        expected = present(api, selection)
        eventually(lambda: reflector.store.snapshot() == expected)
        eventually(lambda: mirror.known == expected)


def test_what_changed_while_it_was_away_is_reported_once_it_is_back(
    backend: Backend, api: Client, disturbed: ThroughProxy, namespace: str
) -> None:
    def record(name: str) -> Body:
        regarding = ObjectReference("v1", "Pod", name, namespace)
        occurrence = Occurrence(regarding, EventType.NORMAL, "Seen", "Look", "blue")
        body = event_body(
            occurrence, ReportingController("example.com/contract", "here"), time.time()
        )
        body["metadata"]["name"] = name
        return api.create(EVENTS, body)

    def recount(name: str) -> None:
        series = {"count": 2, "lastObservedTime": "2026-11-20T00:00:00.000000Z"}
        api.patch(EVENTS, name, MergePatch({"series": series}), namespace=namespace)

    for name in ("stays", "changes", "goes"):
        record(name)
    mirror = Mirror()
    with following(
        disturbed.client,
        Selection(namespace),
        resource=EVENTS,
        parse=lambda body: str(body.get("series", {}).get("count", 1)),
        mirror=mirror,
    ) as reflector:
        assert reflector.wait_synced(10)
        mirror.reported.clear()
        disturbed.proxy.refuse()
        recount("changes")
        api.delete(EVENTS, "goes", namespace=namespace)
        record("comes")
        backend.forget_history()
        disturbed.proxy.recover()
        eventually(lambda: len(mirror.reported) >= 3)
    assert sorted(mirror.reported) == ["Created comes", "Removed goes", "Updated changes"]


def test_what_cannot_be_parsed_is_left_out_and_ends_nothing(api: Client, namespace: str) -> None:
    bad = config_map(namespace, "bad", labels={"contract": "yes"}) | {"data": {}}
    api.create(CONFIG_MAPS, bad)
    create(api, namespace, "good")
    with following(api, Selection(namespace, labels=MINE)) as reflector:
        assert reflector.wait_synced(10)
        assert list(reflector.store.snapshot()) == [ObjectKey(namespace, "good")]
        paint(api, namespace, "bad", "red")
        eventually(lambda: reflector.store.get(ObjectKey(namespace, "bad")) == "red")

        api.patch(CONFIG_MAPS, "bad", MergePatch({"data": {"color": None}}), namespace=namespace)
        paint(api, namespace, "good", "green")
        eventually(lambda: reflector.store.get(ObjectKey(namespace, "good")) == "green")
        # The last that could be read stays: to leave it out would look like its deletion.
        assert reflector.store.get(ObjectKey(namespace, "bad")) == "red"


def test_a_reaction_that_fails_does_not_keep_the_next_from_being_reported(
    api: Client, namespace: str
) -> None:
    reported: list[str] = []

    class Failing(Mirror):
        def take(self, change: ObjectChange[str]) -> None:
            reported.append(change.key.name)
            raise ValueError("a bug")

    with following(api, Selection(namespace, labels=MINE), mirror=Failing()) as reflector:
        assert reflector.wait_synced(10)
        create(api, namespace, "a")
        create(api, namespace, "b")
        eventually(lambda: reported == ["a", "b"])


def test_it_stops_at_once(api: Client, namespace: str) -> None:
    with following(api, Selection(namespace, labels=MINE)) as reflector:
        create(api, namespace, "a")
        eventually(lambda: len(reflector.store) == 1)
        began = time.monotonic()
        reflector.stop(timeout=60)
        assert time.monotonic() - began < 60 / 10
    create(api, namespace, "b")
    assert len(reflector.store) == 1


def test_it_waits_for_a_server_that_is_not_there_yet(
    api: Client, disturbed: ThroughProxy, namespace: str
) -> None:
    disturbed.proxy.refuse()
    create(api, namespace, "a")
    with following(disturbed.client, Selection(namespace, labels=MINE)) as reflector:
        eventually(lambda: disturbed.proxy.accepted > 2)
        assert not reflector.synced
        disturbed.proxy.recover()
        assert reflector.wait_synced(10)
        assert len(reflector.store) == 1

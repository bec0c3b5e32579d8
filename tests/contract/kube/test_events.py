"""Events: users find them with the object, repetitions are one, and nothing waits for them."""

from threading import get_ident
from typing import Any

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, EVENTS, ApiResource, Scope
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.event import EventType, ObjectReference, ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from tests.contract.kube.backend import ThroughProxy
from tests.eventually import eventually
from tests.samples.objects import config_map

REPORTER = ReportingController("example.com/contract", "here")
CORE_EVENTS = ApiResource("", "v1", "events", "Event", Scope.NAMESPACED)


def warn(recorder: EventRecorder, about: ObjectReference, note: str = "it is broken") -> None:
    recorder.record(about, EventType.WARNING, "Broken", note, action="Look")


def reference_to(body: Body) -> ObjectReference:
    metadata = body["metadata"]
    return ObjectReference(
        body["apiVersion"], body["kind"], metadata["name"], metadata["namespace"], metadata["uid"]
    )


def recorded(api: Client, namespace: str) -> list[Body]:
    selection = Selection(namespace, fields="reportingController=example.com/contract")
    return api.list(EVENTS, selection).items


def test_an_event_says_what_happened_to_which_object(api: Client, namespace: str) -> None:
    subject = api.create(CONFIG_MAPS, config_map(namespace))
    about = reference_to(subject)
    with EventRecorder(api, REPORTER) as recorder:
        warn(recorder, about)
    (event,) = recorded(api, namespace)
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": namespace,
        "name": "sample",
        "uid": subject["metadata"]["uid"],
    }
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "Broken", "Look")
    assert event["note"] == "it is broken"
    assert event["metadata"]["name"].startswith("sample.")
    assert "series" not in event


def test_kubectl_finds_it_by_its_object(api: Client, namespace: str) -> None:
    about = reference_to(api.create(CONFIG_MAPS, config_map(namespace)))
    with EventRecorder(api, REPORTER) as recorder:
        warn(recorder, about)
    fields = f"involvedObject.name=sample,involvedObject.uid={about.uid}"
    (event,) = api.list(CORE_EVENTS, Selection(namespace, fields=fields)).items
    assert event["message"] == "it is broken"
    assert event["reportingComponent"] == "example.com/contract"


def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace(
    api: Client, namespace: str
) -> None:
    with EventRecorder(api, REPORTER) as recorder:
        warn(recorder, ObjectReference("v1", "Node", f"node-of-{namespace}"))
    fields = f"regarding.name=node-of-{namespace}"
    assert len(api.list(EVENTS, Selection("default", fields=fields)).items) == 1


def test_the_same_again_is_a_series(api: Client, namespace: str) -> None:
    about = ObjectReference("v1", "Pod", "sample", namespace)
    with EventRecorder(api, REPORTER) as recorder:
        warn(recorder, about)
        eventually(lambda: recorded(api, namespace))
        warn(recorder, about)
        eventually(lambda: recorded(api, namespace)[0].get("series", {}).get("count") == 2)
        for _ in range(5):
            warn(recorder, about)
        warn(recorder, about, "and now this")
    events = {event["note"]: event for event in recorded(api, namespace)}
    assert events.keys() == {"it is broken", "and now this"}
    assert events["it is broken"]["series"]["count"] == 7
    assert "series" not in events["and now this"]


def test_a_note_is_cut_to_what_the_api_allows(api: Client, namespace: str) -> None:
    with EventRecorder(api, REPORTER) as recorder:
        warn(recorder, ObjectReference("v1", "Pod", "sample", namespace), "ä" * 2000)
    (event,) = recorded(api, namespace)
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ä…")


def test_a_server_that_is_away_gets_them_later(
    api: Client, disturbed: ThroughProxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = ObjectReference("v1", "Pod", "sample", namespace)
    create, writers = disturbed.client.create, set[int]()

    def noted(*arguments: Any, **options: Any) -> Body:
        writers.add(get_ident())
        return create(*arguments, **options)

    monkeypatch.setattr(disturbed.client, "create", noted)
    disturbed.proxy.refuse()
    with EventRecorder(disturbed.client, REPORTER) as recorder:
        warn(recorder, about)
        eventually(lambda: disturbed.proxy.accepted)
        assert writers
        assert get_ident() not in writers, "whoever records an event waits for no server"
        disturbed.proxy.recover()
        eventually(lambda: recorded(api, namespace))
        assert recorder.dropped == 0


def test_what_can_never_be_written_is_dropped_and_counted(api: Client, namespace: str) -> None:
    with EventRecorder(api, REPORTER) as recorder:
        warn(recorder, ObjectReference("v1", "Pod", "sample", "no-such-namespace"))
        warn(recorder, ObjectReference("v1", "Pod", "sample", namespace))
    assert recorder.dropped == 1
    assert len(recorded(api, namespace)) == 1


def test_a_closed_recorder_takes_no_more(api: Client, namespace: str) -> None:
    recorder = EventRecorder(api, REPORTER)
    recorder.close()
    warn(recorder, ObjectReference("v1", "Pod", "sample", namespace))
    assert recorder.dropped == 1
    assert recorded(api, namespace) == []

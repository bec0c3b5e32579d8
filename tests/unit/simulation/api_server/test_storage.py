import pytest

from carina_dra.kube.body import Body, ObjectKey
from simulation.api_server.failure import Failure
from simulation.api_server.storage import Storage

A, B = ObjectKey("team", "a"), ObjectKey("team", "b")


def body(value: str) -> Body:
    return {"metadata": {}, "value": value}


def values(storage: Storage, revision: int | None = None) -> dict[str, str]:
    return {key.name: body["value"] for key, body in storage.objects("things", revision)}


def test_every_change_has_the_next_revision() -> None:
    storage = Storage()
    first = storage.put("things", A, body("1"))
    second = storage.put("others", A, body("2"))
    removed = storage.remove("things", A)
    versions = [int(b["metadata"]["resourceVersion"]) for b in (first, second, removed)]
    assert versions == [2, 3, 4]
    assert storage.revision == 4


def test_the_past_can_be_listed() -> None:
    storage = Storage()
    storage.put("things", A, body("1"))
    before = storage.revision
    storage.put("things", B, body("2"))
    storage.put("things", A, body("3"))
    between = storage.revision
    storage.remove("things", A)
    assert values(storage, before) == {"a": "1"}
    assert values(storage, between) == {"a": "3", "b": "2"}
    assert values(storage) == {"b": "2"}


def test_changes_since_a_revision_are_reported_in_order() -> None:
    storage = Storage()
    storage.put("things", A, body("1"))
    revision = storage.revision
    storage.put("things", A, body("2"))
    storage.remove("things", A)
    assert [
        (change.before and change.before["value"], change.after and change.after["value"])
        for change in storage.since(revision)
    ] == [("1", "2"), ("2", None)]
    assert storage.since(storage.revision) == []


def test_a_revision_from_before_the_history_is_refused() -> None:
    storage = Storage(history=2)
    for value in ("1", "2", "3"):
        storage.put("things", A, body(value))
    assert storage.oldest == 2
    assert len(storage.since(2)) == 2
    with pytest.raises(Failure, match="too old resource version: 1"):
        storage.since(1)
    storage.forget()
    assert storage.since(storage.revision) == []
    with pytest.raises(Failure):
        storage.objects("things", storage.revision - 1)

from typing import Any

import pytest

from carina_dra.kube.body import Body
from simulation.api_server.apply import FieldConflict, Manager, applied, leaves, owned, updated

ALICE, BOB = Manager("alice", "Apply"), Manager("bob", "Apply")
EDITOR = Manager("editor", "Update")
NOON, LATER = "2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z"


def pod(**spec: Any) -> Body:
    metadata = {"name": "p", "namespace": "team"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def containers(**images: str) -> list[Body]:
    return [{"name": name, "image": image} for name, image in images.items()]


def apply(
    current: Body | None, configuration: Body, manager: Manager, *, force: bool = False
) -> Body:
    return applied(current, configuration, manager, force=force, time=NOON)


def test_the_fields_of_an_object() -> None:
    body = pod(nodeName="n1", containers=containers(a="one"), tolerations=[{"key": "x"}])
    assert leaves(body) == {
        ("f:spec", "f:nodeName"): "n1",
        ("f:spec", "f:containers", 'k:{"name":"a"}', "."): None,
        ("f:spec", "f:containers", 'k:{"name":"a"}', "f:name"): "a",
        ("f:spec", "f:containers", 'k:{"name":"a"}', "f:image"): "one",
        ("f:spec", "f:tolerations"): [{"key": "x"}],
    }


def test_ownership_is_written_as_fields_v1() -> None:
    body = apply(None, pod(nodeName="n1", containers=containers(a="one")), ALICE)
    (entry,) = body["metadata"]["managedFields"]
    assert entry == {
        "manager": "alice",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": NOON,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:spec": {
                "f:nodeName": {},
                "f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}}},
            }
        },
    }
    assert owned(body)[ALICE] == frozenset(leaves(body))


def test_each_owns_its_items_of_a_keyed_list() -> None:
    body = apply(None, pod(containers=containers(a="one")), ALICE)
    body = apply(body, pod(containers=containers(b="two")), BOB)
    assert body["spec"]["containers"] == containers(a="one", b="two")
    body = apply(body, pod(), ALICE)
    assert body["spec"]["containers"] == containers(b="two")
    body = apply(body, pod(), BOB)
    assert "spec" not in body


def test_a_conflict_names_the_field_and_its_owner() -> None:
    body = apply(None, pod(nodeName="n1"), ALICE)
    with pytest.raises(FieldConflict) as conflict:
        apply(body, pod(nodeName="n2"), BOB)
    assert conflict.value.owners == {("f:spec", "f:nodeName"): "alice"}


def test_force_takes_a_field_from_its_owner() -> None:
    body = apply(None, pod(nodeName="n1", hostname="h"), ALICE)
    body = apply(body, pod(nodeName="n2"), BOB, force=True)
    assert body["spec"] == {"nodeName": "n2", "hostname": "h"}
    assert owned(body)[ALICE] == {("f:spec", "f:hostname")}


def test_what_a_plain_write_changes_is_its_writers() -> None:
    body = apply(None, pod(nodeName="n1", hostname="h"), ALICE)
    after = body | {"spec": {"nodeName": "n2"}}
    body = updated(body, after, EDITOR, time=LATER)
    assert owned(body) == {EDITOR: {("f:spec", "f:nodeName")}}


def test_time_tells_when_ownership_last_changed() -> None:
    body = apply(None, pod(nodeName="n1"), ALICE)
    body = updated(body, body | {"spec": {"nodeName": "n1", "hostname": "h"}}, EDITOR, time=LATER)
    times = {entry["manager"]: entry["time"] for entry in body["metadata"]["managedFields"]}
    assert times == {"alice": NOON, "editor": LATER}

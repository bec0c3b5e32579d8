"""The four kinds of patch, and who owns a field under server-side apply."""

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, NODES, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import (
    ApplyPatch,
    Client,
    JsonPatch,
    MergePatch,
    Patch,
    StrategicMergePatch,
)
from carina_dra.kube.errors import Conflict, Invalid, NotFound
from tests.samples.objects import allocation, config_map, resource_claim


def patched(api: Client, namespace: str, patch: Patch) -> Body:
    return api.patch(CONFIG_MAPS, "sample", patch, namespace=namespace)


def applied(api: Client, namespace: str, manager: str, data: Body, **options: bool) -> Body:
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": "sample"},
        "data": data,
    }
    return patched(api, namespace, ApplyPatch(configuration, manager, **options))


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({"data": {"size": "1"}}, {"color": "blue", "size": "1"}),
        ({"data": {"color": "red"}}, {"color": "red"}),
        ({"data": {"color": None, "size": "1"}}, {"size": "1"}),
        ({}, {"color": "blue"}),
    ],
)
def test_merge_patch(api: Client, namespace: str, changes: Body, data: Body) -> None:
    api.create(CONFIG_MAPS, config_map(namespace))
    assert patched(api, namespace, MergePatch(changes))["data"] == data


def test_merge_patch_replaces_lists_and_strategic_merge_patch_merges_them(
    api: Client, namespace: str
) -> None:
    name = f"{namespace}-node"
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
    change = {"status": {"conditions": [{"type": "B", "status": "False"}]}}

    def after(patch: Patch) -> dict[str, str]:
        api.create(NODES, {"metadata": {"name": name}, "status": {"conditions": conditions}})
        node = api.patch(NODES, name, patch, subresource="status")
        api.delete(NODES, name)
        return {c["type"]: c["status"] for c in node["status"]["conditions"]}

    assert after(MergePatch(change)) == {"B": "False"}
    assert after(StrategicMergePatch(change)) == {"A": "True", "B": "False"}


@pytest.mark.parametrize(
    ("operations", "data"),
    [
        ([{"op": "add", "path": "/data/size", "value": "1"}], {"color": "blue", "size": "1"}),
        ([{"op": "replace", "path": "/data/color", "value": "red"}], {"color": "red"}),
        ([{"op": "remove", "path": "/data/color"}], {}),
        ([{"op": "move", "from": "/data/color", "path": "/data/paint"}], {"paint": "blue"}),
        (
            [{"op": "copy", "from": "/data/color", "path": "/data/paint"}],
            {"color": "blue", "paint": "blue"},
        ),
        (
            [
                {"op": "test", "path": "/data/color", "value": "blue"},
                {"op": "replace", "path": "/data", "value": {"size": "1"}},
            ],
            {"size": "1"},
        ),
    ],
)
def test_json_patch(api: Client, namespace: str, operations: list[Body], data: Body) -> None:
    api.create(CONFIG_MAPS, config_map(namespace))
    assert patched(api, namespace, JsonPatch(operations)).get("data", {}) == data


def test_a_slash_in_a_key_is_escaped_in_a_json_patch(api: Client, namespace: str) -> None:
    api.create(CONFIG_MAPS, config_map(namespace, labels={"example.com/a": "1"}))
    change = JsonPatch([{"op": "replace", "path": "/metadata/labels/example.com~1a", "value": "2"}])
    assert patched(api, namespace, change)["metadata"]["labels"] == {"example.com/a": "2"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/color", "value": "red"},
        {"op": "remove", "path": "/data/size"},
    ],
    ids=["test of another value", "remove what is not there"],
)
def test_a_json_patch_that_does_not_fit_changes_nothing(
    api: Client, namespace: str, operation: Body
) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))
    first = {"op": "add", "path": "/data/first", "value": "1"}
    with pytest.raises(Invalid):
        patched(api, namespace, JsonPatch([first, operation]))
    assert api.get(CONFIG_MAPS, "sample", namespace=namespace) == created


def test_a_patch_may_be_of_one_version_only(api: Client, namespace: str) -> None:
    version = api.create(CONFIG_MAPS, config_map(namespace))["metadata"]["resourceVersion"]
    change = MergePatch({"metadata": {"resourceVersion": version}, "data": {"color": "red"}})
    patched(api, namespace, change)
    with pytest.raises(Conflict):
        patched(api, namespace, change)


def test_only_what_is_there_can_be_patched(api: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        patched(api, namespace, MergePatch({"data": {}}))


def test_a_patch_of_the_status_changes_nothing_else(api: Client, namespace: str) -> None:
    api.create(RESOURCE_CLAIMS, resource_claim(namespace))
    change = MergePatch(
        {"metadata": {"labels": {"a": "b"}}, "status": {"allocation": allocation("n1")}}
    )
    claim = api.patch(RESOURCE_CLAIMS, "claim", change, namespace=namespace, subresource="status")
    assert claim["status"]["allocation"] == allocation("n1")
    assert "labels" not in claim["metadata"]


class TestServerSideApply:
    def test_creates_what_is_not_there(self, api: Client, namespace: str) -> None:
        body = applied(api, namespace, "alice", {"color": "blue"})
        assert body["metadata"]["uid"]
        assert body["data"] == {"color": "blue"}

    def test_managers_of_different_fields_do_not_meet(self, api: Client, namespace: str) -> None:
        applied(api, namespace, "alice", {"color": "blue"})
        body = applied(api, namespace, "bob", {"size": "1"})
        assert body["data"] == {"color": "blue", "size": "1"}

    def test_a_field_of_another_is_a_conflict(self, api: Client, namespace: str) -> None:
        applied(api, namespace, "alice", {"color": "blue"})
        with pytest.raises(Conflict, match=r'"alice".*\.data\.color'):
            applied(api, namespace, "bob", {"color": "red"})

    def test_unless_both_want_the_same(self, api: Client, namespace: str) -> None:
        applied(api, namespace, "alice", {"color": "blue"})
        applied(api, namespace, "bob", {"color": "blue"})
        body = applied(api, namespace, "alice", {})
        assert body["data"] == {"color": "blue"}

    def test_or_it_is_taken_by_force(self, api: Client, namespace: str) -> None:
        applied(api, namespace, "alice", {"color": "blue"})
        body = applied(api, namespace, "bob", {"color": "red"}, force=True)
        assert body["data"] == {"color": "red"}
        with pytest.raises(Conflict, match='"bob"'):
            applied(api, namespace, "alice", {"color": "blue"})

    def test_what_a_manager_no_longer_wants_goes(self, api: Client, namespace: str) -> None:
        applied(api, namespace, "alice", {"color": "blue", "size": "1"})
        body = applied(api, namespace, "alice", {"color": "blue"})
        assert body["data"] == {"color": "blue"}

    def test_what_was_written_plainly_is_owned_too(self, api: Client, namespace: str) -> None:
        applied(api, namespace, "alice", {"color": "blue"})
        patched(api, namespace, MergePatch({"data": {"color": "red"}}))
        with pytest.raises(Conflict, match='"contract"'):
            applied(api, namespace, "alice", {"color": "blue"})

    def test_applying_the_same_again_keeps_the_version(self, api: Client, namespace: str) -> None:
        first = applied(api, namespace, "alice", {"color": "blue"})
        again = applied(api, namespace, "alice", {"color": "blue"})
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    def test_items_of_a_keyed_list_have_owners_of_their_own(
        self, api: Client, namespace: str
    ) -> None:
        claim = api.create(RESOURCE_CLAIMS, resource_claim(namespace))
        claim["status"] = {"allocation": allocation("n1")}
        api.replace_status(RESOURCE_CLAIMS, claim)

        def reserve(manager: str, uid: str) -> list[str]:
            consumer = {"resource": "pods", "name": manager, "uid": uid}
            configuration = {
                "apiVersion": RESOURCE_CLAIMS.api_version,
                "kind": RESOURCE_CLAIMS.kind,
                "metadata": {"namespace": namespace, "name": "claim"},
                "status": {"reservedFor": [consumer]},
            }
            body = api.patch(
                RESOURCE_CLAIMS,
                "claim",
                ApplyPatch(configuration, manager),
                namespace=namespace,
                subresource="status",
            )
            return [consumer["name"] for consumer in body["status"]["reservedFor"]]

        assert reserve("alice", "uid-a") == ["alice"]
        assert reserve("bob", "uid-b") == ["alice", "bob"]

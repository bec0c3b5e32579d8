"""Merge patches and JSON patches."""

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import (
    Client,
    JsonPatch,
    MergePatch,
    Patch,
)
from carina_dra.kube.errors import Conflict, Invalid, NotFound
from tests.samples.objects import allocation, config_map, resource_claim


def patched(api: Client, namespace: str, patch: Patch) -> Body:
    return api.patch(CONFIG_MAPS, "sample", patch, namespace=namespace)


def consumer(name: str) -> Body:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


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


def test_merge_patch_replaces_lists(api: Client, namespace: str) -> None:
    claim = api.create(RESOURCE_CLAIMS, resource_claim(namespace))
    claim["status"] = {"allocation": allocation("n1"), "reservedFor": [consumer("a")]}
    api.replace_status(RESOURCE_CLAIMS, claim)
    change = MergePatch({"status": {"reservedFor": [consumer("b")]}})
    claim = api.patch(RESOURCE_CLAIMS, "claim", change, namespace=namespace, subresource="status")
    assert claim["status"]["reservedFor"] == [consumer("b")]


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

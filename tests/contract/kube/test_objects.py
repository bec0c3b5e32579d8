"""Single objects: made, read, replaced, deleted, and never by two at once."""

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, NAMESPACES, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.client import Client, MergePatch, Preconditions
from carina_dra.kube.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
)
from tests.eventually import eventually
from tests.samples.objects import allocation, config_map, resource_claim, resource_slice

FINALIZER = "example.com/hold"


def test_a_new_object_gets_identity_and_version(api: Client, namespace: str) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))
    metadata = created["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")
    assert api.get(CONFIG_MAPS, "sample", namespace=namespace) == created


def test_a_name_is_generated_from_a_prefix(api: Client, namespace: str) -> None:
    body = config_map(namespace)
    body["metadata"] = {"namespace": namespace, "generateName": "sample-"}
    names = {api.create(CONFIG_MAPS, body)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("sample-") and len(name) == len("sample-") + 5 for name in names)


def test_a_name_can_be_taken_once(api: Client, namespace: str) -> None:
    api.create(CONFIG_MAPS, config_map(namespace))
    with pytest.raises(AlreadyExists, match=f"create configmaps {namespace}/sample: .*exists"):
        api.create(CONFIG_MAPS, config_map(namespace))


def test_an_invalid_name_is_refused_naming_the_field(api: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        api.create(CONFIG_MAPS, config_map(namespace, "Not_A_Name"))
    assert [cause.field for cause in refusal.value.causes] == ["metadata.name"]


def test_a_new_object_has_no_version_yet(api: Client, namespace: str) -> None:
    with pytest.raises(ServerError, match="resourceVersion should not be set"):
        api.create(CONFIG_MAPS, config_map(namespace, resourceVersion="1"))


def test_what_is_not_there_is_not_found(api: Client, namespace: str) -> None:
    with pytest.raises(NotFound) as error:
        api.get(RESOURCE_CLAIMS, "missing", namespace=namespace)
    assert str(error.value) == (
        f"get resourceclaims.resource.k8s.io {namespace}/missing: "
        'resourceclaims.resource.k8s.io "missing" not found'
    )


def test_replacing_gives_a_higher_version(api: Client, namespace: str) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))
    replaced = api.replace(CONFIG_MAPS, created | {"data": {"color": "red"}})
    assert replaced["data"] == {"color": "red"}
    assert int(replaced["metadata"]["resourceVersion"]) > int(
        created["metadata"]["resourceVersion"]
    )
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]


def test_replacing_without_a_change_keeps_the_version(api: Client, namespace: str) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))
    replaced = api.replace(CONFIG_MAPS, created)
    assert replaced["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


def test_of_two_who_replace_what_they_read_one_fails(api: Client, namespace: str) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))
    api.replace(CONFIG_MAPS, created | {"data": {"color": "red"}})
    with pytest.raises(Conflict, match="the object has been modified"):
        api.replace(CONFIG_MAPS, created | {"data": {"color": "green"}})


def test_another_object_of_the_same_name_is_not_replaced(api: Client, namespace: str) -> None:
    first = api.create(CONFIG_MAPS, config_map(namespace))
    api.delete(CONFIG_MAPS, "sample", namespace=namespace)
    api.create(CONFIG_MAPS, config_map(namespace))
    del first["metadata"]["resourceVersion"]
    with pytest.raises(Conflict, match="UID in precondition"):
        api.replace(CONFIG_MAPS, first)


def test_generation_counts_changes_of_the_specification(api: Client, namespace: str) -> None:
    name = f"{namespace}-generation"
    created = api.create(RESOURCE_SLICES, resource_slice(name, node=name))
    labelled = api.patch(RESOURCE_SLICES, name, MergePatch({"metadata": {"labels": {"a": "b"}}}))
    changed = api.patch(RESOURCE_SLICES, name, MergePatch({"spec": {"devices": []}}))
    api.delete(RESOURCE_SLICES, name)
    generations = [body["metadata"]["generation"] for body in (created, labelled, changed)]
    assert generations == [1, 1, 2]


def test_status_is_written_apart_from_the_rest(api: Client, namespace: str) -> None:
    claim = resource_claim(namespace) | {"status": {"allocation": allocation("n1")}}
    created = api.create(RESOURCE_CLAIMS, claim)
    assert not created.get("status")

    created["status"] = {"allocation": allocation("n1")}
    created["metadata"]["labels"] = {"ignored": "yes"}
    allocated = api.replace_status(RESOURCE_CLAIMS, created)
    assert allocated["status"]["allocation"] == allocation("n1")
    assert "labels" not in allocated["metadata"]

    del allocated["status"]
    allocated["metadata"]["labels"] = {"seen": "yes"}
    labelled = api.replace(RESOURCE_CLAIMS, allocated)
    assert labelled["metadata"]["labels"] == {"seen": "yes"}
    assert labelled["status"]["allocation"] == allocation("n1")


def test_a_stale_status_is_refused(api: Client, namespace: str) -> None:
    created = api.create(RESOURCE_CLAIMS, resource_claim(namespace))
    created["status"] = {"allocation": allocation("n1")}
    api.replace_status(RESOURCE_CLAIMS, created)
    with pytest.raises(Conflict):
        api.replace_status(RESOURCE_CLAIMS, created)


def test_what_is_deleted_is_gone(api: Client, namespace: str) -> None:
    api.create(CONFIG_MAPS, config_map(namespace))
    api.delete(CONFIG_MAPS, "sample", namespace=namespace)
    with pytest.raises(NotFound):
        api.get(CONFIG_MAPS, "sample", namespace=namespace)
    with pytest.raises(NotFound):
        api.delete(CONFIG_MAPS, "sample", namespace=namespace)


@pytest.mark.parametrize(
    "preconditions",
    [
        Preconditions(uid="00000000-0000-4000-8000-000000000000"),
        Preconditions(resource_version="1"),
    ],
)
def test_deletion_can_be_of_what_was_read_only(
    api: Client, namespace: str, preconditions: Preconditions
) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))["metadata"]
    with pytest.raises(Conflict, match="in the precondition"):
        api.delete(CONFIG_MAPS, "sample", namespace=namespace, preconditions=preconditions)
    right = Preconditions(uid=created["uid"], resource_version=created["resourceVersion"])
    api.delete(CONFIG_MAPS, "sample", namespace=namespace, preconditions=right)


def test_a_finalizer_holds_an_object_back_from_deletion(api: Client, namespace: str) -> None:
    api.create(CONFIG_MAPS, config_map(namespace, finalizers=[FINALIZER]))
    api.delete(CONFIG_MAPS, "sample", namespace=namespace)
    held = api.get(CONFIG_MAPS, "sample", namespace=namespace)
    assert held["metadata"]["deletionTimestamp"]

    held["metadata"]["finalizers"] = []
    api.replace(CONFIG_MAPS, held)
    with pytest.raises(NotFound):
        api.get(CONFIG_MAPS, "sample", namespace=namespace)


def test_what_is_owned_goes_with_its_owner(api: Client, namespace: str) -> None:
    owner = api.create(CONFIG_MAPS, config_map(namespace, "owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    api.create(CONFIG_MAPS, config_map(namespace, "owned", ownerReferences=[reference]))
    api.delete(CONFIG_MAPS, "owner", namespace=namespace)

    def gone() -> bool:
        try:
            api.get(CONFIG_MAPS, "owned", namespace=namespace)
        except NotFound:
            return True
        return False

    eventually(gone, within=30)


def test_a_namespace_goes_with_all_that_is_in_it(api: Client) -> None:
    name = api.create(NAMESPACES, {"metadata": {"generateName": "passing-"}})["metadata"]["name"]
    api.create(CONFIG_MAPS, config_map(name))
    api.delete(NAMESPACES, name)

    def gone() -> bool:
        try:
            api.get(NAMESPACES, name)
        except NotFound:
            return True
        return False

    eventually(gone, within=60)
    with pytest.raises(NotFound):
        api.get(CONFIG_MAPS, "sample", namespace=name)

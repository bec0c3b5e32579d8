"""The `eviction` subresource of pods: how a controller removes a pod for another one."""

import pytest

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.client import Client
from carina_dra.kube.errors import Conflict, NotFound

NAMESPACE = "default"


def waiting_pod(api: Client) -> tuple[str, str]:
    """Name and UID of a pod that no scheduler takes care of."""
    spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]}
    metadata = {"generateName": "evicted-", "namespace": NAMESPACE}
    created = api.create(PODS, {"metadata": metadata, "spec": spec})["metadata"]
    return created["name"], created["uid"]


def evict(api: Client, name: str, uid: str) -> None:
    eviction = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    api.create_subresource(PODS, name, "eviction", eviction, namespace=NAMESPACE)


def test_an_evicted_pod_that_never_ran_is_deleted(api: Client) -> None:
    name, uid = waiting_pod(api)
    evict(api, name, uid)
    with pytest.raises(NotFound):
        api.get(PODS, name, namespace=NAMESPACE)


def test_a_pod_that_was_created_again_is_not_evicted(api: Client) -> None:
    name, uid = waiting_pod(api)
    with pytest.raises(Conflict):
        evict(api, name, "another-uid")
    evict(api, name, uid)

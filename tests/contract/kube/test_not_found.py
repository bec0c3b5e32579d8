"""A missing object differs from a path that is not served: the API server names the object."""

from dataclasses import replace

import pytest

from carina_dra.kube.api_resource import (
    CONFIG_MAPS,
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    ApiResource,
    Scope,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch, Preconditions, Selection
from carina_dra.kube.errors import NamespaceNotFound, NotFound, PathNotFound
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.kubernetes.cluster import Cluster
from tests.samples.objects import allocation, config_map, resource_claim, resource_slice

CORE_EVENTS = ApiResource("", "v1", "events", "Event", Scope.NAMESPACED)
RESOURCES = [
    NAMESPACES,
    NODES,
    PODS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    CORE_EVENTS,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    EVENTS,
    LEASES,
    DAEMON_SETS,
]
LABEL = MergePatch({"metadata": {"labels": {"color": "blue"}}})
NO_UID = Preconditions(uid="00000000-0000-4000-8000-000000000000")

NOT_SERVED = {
    "version": replace(RESOURCE_CLAIMS, version="v1alpha9"),
    "core version": replace(NODES, version="v2"),
    "resource": replace(RESOURCE_CLAIMS, plural="nothings"),
    "core resource": replace(NODES, plural="nothings"),
    "group": replace(RESOURCE_CLAIMS, group="nothing.k8s.io"),
    "scope": replace(RESOURCE_SLICES, scope=Scope.NAMESPACED),
}


def namespace_for(resource: ApiResource) -> str | None:
    return "default" if resource.scope is Scope.NAMESPACED else None


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: str(resource.qualified_name))
def test_an_object_that_does_not_exist_is_not_found(api: Client, resource: ApiResource) -> None:
    namespace = namespace_for(resource)
    with pytest.raises(NotFound):
        api.get(resource, "missing", namespace=namespace)
    with pytest.raises(NotFound):
        api.patch(resource, "missing", LABEL, namespace=namespace)
    with pytest.raises(NotFound):
        api.delete(resource, "missing", namespace=namespace)
    with pytest.raises(NotFound):
        api.delete(resource, "missing", namespace=namespace, preconditions=NO_UID)


@pytest.mark.parametrize(
    "body",
    [
        config_map("default", "missing"),
        resource_claim("default", "missing"),
        resource_slice("missing", node="missing"),
    ],
    ids=lambda body: str(body["kind"]),
)
def test_an_object_that_does_not_exist_cannot_be_replaced(api: Client, body: Body) -> None:
    kinds = {resource.kind: resource for resource in RESOURCES}
    with pytest.raises(NotFound):
        api.replace(kinds[body["kind"]], body)


def test_a_subresource_of_a_missing_object_is_not_found(api: Client) -> None:
    claim = resource_claim("default", "missing") | {"status": {"allocation": allocation("n1")}}
    with pytest.raises(NotFound):
        api.replace_status(RESOURCE_CLAIMS, claim)
    with pytest.raises(NotFound):
        api.patch(RESOURCE_CLAIMS, "missing", LABEL, namespace="default", subresource="status")
    with pytest.raises(NotFound):
        api.patch(NODES, "missing", LABEL, subresource="status")
    binding = {"metadata": {"name": "missing"}, "target": {"kind": "Node", "name": "n1"}}
    eviction = {"metadata": {"name": "missing", "namespace": "default"}}
    with pytest.raises(NotFound):
        api.create_subresource(PODS, "missing", "binding", binding, namespace="default")
    with pytest.raises(NotFound):
        api.create_subresource(PODS, "missing", "eviction", eviction, namespace="default")


def test_a_token_of_a_missing_service_account_is_not_found(cluster: Cluster) -> None:
    with Client(from_kubeconfig(cluster.kubeconfig)) as client, pytest.raises(NotFound):
        client.create_subresource(
            SERVICE_ACCOUNTS, "missing", "token", {"spec": {}}, namespace="default"
        )


def test_in_a_namespace_that_does_not_exist_no_object_does(api: Client) -> None:
    with pytest.raises(NotFound):
        api.get(RESOURCE_CLAIMS, "missing", namespace="nowhere")
    with pytest.raises(NotFound):
        api.delete(RESOURCE_CLAIMS, "missing", namespace="nowhere")


def test_an_object_is_created_only_in_a_namespace_that_exists(api: Client) -> None:
    with pytest.raises(NamespaceNotFound, match='namespaces "nowhere" not found'):
        api.create(CONFIG_MAPS, config_map("nowhere"))
    with pytest.raises(NamespaceNotFound, match='namespaces "nowhere" not found'):
        api.create(RESOURCE_CLAIMS, resource_claim("nowhere"))


@pytest.mark.parametrize("resource", NOT_SERVED.values(), ids=NOT_SERVED)
def test_what_is_not_served_says_nothing_of_the_object(api: Client, resource: ApiResource) -> None:
    namespace = namespace_for(resource)
    with pytest.raises(PathNotFound, match="check that the API server serves this version"):
        api.get(resource, "missing", namespace=namespace)
    with pytest.raises(PathNotFound):
        api.patch(resource, "missing", LABEL, namespace=namespace)
    with pytest.raises(PathNotFound):
        api.delete(resource, "missing", namespace=namespace)
    with pytest.raises(PathNotFound):
        api.list(resource, Selection(namespace))


def test_a_subresource_that_is_not_served_says_nothing_of_the_object(
    api: Client, namespace: str
) -> None:
    api.create(RESOURCE_CLAIMS, resource_claim(namespace))
    with pytest.raises(PathNotFound):
        api.patch(RESOURCE_CLAIMS, "claim", LABEL, namespace=namespace, subresource="nothing")


def test_a_group_that_is_not_served_is_answered_in_plain_text(api: Client) -> None:
    with pytest.raises(PathNotFound, match=": 404 page not found \\("):
        api.list(NOT_SERVED["group"])

"""The examples of the unit tests on a real API server that has every field of the API.

It takes what the types write, drops nothing of it, and what it writes itself the types read and
write again. Alpha fields need their feature gates.
"""

from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
    Scope,
)
from carina_dra.kube.client import Client
from carina_dra.kube.errors import Conflict
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.resource import decode, encode
from simulation.kubernetes import releases
from simulation.kubernetes.cluster import running_cluster
from tests.eventually import eventually
from tests.real_kubernetes import require_real_kubernetes
from tests.samples.resources import EXAMPLES, KINDS, example

FEATURE_GATES = dict.fromkeys(
    [
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevicesType",
        "DRAResourcePoolStatus",
        "DRAWorkloadResourceClaims",
        "GenericWorkload",
    ],
    True,
)
RESOURCES: dict[str, ApiResource] = {
    each.kind: each
    for each in (
        DEVICE_CLASSES,
        DEVICE_TAINT_RULES,
        RESOURCE_CLAIM_TEMPLATES,
        RESOURCE_CLAIMS,
        RESOURCE_SLICES,
    )
}
NAMESPACE = "team-a"
OURS = ("name", "namespace", "labels", "annotations")
"""Of metadata. The rest is the API server's, or would have consequences."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of an API server with all feature gates of DRA."""
    require_real_kubernetes()
    if releases.kubernetes().version.startswith("1.36."):
        pytest.skip("the fields are those of Kubernetes 1.37")
    with (
        running_cluster(feature_gates=FEATURE_GATES) as cluster,
        Client(from_kubeconfig(cluster.kubeconfig)) as made,
    ):
        cluster.create_namespace(NAMESPACE)
        cluster.kubectl("label", "ns", NAMESPACE, "resource.kubernetes.io/admin-access=true")
        yield made


@pytest.mark.kubernetes
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_lost_on_the_way_to_an_api_server_and_back(client: Client, name: str) -> None:
    body = example(name)
    kind, resource = KINDS[body["kind"]], RESOURCES[body["kind"]]
    namespace = NAMESPACE if resource.scope is Scope.NAMESPACED else None
    body["metadata"] = {key: body["metadata"][key] for key in OURS if key in body["metadata"]}
    sent = encode(decode(kind, body))

    stored = client.create(resource, sent)

    def status_is_stored() -> bool:
        nonlocal stored
        try:
            stored = client.replace_status(resource, {**stored, "status": sent["status"]})
        except Conflict:  # a controller was faster
            stored = client.get(resource, body["metadata"]["name"], namespace=namespace)
            return False
        return True

    if sent.get("status"):
        eventually(status_is_stored)
    for part in ("spec", "status"):
        assert stored.get(part) == sent.get(part)

    def can_be_written_as_it_is_read() -> bool:
        read = client.get(resource, body["metadata"]["name"], namespace=namespace)
        assert encode(decode(kind, read)) == read
        try:
            return client.replace(resource, encode(decode(kind, read))) == read
        except Conflict:  # a controller was faster
            return False

    eventually(can_be_written_as_it_is_read)

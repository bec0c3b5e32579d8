"""The `binding` subresource of pods: how a scheduler assigns a pod to a node."""

from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.client import Client
from carina_dra.kube.errors import Conflict

NAMESPACE = "default"
"""The only namespace that has a ServiceAccount from the start; no pod is admitted without one."""


@pytest.fixture
def pod(api: Client) -> Iterator[str]:
    """A pod that no scheduler takes care of."""
    spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]}
    metadata = {"generateName": "bound-", "namespace": NAMESPACE}
    name: str = api.create(PODS, {"metadata": metadata, "spec": spec})["metadata"]["name"]
    yield name
    api.delete(PODS, name, namespace=NAMESPACE, grace_period_seconds=0)


def test_a_pod_is_bound_once(api: Client, pod: str) -> None:
    def bind(node: str) -> None:
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        api.create_subresource(PODS, pod, "binding", binding, namespace=NAMESPACE)

    bind("node-1")
    with pytest.raises(Conflict, match="already assigned to node"):
        bind("node-2")
    assert api.get(PODS, pod, namespace=NAMESPACE)["spec"]["nodeName"] == "node-1"

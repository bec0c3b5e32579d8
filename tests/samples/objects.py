"""Objects to try the API with: small, and valid for the real API server."""

from typing import Any

from carina_dra.kube.body import Body


def config_map(namespace: str, name: str = "sample", **metadata: Any) -> Body:
    """A ConfigMap with one entry. The simplest namespaced object that there is."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, **metadata},
        "data": {"color": "blue"},
    }


def resource_slice(name: str, *, node: str, driver: str = "gpu.example.com") -> Body:
    """A ResourceSlice with one device, alone in its pool. Cluster-scoped, with a generation."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }


def resource_claim(namespace: str, name: str = "claim") -> Body:
    """A ResourceClaim for one device. Its status is a subresource."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def allocation(node: str) -> Body:
    """A status.allocation for `resource_claim`."""
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}
    return {"devices": {"results": [result]}}

import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES


def test_paths() -> None:
    assert NODES.collection_path(None) == "/api/v1/nodes"
    assert NODES.object_path(None, "n1", "status") == "/api/v1/nodes/n1/status"
    assert RESOURCE_SLICES.object_path(None, "a") == "/apis/resource.k8s.io/v1/resourceslices/a"
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    assert RESOURCE_CLAIMS.collection_path("team") == claims
    assert RESOURCE_CLAIMS.collection_path(None) == "/apis/resource.k8s.io/v1/resourceclaims"
    assert RESOURCE_CLAIMS.object_path("team", "a/../b") == f"{claims}/a%2F..%2Fb"


def test_a_cluster_scoped_resource_has_no_namespace() -> None:
    with pytest.raises(ValueError, match="nodes is cluster-scoped: omit the namespace"):
        NODES.object_path("team", "n1")


def test_a_namespaced_object_has_one() -> None:
    with pytest.raises(ValueError, match="'claim' is namespaced"):
        RESOURCE_CLAIMS.object_path(None, "claim")


def test_an_object_has_a_name() -> None:
    with pytest.raises(ValueError, match="the name is empty"):
        RESOURCE_CLAIMS.object_path("team", "")

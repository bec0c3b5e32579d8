"""The watch of the plugin's own Node, with the plugin's permissions, on a real API server."""

import json
from collections.abc import Iterator

import pytest

from carina_dra.kube import configuration
from carina_dra.kube.client import Client
from kubelet_plugin.node.view import InvalidAnnotation, NodeView, OperandsPaused, ReleaseAsked
from kubelet_plugin.node.watch import NodeWatch
from simulation.kubernetes.cluster import DEPLOY, Cluster
from tests.eventually import eventually

_NODE, _OTHER, _DRIVER = "watched", "not-watched", "gpu.carina.dev"
_RELEASE = f"{_DRIVER}/release"


class _Seen:
    """What a watch has said."""

    def __init__(self) -> None:
        self.views: list[NodeView] = []
        self.invalid: list[InvalidAnnotation] = []


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[None]:
    cluster.install_carina(DEPLOY)
    cluster.add_fake_nodes([_NODE, _OTHER])
    yield
    cluster.kubectl("delete", "node", _NODE, _OTHER)


@pytest.fixture
def seen() -> _Seen:
    return _Seen()


@pytest.fixture
def watch(cluster: Cluster, nodes: None, seen: _Seen) -> Iterator[NodeWatch]:
    namespace, account = "carina-system", "carina-kubelet-plugin"
    cluster.assign_pod(namespace, "watching", service_account=account, node=_NODE)
    credentials = cluster.service_account_credentials(namespace, account, pod="watching")
    with Client(configuration.find(credentials.kubeconfig)) as client:
        watch = NodeWatch(client, node=_NODE, driver=_DRIVER, invalid=seen.invalid.append)
        watch.listen(seen.views.append)
        watch.start()
        eventually(lambda: watch.latest is not None)
        yield watch
        watch.stop()


def test_plugin_sees_what_is_asked_of_its_node(
    cluster: Cluster, watch: NodeWatch, seen: _Seen
) -> None:
    assert watch.latest == NodeView()

    cluster.kubectl("annotate", "node", _NODE, f"{_RELEASE}=new driver")
    eventually(lambda: watch.latest == NodeView(ReleaseAsked("new driver", evict_all=False)))
    cluster.kubectl("annotate", "node", _NODE, f"{_RELEASE}-")
    eventually(lambda: watch.latest == NodeView())
    label = "nvidia.com/gpu.deploy.dcgm"
    cluster.kubectl("label", "node", _NODE, f"{label}=paused-for-driver-upgrade")
    eventually(lambda: watch.latest == NodeView(OperandsPaused((label,))))

    assert [view.release is not None for view in seen.views] == [False, True, False, True]


def test_plugin_is_told_of_changes_that_concern_it_only(
    cluster: Cluster, watch: NodeWatch, seen: _Seen
) -> None:
    cluster.kubectl("annotate", "node", _OTHER, f"{_RELEASE}=another node")
    cluster.kubectl("label", "node", _NODE, "zone=a")
    cluster.kubectl("annotate", "node", _NODE, f"{_RELEASE}=this node")

    eventually(lambda: len(seen.views) > 1)
    assert seen.views == [NodeView(), NodeView(ReleaseAsked("this node", evict_all=False))]


def test_annotation_that_is_ignored_is_reported_once(
    cluster: Cluster, watch: NodeWatch, seen: _Seen
) -> None:
    patch = {"metadata": {"annotations": {f"{_DRIVER}/faults-cleared": "GPU-1"}}}

    cluster.kubectl("patch", "node", _NODE, "-p", json.dumps(patch))
    eventually(lambda: bool(seen.invalid))
    cluster.kubectl("annotate", "node", _NODE, f"{_RELEASE}=this node")
    eventually(lambda: watch.latest is not None and watch.latest.release is not None)

    (invalid,) = seen.invalid
    assert invalid.key == f"{_DRIVER}/faults-cleared"

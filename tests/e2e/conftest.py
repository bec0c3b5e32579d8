"""Fixtures of the end-to-end tests: a cluster with a node that runs containers, and Carina."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from simulation.kubernetes.cluster import Cluster, ServiceAccountCredentials
from simulation.kubernetes.node import Node
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import Workloads
from tests.memory import disk_folder

_NAMESPACE, _SERVICE_ACCOUNT = "carina-system", "carina-kubelet-plugin"
_FIRST_HTTP_PORT, _LAST_HTTP_PORT = 8, 9
"""The last two ports of a cluster, which only its fourth and fifth node would use."""


@pytest.fixture(scope="session")
def cluster(node: Node) -> Cluster:
    """The cluster that the node is in."""
    return node.cluster


@pytest.fixture(scope="session")
def credentials(cluster: Cluster, node: Node) -> ServiceAccountCredentials:
    """The credentials of the plugin's pod on the node, once Carina is installed.

    The DaemonSet and the Deployment are deleted: these tests run the plugin as a process on the
    host, which they can freeze and kill. test_daemonset.py runs its pod.
    """
    cluster.install_carina()
    cluster.kubectl("delete", "daemonset,deployment", "--namespace", _NAMESPACE, "--all")
    cluster.assign_pod(_NAMESPACE, "plugin", service_account=_SERVICE_ACCOUNT, node=node.name)
    return cluster.service_account_credentials(_NAMESPACE, _SERVICE_ACCOUNT, pod="plugin")


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """The test's folder, on a disk: a container has a /dev/shm of its own instead of the host's."""
    return disk_path


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedNode:
    """The node's GPUs: eight H200, whose device nodes are those of /dev/null."""
    return SimulatedNode.create(tmp_path / "gpus", "hgx-h200-sxm", name="node")


@pytest.fixture
def new_plugin(
    node: Node, gpus: SimulatedNode, credentials: ServiceAccountCredentials
) -> Iterator[Callable[[str], Plugin]]:
    """Creates plugins by pod UID, which the test starts, and ends them after the test."""
    with ExitStack() as cleanup:
        made: list[Plugin] = []

        def make(pod_uid: str) -> Plugin:
            port = node.cluster.state.port(_FIRST_HTTP_PORT + len(made))
            plugin = Plugin(gpus, node, credentials, pod_uid, port)
            made.append(plugin)
            cleanup.callback(plugin.stop)
            return plugin

        yield make


@pytest.fixture
def plugin(new_plugin: Callable[[str], Plugin]) -> Plugin:
    """A running plugin."""
    plugin = new_plugin("plugin")
    plugin.start()
    return plugin


@pytest.fixture(scope="module")
def kept_plugin(
    node: Node, credentials: ServiceAccountCredentials, request: pytest.FixtureRequest
) -> Iterator[Plugin]:
    """A plugin for all tests of a module, with eight H200 of its own; it is not started."""
    with disk_folder(request.config) as folder:
        gpus = SimulatedNode.create(folder / "gpus", "hgx-h200-sxm", name="node")
        port = node.cluster.state.port(_LAST_HTTP_PORT)
        plugin = Plugin(gpus, node, credentials, "plugin", port)
        yield plugin
        plugin.stop()


@pytest.fixture
def workloads(
    cluster: Cluster, plugin: Plugin, request: pytest.FixtureRequest
) -> Iterator[Workloads]:
    """A namespace of the test, whose Jobs and pods are deleted after it, before the plugin ends."""
    words = re.findall(r"[a-z0-9]+", request.node.name.lower())
    own = Workloads(cluster, cluster.create_namespace("-".join(words)[:63].rstrip("-")))
    yield own
    own.delete_all()

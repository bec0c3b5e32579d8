"""A pod that needs devices of two drivers, one of which fails.

Upstream (test/e2e_node/dra_test.go): two drivers in one pod with one failing.
"""

from collections.abc import Callable, Iterator

import pytest

from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.node import Node
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import RETRY_S, Workloads, container, request

_OTHER = "other.carina.dev"
_ACCOUNT = "other-driver"
_SLICE_VERBS = ("list", "watch", "create", "update", "delete")
_HTTP_PORT = 9


@pytest.fixture
def plugin(new_plugin: Callable[[str], Plugin]) -> Plugin:
    """The running plugin, which publishes GPUs that the other driver publishes too."""
    plugin = new_plugin("plugin")
    plugin.beside_other_drivers = "publish"
    plugin.start()
    return plugin


@pytest.fixture
def other(cluster: Cluster, node: Node, gpus: SimulatedNode, plugin: Plugin) -> Iterator[Plugin]:
    """A second driver: the same program under another name and ServiceAccount."""
    assert plugin.driver != _OTHER
    cluster.kubectl("create", "serviceaccount", _ACCOUNT, "--namespace=default")
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _ACCOUNT},
            "rules": [
                _rule("resource.k8s.io", "resourceclaims", "get"),
                _rule("resource.k8s.io", "resourceslices", *_SLICE_VERBS),
                _rule("", "nodes", "get", "list", "watch"),
                _rule("events.k8s.io", "events", "create", "patch"),
            ],
        }
    )
    _bind(cluster)
    selector = {"cel": {"expression": f"device.driver == '{_OTHER}'"}}
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": _OTHER},
            "spec": {"selectors": [selector]},
        }
    )
    other = Plugin(
        gpus,
        node,
        cluster.service_account_credentials("default", _ACCOUNT),
        "other",
        node.cluster.state.port(_HTTP_PORT),
        driver=_OTHER,
        beside_other_drivers="publish",
    )
    other.start()
    yield other
    other.stop()
    # The kubelet deletes them later, and until then GPUs are withheld as offered twice.
    cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={_OTHER}")
    cluster.kubectl("delete", "deviceclass", _OTHER)
    cluster.kubectl("delete", "clusterrolebinding", _ACCOUNT, "--ignore-not-found")
    cluster.kubectl("delete", "clusterrole", _ACCOUNT)
    cluster.kubectl("delete", "serviceaccount", _ACCOUNT, "--namespace=default")


def _rule(group: str, resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _bind(cluster: Cluster) -> None:
    account = f"--serviceaccount=default:{_ACCOUNT}"
    cluster.kubectl("create", "clusterrolebinding", _ACCOUNT, f"--clusterrole={_ACCOUNT}", account)


def _pod_of_both(workloads: Workloads) -> None:
    of_other = {"name": "theirs", "exactly": {"deviceClassName": _OTHER}}
    workloads.claim("both", request("ours"), of_other)
    workloads.pod("pod", "both", container("main", "gpu/ours"), container("second", "gpu/theirs"))


def test_pod_starts_once_both_drivers_have_prepared(
    other: Plugin, plugin: Plugin, workloads: Workloads
) -> None:
    workloads.cluster.kubectl("delete", "clusterrolebinding", _ACCOUNT)
    _pod_of_both(workloads)
    said = workloads.wait_event("Pod", "pod", "FailedPrepareDynamicResources")
    assert _ACCOUNT in said
    assert workloads.get("pod", "pod")["status"]["phase"] == "Pending"

    _bind(workloads.cluster)

    workloads.wait_running("pod", timeout=RETRY_S)
    assert len(workloads.gpus("pod", "main")) == 1
    assert len(workloads.gpus("pod", "second")) == 1
    workloads.delete("pod")
    assert plugin.prepared_claims() == set()
    assert other.prepared_claims() == set()


def test_pod_that_one_driver_refuses_leaves_nothing_with_the_other(
    other: Plugin, plugin: Plugin, workloads: Workloads
) -> None:
    workloads.cluster.kubectl("delete", "clusterrolebinding", _ACCOUNT)
    _pod_of_both(workloads)
    workloads.wait_event("Pod", "pod", "FailedPrepareDynamicResources")

    workloads.delete("pod")

    assert plugin.prepared_claims() == set()
    assert other.prepared_claims() == set()

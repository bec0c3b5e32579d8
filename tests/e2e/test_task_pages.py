"""The commands of task pages run on a node where there is what they name.

What they print depends on the cluster, and is compared where a page shows it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.engine.model.queue import QUEUE_LABEL
from simulation.kubernetes.cluster import Cluster, fake_node
from simulation.kubernetes.process import wait_for
from tests.documented.reader import environment_of, follow
from tests.e2e.workloads import Object, container, request
from tests.integration.controller.live.site import Site

_DOCS: Final = Path(__file__).parents[2] / "docs"
_OF_DEPLOYMENTS: Final = frozenset(
    {
        "kubectl logs deployment/carina-controller -n carina-system --tail=50",
        "kubectl logs daemonset/carina-kubelet-plugin -n carina-system --tail=50",
        "kubectl exec daemonset/carina-kubelet-plugin -n carina-system -- carina inventory",
    }
)
"""They need the image: here, the controller and the plugin are processes on the host."""
_STARTS_S: Final = 60.0


def _template() -> Object:
    spec = {"devices": {"requests": [request("gpus")]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "research"},
        "spec": {"spec": spec},
    }


def _claim() -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "train-0-gpus", "namespace": "research"},
        "spec": {"devices": {"requests": [request("gpus")]}},
    }


def _pod(claim: Object) -> Object:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "gpus", **claim}],
        "containers": [container("main", "gpus")],
    }


@pytest.fixture
def research(cluster: Cluster) -> Iterator[None]:
    """The namespace, the Queue, the node and the workloads that the pages name."""
    cluster.create_namespace("research")
    cluster.await_default_service_account("research")
    labels = {QUEUE_LABEL: "research"}
    node = fake_node("gpu-node-1")
    cluster.apply(
        {
            "apiVersion": "scheduling.carina.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": "research"},
            "spec": {"namespaces": {"names": ["research"]}},
        },
        {**node, "spec": {"unschedulable": True}},
        _template(),
        _claim(),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train-0", "namespace": "research", "labels": labels},
            "spec": _pod({"resourceClaimName": "train-0-gpus"}),
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", "namespace": "research"},
            "spec": {
                "template": {
                    "metadata": {"labels": labels},
                    "spec": _pod({"resourceClaimTemplateName": "gpus"}),
                }
            },
        },
    )
    yield
    cluster.kubectl("delete", "jobs,pods", "--all", "--now", "--namespace", "research")
    free = '--patch={"metadata": {"finalizers": null}}'  # the controller has ended
    cluster.kubectl("patch", "queue", "research", "--type=merge", free)
    cluster.kubectl("delete", "queue", "research")
    cluster.kubectl("delete", "namespace", "research")
    cluster.kubectl("delete", "node", "gpu-node-1")


def _all_run(cluster: Cluster) -> bool:
    phases = cluster.kubectl(
        *("get", "pods", "--namespace", "research"),
        "--output=jsonpath={.items[*].status.phase}",
    )
    return phases.split() == ["Running", "Running"]


@pytest.mark.usefixtures("plugin")
def test_the_commands_of_task_pages_run(cluster: Cluster, research: None, tmp_path: Path) -> None:
    del research
    with Client(from_kubeconfig(cluster.kubeconfig)) as client, Site(cluster, client).controller():
        wait_for("the pods run", lambda: _all_run(cluster), timeout=_STARTS_S)
        pages: dict[str, frozenset[str]] = {
            "troubleshooting.md": _OF_DEPLOYMENTS,
            "migrate-from-nvidia.md": frozenset(),
            "controller.md": frozenset(),  # the last: it drains the queue
        }
        for page, done in pages.items():
            follow(_DOCS / page, tmp_path, environment=environment_of(cluster), done=done)

"""What the chart refuses because of what is in the cluster already."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.manifests import CHART
from simulation.kubernetes.cluster import Cluster, running_cluster
from tests.integration.chart.conftest import HelmError, run_helm


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of this module, in which nothing is installed."""
    with running_cluster() as running:
        yield running


def would_install(helm: Path, cluster: Cluster) -> None:
    """Lets Helm check an installation, and install nothing."""
    run_helm(
        helm,
        *("install", "carina", CHART, "--dry-run=server", "--namespace=carina-system"),
        f"--kubeconfig={cluster.kubeconfig}",
    )


def test_installation_by_kubectl_is_found(helm: Path, cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "carina-system")
    would_install(helm, cluster)
    cluster.install_carina()

    with pytest.raises(HelmError, match="already installed in this cluster, by kubectl apply"):
        would_install(helm, cluster)


def test_definitions_of_another_release_are_found(helm: Path, cluster: Cluster) -> None:
    cluster.install_carina()
    cluster.kubectl("delete", "clusterrole", "carina-kubelet-plugin")
    of_release = {
        "meta.helm.sh/release-name": "other",
        "meta.helm.sh/release-namespace": "elsewhere",
    }
    patch = json.dumps({"metadata": {"annotations": of_release}})
    cluster.kubectl("patch", "crd", "queues.scheduling.carina.dev", "--type=merge", f"-p={patch}")

    with pytest.raises(HelmError, match="stayed when release other in namespace elsewhere was rem"):
        would_install(helm, cluster)

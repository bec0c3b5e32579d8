"""docs/quick-start.md on a node: every command runs, and prints what the page shows."""

from pathlib import Path

import pytest

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.kubernetes.cluster import Cluster
from tests.documented.reader import environment_of, follow
from tests.integration.controller.live.site import Site

_PAGE = Path(__file__).parents[2] / "docs" / "quick-start.md"
_DEMO = "make demo"
"""tests/integration/test_demo.py runs it."""
_NAMESPACE = "kubectl create namespace research"


@pytest.mark.usefixtures("plugin")
def test_the_quick_start_works_as_the_page_says(cluster: Cluster, tmp_path: Path) -> None:
    with Client(from_kubeconfig(cluster.kubeconfig)) as client, Site(cluster, client).controller():
        run = follow(
            _PAGE,
            tmp_path,
            environment=environment_of(cluster),
            done=frozenset({_DEMO}),
            after={_NAMESPACE: lambda: cluster.await_default_service_account("research")},
        )
    assert run > 5

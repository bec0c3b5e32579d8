"""Upgrades from the first complete controller, with work that runs and work that waits."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.kubernetes import process
from simulation.kubernetes.cluster import Cluster, running_cluster
from simulation.kubernetes.process import Process
from tests.eventually import eventually
from tests.integration.controller.live.conftest import HOLLOW_NODES
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team
from tests.integration.old_tree import extract

_OLD: Final = "e035388"
"""The commit before the walls between tenants."""


@pytest.fixture(scope="module")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the old commit."""
    folder = tmp_path_factory.mktemp("old")
    extract(_OLD, folder)
    return folder


@pytest.fixture(scope="module")
def cluster(old_tree: Path) -> Iterator[Cluster]:
    """A control plane with the old manifests."""
    with running_cluster(arguments=HOLLOW_NODES) as running:
        running.install_carina(old_tree / "deploy")
        yield running


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        kubelet = HollowKubelet(client)
        kubelet.start()
        yield Site(cluster, client)
        kubelet.stop()


def _old_controller(site: Site, old_tree: Path) -> Process:
    credentials = site.cluster.service_account_credentials("carina-system", "carina-controller")
    code = f"import sys; sys.path.insert(0, {str(old_tree)!r}); import controller.main as main; "
    code += f"assert main.__file__.startswith({str(old_tree)!r}); main.main()"
    flags = {"kubeconfig": credentials.kubeconfig, "identity": "old", "http_address": "off"}
    command = [
        sys.executable,
        "-c",
        code,
        *(f"--{k.replace('_', '-')}={v}" for k, v in flags.items()),
    ]
    return process.start(site.cluster.state, "old", command, {"PYTHONPATH": str(old_tree)})


def _team(site: Site, name: str, **queue: object) -> Team:
    site.cluster.create_namespace(name)
    resources = [{"deviceClass": GPU_CLASS, "quota": 2}]
    return Team(site, name, site.queue(name, resources=resources, **queue))


def test_work_that_runs_goes_on_and_work_that_waits_is_decided(site: Site, old_tree: Path) -> None:
    site.add_nodes("upgraded", gpus=4)
    named = _team(site, "named", namespaces={"names": ["named"]})
    unnamed = _team(site, "unnamed")
    old = _old_controller(site, old_tree)
    for team in (named, unnamed):
        team.job("runs", pods=2)
        team.await_bound(2, "runs")
    named.gang("waits", pods=2)
    unnamed.pod("waits")
    eventually(
        lambda: len(named.gated("waits")) == 2 and unnamed.gated("waits"), within=PLACED_WITHIN
    )
    before = _uids(unnamed, "runs")
    old.stop()

    site.cluster.install_carina()
    with site.controller("new"):
        named.site.cluster.kubectl("delete", "job", "runs", "--namespace", named.namespace)
        named.await_bound(2, "waits")
        eventually(lambda: "does not allow" in _events(unnamed), within=PLACED_WITHIN)

    assert _uids(unnamed, "runs") == before
    assert len(unnamed.bound("runs")) == 2
    assert not _devices_twice(named, unnamed)


def _uids(team: Team, prefix: str) -> dict[str, str]:
    pods = team.pods().items()
    return {name: pod["metadata"]["uid"] for name, pod in pods if name.startswith(prefix)}


def _events(team: Team) -> str:
    return team.site.cluster.kubectl("get", "events", "--namespace", team.namespace)


def _devices_twice(*teams: Team) -> bool:
    devices = [device for team in teams for device in team.allocated()]
    return len(devices) != len(set(devices))

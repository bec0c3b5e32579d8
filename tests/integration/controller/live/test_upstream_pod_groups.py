"""Pods of PodGroups of Kubernetes (scheduling.k8s.io): kube-scheduler takes all, or none."""

from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.engine.model.queue import QUEUE_LABEL
from simulation.kubernetes import releases
from simulation.kubernetes.cluster import Cluster, running_cluster
from tests.integration.controller.live.conftest import HOLLOW_NODES
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import Site, Team

_VERSION = "v1alpha2" if releases.kubernetes().version.startswith("1.36.") else "v1beta1"
_NODES = [f"upstream-{index}" for index in range(2)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane that serves PodGroups, which are off by default."""
    with running_cluster(
        feature_gates={"GenericWorkload": True},
        runtime_config={f"scheduling.k8s.io/{_VERSION}": True},
        arguments=HOLLOW_NODES,
    ) as running:
        running.install_carina()
        yield running


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    """Two nodes of four GPUs, and a controller."""
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        site = Site(cluster, client)
        site.add_nodes(*_NODES, gpus=4)
        with site.controller():
            yield site


@pytest.fixture(scope="module")
def kubelet(site: Site) -> Iterator[HollowKubelet]:
    """Runs the nodes' pods."""
    kubelet = HollowKubelet(site.client)
    kubelet.start()
    yield kubelet
    kubelet.stop()


def _pod_group(team: Team, name: str, **policy: Any) -> None:
    """Creates a PodGroup of Kubernetes."""
    team.site.cluster.apply(
        {
            "apiVersion": f"scheduling.k8s.io/{_VERSION}",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": team.namespace,
                "labels": {QUEUE_LABEL: team.queue},
            },
            "spec": {"schedulingPolicy": policy},
        }
    )


def _pods(team: Team, group: str, number: int, gpus: int) -> None:
    for index in range(number):
        team.pod(f"{group}-{index}", gpus, schedulingGroup={"podGroupName": group})


def test_gang_starts_whole(team: Team) -> None:
    _pod_group(team, "gang", gang={"minCount": 2})
    _pods(team, "gang", 2, gpus=4)
    assert sorted(team.await_bound(2).values()) == _NODES


def test_gang_waits_until_it_has_pods_enough(team: Team) -> None:
    _pod_group(team, "gang", gang={"minCount": 3})
    _pods(team, "gang", 2, gpus=1)
    team.await_event("TooFewPods")
    assert team.gated() == {"gang-0", "gang-1"}
    team.pod("gang-2", 1, schedulingGroup={"podGroupName": "gang"})
    team.await_bound(3)


def test_gang_without_room_stays_gated_and_starts_once_there_is(team: Team) -> None:
    team.pod("before", gpus=4)
    team.await_bound(1)
    _pod_group(team, "gang", gang={"minCount": 2})
    _pods(team, "gang", 2, gpus=4)
    team.await_event("NoRoom")
    assert team.gated() == {"gang-0", "gang-1"}
    assert len(team.allocated()) == 4
    team.delete_pod("before")
    team.await_bound(2, "gang")


def test_member_that_comes_late_joins_those_that_run(team: Team) -> None:
    _pod_group(team, "gang", gang={"minCount": 2})
    _pods(team, "gang", 2, gpus=4)
    team.await_bound(2)
    team.pod("late", 4, schedulingGroup={"podGroupName": "gang"})
    team.await_event("NoRoom")
    team.delete_pod("gang-0")
    team.await_bound(1, "late")


def test_pods_without_a_gang_start_together(team: Team) -> None:
    _pod_group(team, "basic", basic={})
    _pods(team, "basic", 3, gpus=1)
    team.await_bound(3)

"""Pods of queues that ask for GPUs with `limits: {nvidia.com/gpu: 1}`, on a real control plane."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from carina_dra.kube.body import Body
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, Site, Team

_NAME: Final = "nvidia.com/gpu"
_CLAIMS: Final = ("by-claim-0", "by-claim-1")
_PLUGIN: Final = "by-plugin-0"
_ALL_GPUS: Final = {"resources": [{"gpus": {}, "limit": 3}]}


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    site.add_nodes(*_CLAIMS, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(*_CLAIMS)


@pytest.fixture
def plugin_node(site: Site) -> Iterator[None]:
    """A node with two GPUs that a device plugin serves, and none that a claim could have."""
    offered = {"capacity": {_NAME: "2"}, "allocatable": {_NAME: "2"}}
    site.add_nodes(_PLUGIN, gpus=0, status=offered)
    yield
    site.remove_nodes(_PLUGIN)


def container(gpus: int = 1, name: str = _NAME) -> list[Body]:
    resources = {"limits": {name: str(gpus)}, "requests": {"cpu": "100m"}}
    return [{"name": "main", "image": "none", "resources": resources}]


def job(team: Team, name: str, pods: int, gpus: int = 1, **more: Any) -> None:
    team.job(name, pods, 0, containers=container(gpus), **more)


def has_claim(pod: Body) -> bool:
    return "extendedResourceClaimStatus" in pod["status"]


def test_pod_gets_the_devices_that_kube_scheduler_chooses(team: Team) -> None:
    team.pod("one", 0, containers=container(2))
    [node] = team.await_bound(1).values()
    assert [pool for pool, _ in team.allocated()] == [node, node]
    assert has_claim(team.pods()["one"])


def test_name_that_every_class_has_does_as_well(team: Team) -> None:
    name = f"deviceclass.resource.kubernetes.io/{GPU_CLASS}"
    team.pod("one", 0, containers=container(1, name))
    team.await_bound(1)
    assert len(team.allocated()) == 1


def test_job_of_several_pods_starts(team: Team) -> None:
    job(team, "work", pods=2)
    team.await_bound(2)


def test_all_gpus_are_given_at_once(team: Team) -> None:
    for index in range(8):
        team.pod(f"p{index}", 0, containers=container())
    team.await_bound(8)
    assert len(set(team.allocated())) == 8


def test_gang_starts_whole(team: Team) -> None:
    team.gang("all", 2, 0, containers=container(4))
    assert sorted(team.await_bound(2).values()) == sorted(_CLAIMS)


def test_gang_without_room_for_all_stays_gated(team: Team) -> None:
    team.gang("all", 3, 0, containers=container(4))
    team.await_condition("all", lambda condition: condition.get("reason") == "NoRoom")
    assert len(team.gated()) == 3
    assert not team.claims()


def test_limit_of_the_queue_holds(new_team: Callable[..., Team]) -> None:
    team = new_team(**_ALL_GPUS)
    team.group("more", minCount=1)
    for index in range(4):
        team.pod(f"more-{index}", 0, group="more", containers=container())
    team.await_bound(3)
    team.await_condition("more", lambda condition: condition.get("status") == "True")
    assert len(team.gated()) == 1
    for name in team.bound():
        team.delete_pod(name)
        break
    team.await_bound(3)
    eventually(lambda: not team.gated())


def test_claims_and_extended_resources_share_the_devices(team: Team) -> None:
    team.pod("claims", 3)
    team.await_bound(1)
    both = container()
    both[0]["resources"]["claims"] = [{"name": "gpus"}]
    team.pod("both", 2, containers=both)
    team.await_bound(2)
    for index in range(2):
        team.pod(f"limits-{index}", 0, containers=container())
    team.await_bound(4)
    assert len(set(team.allocated())) == 8


@pytest.mark.usefixtures("plugin_node")
def test_nodes_with_a_device_plugin_serve_it_too(team: Team) -> None:
    team.gang("all", 10, 0, containers=container())
    bound = team.await_bound(10)
    assert sum(node == _PLUGIN for node in bound.values()) == 2
    pods = team.pods()
    assert all(has_claim(pods[name]) == (node != _PLUGIN) for name, node in bound.items())
    assert len(set(team.allocated())) == 8


def allow_claims(team: Team, count: int) -> None:
    """Has the API server refuse further claims, as those that kube-scheduler makes."""
    team.site.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "claims", "namespace": team.namespace},
            "spec": {"hard": {"count/resourceclaims.resource.k8s.io": str(count)}},
        }
    )
    eventually(lambda: str(count) in _quota(team))


def _quota(team: Team) -> str:
    path = "jsonpath={.status.hard}"
    return team.site.cluster.kubectl("get", "quota", "claims", "-n", team.namespace, "-o", path)


def test_gang_of_which_a_pod_gets_no_device_is_planned_anew(team: Team) -> None:
    allow_claims(team, 1)
    job(team, "work", pods=2, annotations={"scheduling.carina.dev/min-count": "2"})
    first = team.await_bound(1)
    eventually(lambda: first.keys().isdisjoint(team.pods()), within=60)
    allow_claims(team, 20)
    team.await_bound(2, within=90)


def test_bare_pod_without_a_device_is_told_of(team: Team) -> None:
    allow_claims(team, 0)
    team.pod("bare", 0, containers=container())

    def told() -> bool:
        arguments = ("get", "events", "-n", team.namespace, "-o", "jsonpath={.items[*].reason}")
        return "Stranded" in team.site.cluster.kubectl(*arguments).split()

    eventually(told, within=60)
    assert list(team.pods()) == ["bare"]

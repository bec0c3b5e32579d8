"""Pods of queues start on a real control plane: alone, in gangs, of Jobs."""

from collections.abc import Iterator

import pytest

from controller.names import NODE_ANNOTATION
from tests.integration.controller.live.site import Site, Team

_NODES = [f"starts-{index}" for index in range(4)]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    site.add_nodes(*_NODES, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def test_pod_gets_devices_and_is_bound_where_they_are(team: Team) -> None:
    team.pod("one", gpus=2)
    [node] = team.await_bound(1).values()
    assert [pool for pool, _ in team.allocated()] == [node, node]
    [claim] = team.claims().values()
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["one"]


def test_pod_that_nobody_replaces_is_not_pinned(team: Team) -> None:
    team.pod("bare")
    team.await_bound(1)
    pod = team.pods()["bare"]
    assert "affinity" not in pod["spec"]
    assert pod["metadata"]["annotations"][NODE_ANNOTATION] == pod["spec"]["nodeName"]


def test_pod_of_a_job_is_pinned_to_its_node(team: Team) -> None:
    team.job("work", pods=2)
    team.await_bound(2)
    for pod in team.pods().values():
        required = pod["spec"]["affinity"]["nodeAffinity"]
        [term] = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchFields"] == [
            {"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}
        ]


def test_gang_starts_whole(team: Team) -> None:
    team.gang("all", pods=4, gpus=4)
    assert sorted(team.await_bound(4).values()) == sorted(_NODES)
    team.await_condition("all", lambda condition: condition.get("status") == "True")


def test_gang_without_room_for_all_stays_gated_and_says_why(team: Team) -> None:
    team.gang("all", pods=5, gpus=4)
    team.await_condition("all", lambda condition: condition.get("reason") == "NoRoom")
    assert len(team.gated()) == 5
    assert team.allocated() == []


def test_claim_of_a_template_without_the_label_gets_its_finalizer(team: Team) -> None:
    template = team.template(3, labelled=False)
    team.pod("one", gpus=3)
    assert template == "gpus-3"
    team.await_bound(1)
    [claim] = team.claims().values()
    assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]


def test_devices_are_free_again_after_the_pod(team: Team) -> None:
    team.gang("first", pods=4, gpus=4)
    team.await_bound(4)
    team.pod("second", gpus=4)
    for index in range(4):
        team.delete_pod(f"first-{index}")
    team.await_bound(1, "second")


def test_pods_without_gpus_start_too(team: Team) -> None:
    team.gang("cpus", pods=3, gpus=0)
    team.await_bound(3)

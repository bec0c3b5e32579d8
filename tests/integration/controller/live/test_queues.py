"""Queues share a real cluster: weights, reclaim, preemption, consolidation, growth."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.eventually import eventually
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODES = [f"queues-{index}" for index in range(4)]
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """Four nodes of four GPUs."""
    site.add_nodes(*_NODES, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def quota(gpus: int, **more: object) -> list[dict[str, object]]:
    return [{"deviceClass": GPU_CLASS, "quota": gpus, **more}]


def priority_class(site: Site, name: str, value: int) -> str:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    site.cluster.apply({**body, "metadata": {"name": name}, "value": value})
    return name


def test_queues_share_by_weight_what_nobody_is_guaranteed(new_team: NewTeam) -> None:
    heavy = new_team(resources=quota(0, weight=3))
    light = new_team(resources=quota(0, weight=1))
    heavy.job("work", pods=16)
    light.job("work", pods=16)
    eventually(
        lambda: (len(heavy.bound()), len(light.bound())) == (12, 4), within=2 * PLACED_WITHIN
    )


def test_queue_gets_its_quota_back_from_one_that_has_more(new_team: NewTeam) -> None:
    owner, borrower = new_team(resources=quota(8)), new_team(resources=quota(8))
    borrower.job("borrows", pods=16)
    borrower.await_bound(16)
    owner.gang("owns", pods=2, gpus=4)
    owner.await_bound(2)
    # The Job makes others in their place much later: its back-off doubles with every evicted pod.
    eventually(lambda: len(borrower.bound()) == 8, within=PLACED_WITHIN)


def test_limit_holds_a_queue_back(new_team: NewTeam) -> None:
    team = new_team(resources=quota(0, limit=3))
    team.gang("many", pods=5, least=0)
    team.await_bound(3)
    condition = team.await_condition(
        "many", lambda condition: "limit" in condition.get("message", ""), kind="AllPodsPlaced"
    )
    assert condition["status"] == "False"


def test_higher_priority_preempts_and_budgets_are_respected(
    new_team: NewTeam, site: Site, kubelet: HollowKubelet
) -> None:
    high = priority_class(site, "queues-high", 1000)
    team = new_team(resources=quota(16))
    team.job("guarded", pods=2, gpus=4)
    team.job("free", pods=2, gpus=4)
    team.await_bound(4)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": team.namespace},
        "spec": {
            "maxUnavailable": 0,
            "selector": {"matchLabels": {"job-name": "guarded"}},
        },
    }
    site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(budget))
    guarded = team.bound("guarded")
    team.gang("urgent", pods=2, gpus=4, priorityClassName=high)
    team.await_bound(2, "urgent")
    assert team.bound("guarded") == guarded
    assert team.bound("free") == {}


def test_devices_of_a_pod_that_is_leaving_are_given_to_nobody(
    new_team: NewTeam, site: Site, kubelet: HollowKubelet
) -> None:
    high = priority_class(site, "queues-higher", 2000)
    team = new_team(resources=quota(16))
    team.job("old", pods=4, gpus=4, terminationGracePeriodSeconds=300)
    for name in team.await_bound(4):
        kubelet.keep(team.namespace, name)
    team.pod("new", gpus=4, priorityClassName=high)
    [leaving] = eventually(
        lambda: [
            name for name, body in team.pods().items() if body["metadata"].get("deletionTimestamp")
        ],
        within=PLACED_WITHIN,
    )
    assert team.gated("new") == {"new"}
    kubelet.release(team.namespace, leaving)
    team.await_bound(1, "new")


def test_pods_move_so_that_a_larger_one_fits(new_team: NewTeam, site: Site) -> None:
    team = new_team(resources=quota(16))
    team.job("small", pods=8, gpus=2)  # two on each node
    team.await_bound(8)
    by_node: dict[str, list[str]] = {}
    for name, node in team.bound("small").items():
        by_node.setdefault(node, []).append(name)
    site.cluster.kubectl(
        *("patch", "job", "small", "--namespace", team.namespace, "--type=merge"),
        *("-p", json.dumps({"spec": {"parallelism": 8}})),
    )
    left = {node: names[0] for node, names in sorted(by_node.items())[:2]}
    for name in left.values():
        site.cluster.kubectl("label", "pod", name, "--namespace", team.namespace, "leaves=yes")
    # Two nodes are half free, since two of the pods have finished.
    for name in left.values():
        finish(team, name)
    team.pod("large", gpus=4)
    team.await_bound(1, "large")
    eventually(lambda: len(team.bound("small")) >= 6, within=PLACED_WITHIN)


def finish(team: Team, name: str) -> None:
    """Has a pod end with success."""
    status = {"status": {"phase": "Succeeded"}}
    team.site.cluster.kubectl(
        *("patch", "pod", name, "--namespace", team.namespace, "--subresource=status"),
        *("--type=merge", "-p", json.dumps(status)),
    )


def test_elastic_group_starts_with_its_minimum_and_grows(new_team: NewTeam) -> None:
    team = new_team()
    team.gang("first", pods=3, gpus=4)
    team.await_bound(3)
    team.gang("grows", pods=8, gpus=1, least=2)
    team.await_bound(4, "grows")
    for index in range(3):
        team.delete_pod(f"first-{index}")
    team.await_bound(8, "grows")


def test_group_that_lost_pods_is_evicted_for_a_group_that_needs_its_devices(
    new_team: NewTeam,
) -> None:
    team = new_team()
    team.group("pair", minCount=2, stalenessGracePeriod="1s")
    for name in ("pair-0", "pair-1"):
        team.pod(name, group="pair")
    team.await_bound(2)
    team.delete_pod("pair-0")
    team.gang("whole", pods=4, gpus=4)
    team.await_bound(4, "whole")
    assert not team.bound("pair")


def test_unknown_queue_is_said_and_the_pod_stays_gated(new_team: NewTeam, site: Site) -> None:
    team = new_team()
    nowhere = Team(site, team.namespace, "nowhere")
    nowhere.group("lost", minCount=1)
    nowhere.pod("lost-0", group="lost")
    condition = nowhere.await_condition(
        "lost", lambda condition: condition.get("reason") == "UnknownQueue"
    )
    assert "nowhere" in condition["message"]
    assert nowhere.gated() == {"lost-0"}

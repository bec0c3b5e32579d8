"""On a real cluster a queue has its quota back in time, whatever the borrowing tenant does."""

from collections.abc import Callable, Iterator

import pytest

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.client import MergePatch
from controller.names import QUEUES
from tests.eventually import eventually
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODES = [f"giving-{index}" for index in range(2)]
_YEAR = 31_536_000
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """Two nodes of four GPUs."""
    site.add_nodes(*_NODES, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def quota(gpus: int) -> list[dict[str, object]]:
    return [{"deviceClass": GPU_CLASS, "quota": gpus}]


def giving(team: Team) -> str:
    """What the Queue of a team says of what keeps it from giving back."""
    status = team.client.get(QUEUES, team.queue).get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    return str(conditions.get("GivesBack", {}).get("message", ""))


def graces(team: Team) -> set[int]:
    """The grace periods with which pods are being deleted."""
    found = (body["metadata"] for body in team.pods().values())
    return {of["deletionGracePeriodSeconds"] for of in found if "deletionTimestamp" in of}


def slow_pods(team: Team, kubelet: HollowKubelet) -> list[str]:
    """Pods on all GPUs that have a year to end, and use it."""
    names = [f"slow-{index}" for index in range(2)]
    for name in names:
        team.pod(name, gpus=4, terminationGracePeriodSeconds=_YEAR)
        kubelet.keep(team.namespace, name)
    team.await_bound(2)
    return names


def test_a_reclaimed_pod_has_the_grace_of_its_queue_to_end(
    new_team: NewTeam, kubelet: HollowKubelet
) -> None:
    owner = new_team(resources=quota(8))
    thief = new_team(resources=quota(0), evictionGrace="7s")
    slow = slow_pods(thief, kubelet)
    owner.gang("owns", pods=2, gpus=4)
    eventually(lambda: graces(thief) == {7}, within=PLACED_WITHIN)
    for name in slow:
        kubelet.release(thief.namespace, name)
    owner.await_bound(2)


def test_a_pod_that_was_deleted_with_a_long_grace_is_made_to_end_sooner(
    new_team: NewTeam, kubelet: HollowKubelet, site: Site
) -> None:
    owner = new_team(resources=quota(8))
    thief = new_team(resources=quota(0), evictionGrace="7s")
    slow = slow_pods(thief, kubelet)
    site.cluster.kubectl("delete", "pod", *slow, "-n", thief.namespace, "--wait=false")
    eventually(lambda: graces(thief) == {_YEAR}, within=PLACED_WITHIN)
    owner.gang("owns", pods=2, gpus=4)
    eventually(lambda: graces(thief) == {7}, within=PLACED_WITHIN)
    for name in slow:
        kubelet.release(thief.namespace, name)
    owner.await_bound(2)


def test_a_disruption_budget_guards_what_is_borrowed_for_a_time_only(
    new_team: NewTeam, kubelet: HollowKubelet, site: Site
) -> None:
    owner = new_team(resources=quota(8))
    thief = new_team(resources=quota(0), evictionGrace="7s")
    forbid_evictions(site, thief)
    slow = slow_pods(thief, kubelet)
    owner.gang("owns", pods=2, gpus=4)
    queue = f"a disruption budget of queue {thief.queue}"
    owner.await_condition("owns", lambda condition: queue in condition.get("message", ""))
    eventually(lambda: f"{thief.namespace}/mine" in giving(thief), within=PLACED_WITHIN)
    eventually(lambda: graces(thief) == {7}, within=7 + PLACED_WITHIN)
    for body in thief.pods().values():
        conditions = {one["type"]: one for one in body["status"]["conditions"]}
        assert conditions["DisruptionTarget"]["reason"] == "ReclaimedByCarina"
        assert conditions["PodScheduled"]["status"] == "True"
    for name in slow:
        kubelet.release(thief.namespace, name)
    owner.await_bound(2)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "not deleted"])
def test_pods_that_have_ended_hold_nothing_while_finalizers_keep_them(
    new_team: NewTeam, kubelet: HollowKubelet, site: Site, phase: str, *, is_deleted: bool
) -> None:
    owner, thief = new_team(resources=quota(8)), new_team(resources=quota(0))
    ended = slow_pods(thief, kubelet)
    for name in ended:
        keep_for_ever(site, thief, name)
    if is_deleted:
        site.cluster.kubectl("delete", "pod", *ended, "-n", thief.namespace, "--wait=false")
    for name in ended:
        kubelet.end(thief.namespace, name, phase)
    owner.gang("owns", pods=2, gpus=4)
    owner.await_bound(2)
    assert thief.pods().keys() == set(ended)
    for name in ended:
        let_go(site, thief, name)
        kubelet.release(thief.namespace, name)


def test_nodes_where_deleted_pods_do_not_end_are_named(
    new_team: NewTeam, kubelet: HollowKubelet, site: Site
) -> None:
    thief = new_team(resources=quota(0), evictionGrace="1s")
    slow = slow_pods(thief, kubelet)
    nodes = sorted(thief.bound().values())
    delete = ["delete", "pod", *slow, "-n", thief.namespace, "--wait=false", "--grace-period=1"]
    site.cluster.kubectl(*delete)
    eventually(
        lambda: f"do not end on these nodes: {', '.join(nodes)}" in giving(thief),
        within=61 + PLACED_WITHIN,
    )
    for name in slow:
        kubelet.release(thief.namespace, name)
    eventually(lambda: giving(thief).startswith("nothing keeps it"), within=PLACED_WITHIN)


def keep_for_ever(site: Site, team: Team, name: str) -> None:
    """Gives a pod a finalizer that nobody removes."""
    keep = MergePatch({"metadata": {"finalizers": ["test.carina.dev/keep"]}})
    site.client.patch(PODS, name, keep, namespace=team.namespace)


def let_go(site: Site, team: Team, name: str) -> None:
    """Removes the finalizer of a pod."""
    patch = MergePatch({"metadata": {"finalizers": None}})
    site.client.patch(PODS, name, patch, namespace=team.namespace)


def forbid_evictions(site: Site, team: Team) -> None:
    """A disruption budget that lets no pod of a team be evicted."""
    site.cluster.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "mine", "namespace": team.namespace},
            "spec": {"maxUnavailable": 0, "selector": {}},
        }
    )

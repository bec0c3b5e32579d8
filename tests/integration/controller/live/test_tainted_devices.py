"""Devices that get taints while pods of queues have them, on a real control plane."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from carina_dra.kube.api_resource import PODS, RESOURCE_SLICES
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from tests.eventually import eventually
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import PLACED_WITHIN, Site, Team

_NODES: Final = ("tainted-0", "tainted-1")
_LOST: Final = {"key": "gpu.carina.dev/lost", "value": "xid-79", "effect": "NoExecute"}
_DRAIN: Final = {
    "key": "gpu.carina.dev/drain",
    "value": "recovery-action-4",
    "effect": "NoSchedule",
}


@pytest.fixture(autouse=True)
def nodes(site: Site) -> Iterator[None]:
    site.add_nodes(*_NODES, gpus=2)
    yield
    site.remove_nodes(*_NODES)


def taint(site: Site, node: str, device: str, *taints: Body) -> None:
    """Publishes the devices of a node again, one of them with these taints."""
    published = site.client.get(RESOURCE_SLICES, node)
    devices = [
        {**known, "taints": list(taints)} if known["name"] == device else known
        for known in published["spec"]["devices"]
    ]
    site.client.patch(RESOURCE_SLICES, node, MergePatch({"spec": {"devices": devices}}))


def device_of(team: Team, pod: str) -> tuple[str, str]:
    """The only device of a pod, as pool and name."""
    [result] = [
        result
        for claim in team.claims().values()
        if any(entry["name"] == pod for entry in claim["status"].get("reservedFor", ()))
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    return result["pool"], result["device"]


def by_limits(gpus: int = 1) -> list[Body]:
    """Containers that ask for GPUs by an extended resource."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "100m"}}
    return [{"name": "main", "image": "none", "resources": resources}]


def budget(team: Team, name: str = "all") -> None:
    """A budget that allows no pod of a team to be evicted."""
    team.site.cluster.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": team.namespace},
            "spec": {"maxUnavailable": 0, "selector": {}},
        }
    )


def events(team: Team, reason: str) -> str:
    arguments = ("get", "events", "-n", team.namespace, f"--field-selector=reason={reason}")
    return team.site.cluster.kubectl(*arguments, "-o", "jsonpath={.items[*].message}")


def test_pod_with_an_extended_resource_is_evicted_and_gets_another_gpu(
    site: Site, team: Team
) -> None:
    with site.controller():
        team.job("train", 1, 0, containers=by_limits())
        [first] = team.await_bound(1)
        node, device = device_of(team, first)
        taint(site, node, device, _LOST)
        eventually(lambda: first not in team.pods(), within=PLACED_WITHIN)
        [second] = team.await_bound(1)
        assert device_of(team, second) != (node, device)
        text = "gpu.carina.dev/lost=xid-79:NoExecute"
        eventually(lambda: text in events(team, "DeviceTainted"), within=PLACED_WITHIN)


def unqueued(team: Team, name: str) -> None:
    """A pod that kube-scheduler alone decides on."""
    team.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": team.namespace},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": by_limits()},
        },
    )


def test_pod_without_a_queue_is_evicted_only_by_the_setting(site: Site, team: Team) -> None:
    unqueued(team, "alone")
    team.await_bound(1)
    node, device = device_of(team, "alone")
    with site.controller():
        taint(site, node, device, _LOST)
        team.job("witness", 1, 0, containers=by_limits())
        [witness] = team.await_bound(1, "witness")
        taint(site, *device_of(team, witness), _LOST)
        eventually(lambda: witness not in team.pods(), within=PLACED_WITHIN)
        assert "alone" in team.pods(), "though the controller has seen the taint"
    with site.controller(evict_unqueued="true"):
        eventually(lambda: "alone" not in team.pods(), within=PLACED_WITHIN)


def test_budget_is_asked_and_then_overridden(
    site: Site, team: Team, kubelet: HollowKubelet
) -> None:
    with site.controller(device_eviction_grace_seconds=3):
        budget(team)
        team.job("train", 1, 0, containers=by_limits())
        [pod] = team.await_bound(1)
        kubelet.keep(team.namespace, pod)
        taint(site, *device_of(team, pod), _LOST)

        def condition() -> Body | None:
            found = team.pods()[pod]
            if not found["metadata"].get("deletionTimestamp"):
                return None
            target: Body
            [target] = [
                known
                for known in found["status"]["conditions"]
                if known["type"] == "DisruptionTarget"
            ]
            return target

        found = eventually(condition, within=PLACED_WITHIN)
        assert found is not None
        assert found["reason"] == "DeviceTainted"
        kubelet.release(team.namespace, pod)
        eventually(lambda: "a disruption budget refused" in events(team, "DeviceTainted"))


def devices_of(team: Team) -> set[tuple[str, str]]:
    return set(team.allocated())


def says(text: str, condition: Body) -> bool:
    return text in condition.get("message", "")


def is_degraded(condition: Body) -> bool:
    return condition.get("status") == "True"


def test_gang_is_degraded_and_goes_on(site: Site, team: Team) -> None:
    with site.controller():
        team.gang("gang", 2)
        team.await_bound(2)
        node, device = device_of(team, "gang-1")
        taint(site, node, device, _DRAIN)
        found = team.await_condition("gang", is_degraded, "Degraded")
        assert found["message"] == (
            f"pod gang-1 on node {node}: device gpu.carina.dev/{node}/{device} has the taint "
            "gpu.carina.dev/drain=recovery-action-4:NoSchedule"
        )
        assert set(team.bound()) == {"gang-0", "gang-1"}
        taint(site, node, device)
        eventually(lambda: team.condition("gang", "Degraded") == {}, within=PLACED_WITHIN)


def test_taint_for_information_degrades_nobody(site: Site, team: Team) -> None:
    with site.controller():
        team.gang("gang", 1)
        team.gang("other", 1)
        team.await_bound(2)
        taint(site, *device_of(team, "gang-0"), {**_DRAIN, "effect": "None"})
        taint(site, *device_of(team, "other-0"), _DRAIN)
        team.await_condition("other", is_degraded, "Degraded")
        assert team.condition("gang", "Degraded") == {}


def test_gang_is_replaced_once_however_often_the_taint_comes(site: Site, team: Team) -> None:
    annotations = {
        "scheduling.carina.dev/min-count": "2",
        "scheduling.carina.dev/on-device-failure": "replace",
    }
    with site.controller():
        team.job("gang", 2, annotations=annotations)
        first = team.await_bound(2)
        lost = device_of(team, min(first))
        taint(site, *lost, _DRAIN)
        eventually(lambda: first.keys().isdisjoint(team.pods()), within=PLACED_WITHIN)
        second = team.await_bound(2)
        assert lost not in devices_of(team)
        eventually(lambda: "planned again" in events(team, "Evicted"), within=PLACED_WITHIN)
        team.gang("witness", 1)
        team.await_bound(1, "witness")
        for value in ("again", "and-again", "once-more"):
            taint(site, *device_of(team, min(second)), {**_DRAIN, "value": value})
            taint(site, *device_of(team, "witness-0"), {**_DRAIN, "value": value})
            team.await_condition("witness", partial(says, f"drain={value}"), "Degraded")
            taint(site, *device_of(team, min(second)))
        assert team.bound("gang").keys() == second.keys()


def test_tenant_cannot_keep_a_lost_device_by_disowning_its_claim(site: Site, team: Team) -> None:
    namespace, user = team.namespace, "tenant"
    site.cluster.kubectl(
        *("create", "rolebinding", user, "-n", namespace, "--clusterrole=edit", f"--user={user}")
    )
    with site.controller():
        team.job("train", 1, 0, containers=by_limits())
        [pod] = team.await_bound(1)
        lost = device_of(team, pod)
        site.cluster.kubectl(
            *("patch", "resourceclaim", *team.claims(), "-n", namespace, f"--as={user}"),
            *("--type=merge", "-p", '{"metadata":{"ownerReferences":null}}'),
        )
        taint(site, *lost, _LOST)
        eventually(lambda: pod not in team.pods(), within=PLACED_WITHIN)

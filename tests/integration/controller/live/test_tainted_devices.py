"""Devices that get taints while pods of queues have them, on a real control plane."""

from collections.abc import Iterator
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

"""Exclusive mode on a real control plane, with the permissions of the component `exclusive`."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from carina_dra.kube.api_resource import DEVICE_TAINT_RULES, PODS
from carina_dra.kube.errors import NotFound
from controller.act.exclusive_taint import RULE
from simulation.kubernetes.cluster import DEPLOY
from tests.eventually import eventually
from tests.integration.controller.live.site import Site, Team

_NODE = "exclusive-0"
_EXCLUSIVE = Path(__file__).parents[2] / "exclusive"


@pytest.fixture(scope="module", autouse=True)
def installed(site: Site) -> Iterator[None]:
    site.cluster.install_carina(_EXCLUSIVE)
    site.add_nodes(_NODE, gpus=4)
    yield
    site.remove_nodes(_NODE)
    with suppress(NotFound):
        site.client.delete(DEVICE_TAINT_RULES, RULE)
    for policy in ("no-shared-claims", "no-toleration"):
        site.cluster.kubectl("delete", "-f", str(DEPLOY / "exclusive" / f"{policy}.yaml"))
    site.cluster.install_carina()


def create_stock_pod(team: Team, name: str) -> None:
    """Creates a pod that no queue has, with a claim of its own."""
    template = team.template(1, labelled=False)
    pod = team.pod_spec(0)
    pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
    pod["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    metadata = {"name": name, "namespace": team.namespace}
    team.client.create(PODS, {"metadata": metadata, "spec": pod})


def verdict(team: Team, name: str) -> str | None:
    """Why kube-scheduler has no node for a pod."""
    for condition in team.pods()[name].get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return None


def rules(site: Site) -> list[str]:
    return [body["metadata"]["name"] for body in site.client.list(DEVICE_TAINT_RULES).items]


def test_only_pods_of_queues_get_devices(site: Site, team: Team) -> None:
    with site.controller(exclusive=True):
        eventually(lambda: rules(site) == [RULE])
        create_stock_pod(team, "stock")
        refusal = eventually(lambda: verdict(team, "stock") or "")
        team.pod("queued", gpus=2)
        team.await_bound(1, "queued")
        assert "cannot allocate all claims" in refusal
        assert not team.bound("stock")


def test_rule_outlives_the_controller_and_goes_with_the_mode(site: Site) -> None:
    with site.controller(exclusive=True):
        eventually(lambda: rules(site) == [RULE])
    assert rules(site) == [RULE]
    with site.controller(exclusive=False):
        eventually(lambda: not rules(site))


def test_pods_that_ask_by_limits_are_refused_with_the_remedy(site: Site, team: Team) -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "100m"}}
    container = {"name": "main", "image": "none", "resources": resources}
    with site.controller(exclusive=True):
        eventually(lambda: rules(site) == [RULE])
        team.gang("limits", 1, 0, containers=[container])
        refusal = team.await_condition(
            "limits", lambda condition: condition.get("reason") == "ExclusiveDevices"
        )
        assert "in exclusive mode" in refusal["message"]
        assert team.gated() == {"limits-0"}

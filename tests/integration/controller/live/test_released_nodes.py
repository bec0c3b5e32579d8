"""Nodes whose devices an administrator releases, on a real control plane."""

from collections.abc import Iterator
from typing import Final

import pytest

from carina_dra.kube.api_resource import NODES, PODS
from carina_dra.kube.client import MergePatch
from tests.eventually import eventually
from tests.integration.controller.live.site import DRIVER, PLACED_WITHIN, Site, Team

_NODES: Final = ("released-0", "released-1")


@pytest.fixture(autouse=True)
def nodes(site: Site) -> Iterator[None]:
    site.add_nodes(*_NODES, gpus=2)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def annotate(site: Site, node: str, **annotations: str | None) -> None:
    found = {f"{DRIVER}/{name.replace('_', '-')}": value for name, value in annotations.items()}
    site.client.patch(NODES, node, MergePatch({"metadata": {"annotations": found}}))


def unqueued(team: Team, name: str, node: str) -> None:
    """A pod on a node with a GPU, that kube-scheduler alone decides on."""
    metadata = {"name": name, "namespace": team.namespace}
    spec = {
        **team.pod_spec(),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [node]}
                            ]
                        }
                    ]
                }
            }
        },
    }
    team.client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )


def test_groups_leave_a_released_node_and_start_there_once_it_is_restored(
    site: Site, team: Team
) -> None:
    team.job("train", 1)
    [first] = team.await_bound(1)
    node = team.bound()[first]
    [other] = set(_NODES) - {node}
    unqueued(team, "alone", node)
    team.await_bound(2)
    annotate(site, node, release="new driver")
    eventually(lambda: first not in team.pods(), within=PLACED_WITHIN)
    assert set(team.await_bound(1, "train").values()) == {other}
    team.gang("wide", 2)
    team.await_condition("wide", lambda condition: "released" in condition.get("message", ""))
    assert "alone" in team.bound(), "since it has no queue"
    annotate(site, node, release=None)
    assert node in team.await_bound(2, "wide").values()


def test_pods_without_a_queue_leave_if_all_are_to_go(site: Site, team: Team) -> None:
    unqueued(team, "alone", _NODES[0])
    team.await_bound(1)
    annotate(site, _NODES[0], release="new driver", release_evict="all")
    eventually(lambda: "alone" not in team.pods(), within=PLACED_WITHIN)

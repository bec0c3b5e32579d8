"""What a Queue says of itself when something is wrong with it, on a real control plane."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from controller.names import QUEUES
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODE = "conditions-0"
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """A node of four GPUs."""
    site.add_nodes(_NODE, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(_NODE)


def reasons(team: Team) -> dict[str, str]:
    """The reasons of the conditions of the Queue, by type."""
    return {kind: each["reason"] for kind, each in _conditions(team).items()}


def message(team: Team, kind: str) -> str:
    text: str = _conditions(team)[kind]["message"]
    return text


def _conditions(team: Team) -> dict[str, dict[str, Any]]:
    conditions = team.client.get(QUEUES, team.queue).get("status", {}).get("conditions", ())
    return {each["type"]: each for each in conditions}


def becomes(team: Team, **expected: str) -> None:
    eventually(lambda: expected.items() <= reasons(team).items(), within=PLACED_WITHIN)


def test_names_that_do_not_exist_are_said_until_they_do(new_team: NewTeam, site: Site) -> None:
    names = {"names": ["conditions-later"]}
    team = new_team(resources=[{"deviceClass": "gpu.carina.dv"}], namespaces=names)
    becomes(team, Active="TakesWork", ReferencesResolved="NotFound", QuotasCovered="Covered")
    assert "DeviceClass gpu.carina.dv does not exist" in message(team, "ReferencesResolved")
    assert GPU_CLASS in message(team, "ReferencesResolved")
    assert "namespace conditions-later does not exist" in message(team, "ReferencesResolved")

    site.cluster.create_namespace("conditions-later")
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    body = {**device_class, "metadata": {"name": "gpu.carina.dv"}, "spec": {}}
    site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    try:
        becomes(team, Active="TakesWork", ReferencesResolved="Found", QuotasCovered="Covered")
    finally:
        site.cluster.kubectl("delete", "deviceclass", "gpu.carina.dv")
        site.cluster.kubectl("delete", "namespace", "conditions-later", "--wait=false")


def test_quotas_that_come_to_more_than_there_is_are_said(new_team: NewTeam) -> None:
    parent = new_team(resources=[{"deviceClass": GPU_CLASS, "quota": 5}])
    child = [{"deviceClass": GPU_CLASS, "quota": 6}]
    below = new_team(resources=child, parent=parent.queue)
    becomes(parent, Active="HasChildren", ReferencesResolved="Found", QuotasCovered="ExceededBelow")
    becomes(below, Active="TakesWork", ReferencesResolved="Found", QuotasCovered="Covered")
    said = message(parent, "QuotasCovered")
    assert "the queues below it have a quota of 6 together, and it has 5" in said
    assert "and the cluster has 4" in said


def test_a_queue_that_admits_nobody_says_so(site: Site, new_team: NewTeam) -> None:
    team = new_team()
    change = [{"op": "remove", "path": "/spec/namespaces"}]
    patch = partial(site.cluster.kubectl, "patch", "queue", team.queue, "--type=json")
    patch(f"--patch={json.dumps(change)}")
    eventually(lambda: reasons(team).get("Active") == "NoNamespaces", within=PLACED_WITHIN)

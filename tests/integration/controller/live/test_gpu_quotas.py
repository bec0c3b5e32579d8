"""A tenant's partitions and shares stay within what its queue may have of GPUs."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.resource import encode
from controller.engine.simulate.fleet import GpuUse, NodeTemplate
from controller.names import QUEUES
from simulation.kubernetes.cluster import fake_node
from tests.eventually import eventually
from tests.integration.controller.live.site import Site, Team

_NODE: Final = "gpu-quotas"
_FLEET: Final = NodeTemplate(
    _NODE, cpu=96_000, memory=2**40, gpus=2, devices=tuple(GpuUse), product="NVIDIA H100"
)
_SEVENTH: Final = "device.attributes['gpu.carina.dev'].profile == '1g.10gb'"
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """A node of two GPUs with all of their partitions and shares."""
    slices = _FLEET.slices(_NODE)
    site.client.create(NODES, fake_node(_NODE))
    for one in slices:
        site.client.create(RESOURCE_SLICES, encode(one))
    with site.controller():
        yield
    for one in slices:
        site.client.delete(RESOURCE_SLICES, one.metadata.name)
    site.client.delete(NODES, _NODE)


def _ask(team: Team, name: str, template: str) -> None:
    team.pod(name, 0, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": template}])


def _parts(team: Team) -> Fraction:
    """What the claims have of GPUs: a seventh for a partition, a half for a share."""
    parts = {"mig": Fraction(1, 7), "share": Fraction(1, 2)}
    found = (device.split("-")[2] for _, device in team.allocated())
    return sum((parts[kind] for kind in found), Fraction(0))


def test_partitions_and_shares_stay_within_a_limit_of_gpus(new_team: NewTeam) -> None:
    team = new_team(resources=[{"gpus": {}, "limit": 1}])
    seventh = team.template(
        deviceClassName="mig.gpu.carina.dev", selectors=[{"cel": {"expression": _SEVENTH}}]
    )
    half = team.template(
        deviceClassName="share.gpu.carina.dev",
        capacity={"requests": {"memory": "40Gi", "cores": "50"}},
    )
    for index in range(3):
        _ask(team, f"partition-{index}", seventh)
    team.await_bound(3)
    for index in range(2):
        _ask(team, f"share-{index}", half)
    team.await_bound(1, "share")
    for index in range(3, 7):
        _ask(team, f"partition-{index}", seventh)
    eventually(lambda: len(team.gated()) == 6 - len(team.bound("partition-")) + 2, within=20)
    assert Fraction(6, 7) < _parts(team) <= 1


def test_the_queue_says_how_much_it_has(new_team: NewTeam, site: Site) -> None:
    team = new_team(resources=[{"gpus": {}, "limit": "0.5"}])
    _ask(
        team,
        "share",
        team.template(
            deviceClassName="share.gpu.carina.dev",
            capacity={"requests": {"memory": "40Gi", "cores": "10"}},
        ),
    )
    team.await_bound(1)

    def allocated() -> list[object]:
        status = site.client.get(QUEUES, team.queue).get("status") or {}
        return [(one["gpus"], one["allocated"]) for one in status.get("resources") or ()]

    eventually(lambda: allocated() == [({}, "0.5")], within=20)


def test_gpus_that_the_queue_does_not_count_are_refused(new_team: NewTeam) -> None:
    team = new_team(resources=[{"deviceClass": "gpu.carina.dev", "limit": 2}])
    team.group("g", minCount=1)
    template = team.template(deviceClassName="mig.gpu.carina.dev")
    team.pod(
        "p", 0, group="g", resourceClaims=[{"name": "a", "resourceClaimTemplateName": template}]
    )
    condition = team.await_condition("g", lambda found: found.get("reason") == "UncountedGpus")
    assert condition["status"] == "False"
    assert team.bound() == {}

"""The API server ends while pods wait and start; when it is back, everything goes on."""

from collections.abc import Iterator

import pytest

from simulation.kubernetes.process import Process
from tests.eventually import eventually
from tests.integration.controller.live.audit import audited, left_behind
from tests.integration.controller.live.site import PLACED_WITHIN, Site, Team

_NODES = [f"restarts-{index}" for index in range(4)]
_GPUS = 4
_BACK_WITHIN = 90.0
"""Seconds until all components have found the API server again; their back-off grows."""


@pytest.fixture(scope="module", autouse=True)
def controller(site: Site) -> Iterator[Process]:
    site.add_nodes(*_NODES, gpus=_GPUS)
    # The Lease outlasts the restart, so that the process does.
    with site.controller(lease_seconds=120, renew_seconds=90, writers=1) as running:
        yield running
    site.remove_nodes(*_NODES)


def test_what_waits_and_what_runs_outlasts_a_restart(
    site: Site, team: Team, controller: Process
) -> None:
    api_server = site.cluster.control_plane.api_server
    team.gang("runs", pods=len(_NODES), gpus=_GPUS)
    team.await_bound(len(_NODES))
    team.gang("waits", pods=len(_NODES), gpus=_GPUS)
    team.await_condition("waits", lambda condition: condition.get("reason") == "NoRoom")
    api_server.stop()
    api_server.start()
    site.cluster.await_queue_policies()
    assert set(team.bound()) == {f"runs-{index}" for index in range(len(_NODES))}
    for name in team.bound():
        team.delete_pod(name)
    team.await_bound(len(_NODES), "waits", within=_BACK_WITHIN)
    controller.check()


@pytest.mark.parametrize("allocated", [1, 12])
def test_gang_starts_whole_if_the_api_server_dies_while_it_starts(
    site: Site, team: Team, controller: Process, allocated: int
) -> None:
    api_server = site.cluster.control_plane.api_server
    pods = len(_NODES) * _GPUS
    with audited(site.client):
        team.gang("gang", pods=pods)
        eventually(lambda: len(team.allocated()) >= allocated, within=PLACED_WITHIN)
        api_server.kill()
        api_server.start()
        site.cluster.await_queue_policies()
        team.await_bound(pods, within=_BACK_WITHIN)
        eventually(lambda: not left_behind(team.pods(), team.claims()), within=PLACED_WITHIN)
        assert len(set(team.allocated())) == pods
    controller.check()

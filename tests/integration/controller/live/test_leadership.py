"""Two controllers, of which one leads: the other takes over when it ends, however it ends."""

import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http import HTTPStatus

import pytest

from carina_dra.kube.api_resource import LEASES
from carina_dra.kube.errors import NotFound
from simulation.kubernetes.process import Process
from tests.eventually import eventually
from tests.integration.controller.live.audit import audited, left_behind
from tests.integration.controller.live.site import PLACED_WITHIN, Site, Team, kill

_NODES = [f"leadership-{index}" for index in range(2)]
_GPUS = 8
_FREE_PORT = 9
_STARTS_WITHIN = 30.0
"""Seconds in which a process starts to lead, if nobody does."""


@pytest.fixture(scope="module", autouse=True)
def nodes(site: Site) -> Iterator[None]:
    site.add_nodes(*_NODES, gpus=_GPUS)
    yield
    site.remove_nodes(*_NODES)


@contextmanager
def leader_and_follower(site: Site, **settings: object) -> Iterator[tuple[Process, Process]]:
    """Two controllers; the first leads, and the second waits."""
    address = f"127.0.0.1:{site.cluster.state.port(_FREE_PORT)}"
    with ExitStack() as stack:
        leader = stack.enter_context(site.controller("leader", **settings))
        eventually(lambda: holder(site) == "leader", within=_STARTS_WITHIN)
        follower = stack.enter_context(
            site.controller("follower", http_address=address, **settings)
        )
        eventually(lambda: is_ready(address), within=_STARTS_WITHIN)
        yield leader, follower


def priority_class(site: Site, name: str, value: int) -> str:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    site.cluster.apply({**body, "metadata": {"name": name}, "value": value})
    return name


def is_ready(address: str) -> bool:
    """Whether a process answers that it decides, or waits until it may."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz") as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def holder(site: Site) -> str:
    """Who holds the Lease; empty if nobody does."""
    try:
        lease = site.client.get(LEASES, "carina-controller", namespace="carina-system")
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


def test_follower_leads_within_15_seconds_of_the_leaders_death(site: Site, team: Team) -> None:
    with leader_and_follower(site) as (leader, _):
        team.pod("before")
        team.await_bound(1)
        kill(leader)
        eventually(lambda: holder(site) == "follower", within=15.0)
        team.pod("after")
        team.await_bound(2)


def test_follower_leads_within_3_seconds_of_the_leaders_orderly_end(site: Site, team: Team) -> None:
    with leader_and_follower(site) as (leader, _):
        team.pod("before")
        team.await_bound(1)
        leader.popen.send_signal(signal.SIGTERM)
        eventually(lambda: holder(site) == "follower", within=3.0)
        team.pod("after")
        team.await_bound(2)
        assert leader.popen.wait(_STARTS_WITHIN) == 0


def test_leader_that_was_paused_beyond_its_lease_writes_nothing_more(
    site: Site, new_team: Callable[..., Team]
) -> None:
    """It is paused between the claims of a gang; their devices are others' when it continues.

    The claims that are not written have not changed meanwhile, so that their versions would let the
    writes pass.
    """
    high = priority_class(site, "leadership-high", 1000)
    gang = new_team(namespaces={"selector": {}})
    others = replace(new_team(), queue=gang.queue)
    everything = len(_NODES) * _GPUS
    timing = {"lease_seconds": 3, "renew_seconds": 2, "retry_seconds": 0.5}
    with ExitStack() as stack:
        stack.enter_context(audited(site.client))
        leader = stack.enter_context(site.controller("leader", writers=1, **timing))
        eventually(lambda: holder(site) == "leader", within=_STARTS_WITHIN)
        gang.gang("gang", pods=everything)
        eventually(gang.allocated, within=PLACED_WITHIN)
        leader.popen.send_signal(signal.SIGSTOP)
        assert 0 < len(gang.allocated()) < everything, "paused too late"
        for index in range(everything):
            others.pod(f"other-{index}", priorityClassName=high)
        stack.enter_context(site.controller("follower", **timing))
        others.await_bound(everything)
        leader.popen.send_signal(signal.SIGCONT)
        assert leader.popen.wait(_STARTS_WITHIN) == 1
        eventually(lambda: gang.allocated() == [], within=PLACED_WITHIN)
        assert len(gang.gated()) == everything
        assert len(set(others.allocated())) == everything
        assert not left_behind(others.pods(), others.claims())

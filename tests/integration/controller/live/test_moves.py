"""What moves keeps its place until its Job has made another pod."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from carina_dra.kube.body import Body
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODES: Final = ["moves-0", "moves-1"]
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """Two nodes of four GPUs."""
    site.add_nodes(*_NODES, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def quota(gpus: int) -> list[Body]:
    return [{"deviceClass": GPU_CLASS, "quota": gpus}]


def test_nobody_else_gets_the_place_before_the_job_has_made_another_pod(
    new_team: NewTeam,
) -> None:
    moved = new_team(resources=quota(4), placement="spread")
    large, other = new_team(resources=quota(4)), new_team(resources=quota(0))
    for number in range(2):
        moved.job(f"long{number}", 1, gpus=2)
        moved.await_bound(number + 1)
    first = set(moved.bound())
    large.job("large", 1, gpus=4)
    eventually(lambda: not first <= moved.bound().keys(), within=PLACED_WITHIN)
    other.job("opportunist", 2, gpus=1)
    large.await_bound(1)
    moved.await_bound(2, within=3 * PLACED_WITHIN)
    assert set(moved.bound()) != first, "its Job made another pod"
    assert not other.bound()
    events = moved.site.cluster.kubectl("get", "events", "--namespace", moved.namespace)
    assert "moves to another node" in events

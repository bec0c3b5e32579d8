"""Queues that are deleted or emptied while groups run in them, on a real control plane."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from carina_dra.cli import command
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from carina_dra.kube.errors import NotFound
from controller.commands.listed import QUEUE
from controller.names import QUEUE_FINALIZER, QUEUES
from tests.eventually import eventually
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

COMMANDS = {"queue": QUEUE}
_NODE = "ending-0"
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """A node of four GPUs."""
    site.add_nodes(_NODE, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(_NODE)


@pytest.fixture
def kubeconfig(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster for commands."""
    monkeypatch.setenv("KUBECONFIG", str(site.cluster.kubeconfig))


def quota(gpus: int) -> list[dict[str, object]]:
    return [{"deviceClass": GPU_CLASS, "quota": gpus}]


def queue_of(team: Team) -> Body:
    """The Queue; empty if it is gone."""
    try:
        return team.client.get(QUEUES, team.queue)
    except NotFound:
        return {}


def active(team: Team) -> dict[str, Any]:
    """The condition Active of the Queue."""
    conditions = queue_of(team).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Active"), {})


def is_held(team: Team) -> bool:
    return QUEUE_FINALIZER in queue_of(team)["metadata"].get("finalizers", ())


def delete_in_use(team: Team) -> None:
    """Deletes the Queue once its groups hold it."""
    eventually(partial(is_held, team), within=PLACED_WITHIN)
    team.client.delete(QUEUES, team.queue)


def test_a_deleted_queue_stays_until_its_last_group_has_ended(new_team: NewTeam) -> None:
    team = new_team(resources=quota(4))
    team.pod("runs")
    team.await_bound(1)
    delete_in_use(team)
    team.pod("late")

    eventually(lambda: active(team).get("reason") == "Deleted", within=PLACED_WITHIN)
    assert active(team)["status"] == "False"
    assert f"1 group holds it: {team.namespace}/pod/runs; " in active(team)["message"]
    assert team.gated() == {"late"}

    team.delete_pod("runs")
    eventually(lambda: not queue_of(team), within=PLACED_WITHIN)
    assert team.gated() == {"late"}


def test_a_queue_without_groups_is_gone_at_once(new_team: NewTeam) -> None:
    team = new_team()
    team.client.delete(QUEUES, team.queue)
    assert not queue_of(team)


def test_a_deleted_queue_gives_back_what_it_was_guaranteed(new_team: NewTeam) -> None:
    owner, ending = new_team(resources=quota(4)), new_team(resources=quota(4))
    ending.job("borrows", pods=4)
    ending.await_bound(4)
    delete_in_use(ending)

    owner.gang("owns", pods=2, gpus=2)

    owner.await_bound(2)
    eventually(lambda: not queue_of(ending), within=PLACED_WITHIN)


def test_an_emptied_queue_loses_its_groups_and_ends(
    new_team: NewTeam, kubelet: HollowKubelet
) -> None:
    team = new_team(resources=quota(4))
    team.job("work", pods=4)
    team.await_bound(4)
    delete_in_use(team)

    change = MergePatch({"spec": {"hold": "HoldAndDrain"}})
    team.client.patch(QUEUES, team.queue, change)

    eventually(lambda: not team.bound() and not queue_of(team), within=2 * PLACED_WITHIN)


def test_a_queue_is_stopped_and_resumed(
    new_team: NewTeam, site: Site, capsys: pytest.CaptureFixture[str], kubeconfig: None
) -> None:
    team = new_team(resources=quota(4))
    team.pod("runs")
    team.await_bound(1)

    assert command.run(["queue", "stop", team.queue], COMMANDS) == 0
    assert capsys.readouterr().out == (
        f"queue {team.queue} is on hold: nothing starts in it, and what runs goes on\n"
    )
    team.gang("waits", pods=1, gpus=1)
    team.await_event("QueueHeld")
    eventually(lambda: _row(site, team) == ["1", "1", "1", "1", "Held"], within=30)

    assert command.run(["queue", "resume", team.queue], COMMANDS) == 0
    team.await_bound(2)
    assert queue_of(team)["spec"]["hold"] == "None"


def test_a_drained_queue_loses_its_groups_and_stays(
    new_team: NewTeam, kubelet: HollowKubelet, kubeconfig: None
) -> None:
    team = new_team(resources=quota(4))
    team.job("work", pods=4)
    team.await_bound(4)

    assert command.run(["queue", "stop", team.queue, "--drain"], COMMANDS) == 0

    eventually(lambda: not team.bound(), within=2 * PLACED_WITHIN)
    eventually(lambda: active(team).get("reason") == "Drained", within=PLACED_WITHIN)


def test_a_queue_that_does_not_exist_is_not_stopped(
    new_team: NewTeam, capsys: pytest.CaptureFixture[str], kubeconfig: None
) -> None:
    team = new_team(resources=quota(4))
    assert command.run(["queue", "stop", f"{team.queue}s"], COMMANDS) == 1
    assert f"there is no queue '{team.queue}s'; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["", "/status"])
def test_what_cannot_be_the_name_of_a_queue_is_not_stopped(
    suffix: str, new_team: NewTeam, capsys: pytest.CaptureFixture[str], kubeconfig: None
) -> None:
    team = new_team(resources=quota(4))
    name = suffix and team.queue + suffix
    assert command.run(["queue", "stop", name], COMMANDS) == 1
    assert f"there is no queue '{name}'" in capsys.readouterr().err


def _row(site: Site, team: Team) -> list[str]:
    """What `kubectl get queues` says of a queue, without its name and age."""
    return site.cluster.kubectl("get", "queues", team.queue, "--no-headers").split()[1:-1]


def test_groups_of_a_queue_that_has_vanished_give_to_others(new_team: NewTeam) -> None:
    owner, lost = new_team(resources=quota(4)), new_team(resources=quota(4))
    lost.job("stays", pods=2)
    lost.await_bound(2)
    delete_in_use(lost)
    lost.client.patch(QUEUES, lost.queue, MergePatch({"metadata": {"finalizers": None}}))
    assert not queue_of(lost)

    owner.gang("owns", pods=1, gpus=4)

    owner.await_bound(1)
    assert not lost.bound()

"""`carina queue`, `free`, `why` and `snapshot` on a running cluster, without a controller."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carina_dra.cli import command
from carina_dra.kube.api_resource import CONFIG_MAPS, RESOURCE_CLAIMS
from carina_dra.kube.client import MergePatch
from controller.commands import listed
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_COMMANDS = {
    "free": listed.FREE,
    "queue": listed.QUEUE,
    "snapshot": listed.SNAPSHOT,
    "why": listed.WHY,
}
_NODE = "commands-0"
_GPUS = 4
_SETTINGS = "carina-controller"


@pytest.fixture(scope="module", autouse=True)
def node(site: Site) -> Iterator[None]:
    site.add_nodes(_NODE, gpus=_GPUS)
    yield
    site.remove_nodes(_NODE)


@pytest.fixture(autouse=True)
def kubeconfig(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(site.cluster.kubeconfig))


@pytest.fixture
def busy(site: Site, team: Team) -> Team:
    """A team of which one pod runs and one waits."""
    with site.controller():
        team.pod("runs", gpus=3)
        team.await_bound(1)
        team.gang("waits", pods=1, gpus=2)
        team.await_condition("waits", lambda condition: condition.get("status") == "False")
        team.await_event("NoRoom")
    return team


def run(*words: str) -> int:
    return command.run(words, _COMMANDS)


def test_commands_say_of_a_cluster_what_the_controller_says(
    busy: Team, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("queue", busy.queue, "-o", "json") == 0
    [queue] = json.loads(capsys.readouterr().out)["queues"]
    assert queue["groups"] == {"pending": 1, "running": 1}

    assert run("free", "--class", "gpu.carina.dev", "-o", "json") == 0
    [found] = json.loads(capsys.readouterr().out)["classes"]
    assert found["amount"] == {"free": 1, "total": _GPUS}

    assert run("why", f"{busy.namespace}/waits") == 3
    output = capsys.readouterr()
    assert output.out.startswith(f"{busy.namespace}/waits: queue {busy.queue}, pods: 1 waiting")
    assert output.err == ""

    assert run("snapshot") == 0
    written = capsys.readouterr().out
    file = tmp_path / "snapshot.json"
    file.write_text(written)
    assert run("why", f"{busy.namespace}/waits", "-f", str(file)) == 3
    assert capsys.readouterr().out == output.out


def test_a_tenant_reads_what_the_controller_wrote_in_its_namespace(
    busy: Team, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, namespace = busy.site.cluster, busy.namespace
    cluster.kubectl("create", "serviceaccount", "user", "-n", namespace)
    rights = ("--clusterrole=edit", f"--serviceaccount={namespace}:user", "-n", namespace)
    cluster.kubectl("create", "rolebinding", "user", *rights)
    credentials = cluster.service_account_credentials(namespace, "user")
    monkeypatch.setenv("KUBECONFIG", str(credentials.kubeconfig))

    assert run("why", f"{namespace}/waits") == 3
    output = capsys.readouterr()
    first, second, *statements = output.out.splitlines()
    assert first == f"{namespace}/waits: pods: 1 waiting"
    assert second == "the controller has written:"
    assert any("PodGroup waits: Admitted=False NoRoom" in line for line in statements)
    assert any("Pod waits-0: NoRoom: group" in line for line in statements)

    assert run("why", f"{namespace}/runs") == 0
    assert run("why", "default/runs") == 2
    assert "nor can the namespace" in capsys.readouterr().err


def test_refused_group_is_explained(team: Team, capsys: pytest.CaptureFixture[str]) -> None:
    team.pod("lost", group="missing")
    assert run("why", f"{team.namespace}/lost") == 3
    output = capsys.readouterr().out
    assert output.startswith(f"{team.namespace}/missing: pods: 1 held back\nit is refused: ")
    assert "missing" in output.splitlines()[1]


def test_claim_without_pods_is_a_group(
    site: Site, new_team: Callable[..., Team], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    team = new_team(resources=[{"deviceClass": GPU_CLASS, "quota": 2}])
    create_claim(team, "held", gpus=2)
    with site.controller():
        eventually(lambda: len(team.allocated()) == 2, within=PLACED_WITHIN)
    create_claim(team, "waiting", gpus=2)
    assert run("why", f"{team.namespace}/held") == 0
    assert run("why", f"{team.namespace}/waiting") == 3
    assert "quota" in (explained := capsys.readouterr().out)
    assert run("snapshot") == 0
    file = tmp_path / "snapshot.json"
    file.write_text(capsys.readouterr().out)
    assert run("why", f"{team.namespace}/held", "-f", str(file)) == 0
    assert run("why", f"{team.namespace}/waiting", "-f", str(file)) == 3
    assert capsys.readouterr().out == explained
    with site.controller():  # it alone gives the devices back
        for name in ("waiting", "held"):
            team.client.delete(RESOURCE_CLAIMS, name, namespace=team.namespace)
        eventually(lambda: not team.claims(), within=PLACED_WITHIN)


def test_settings_of_the_controller_are_used(
    site: Site, team: Team, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "topologies: {fabric: [example.com/rack]}\nstaleness_grace_seconds: 7\n"
    _write_settings(site, text)
    try:
        assert run("snapshot") == 0
        document = json.loads(capsys.readouterr().out.splitlines()[0])
    finally:
        _write_settings(site, "")
    assert document["topologies"] == {"fabric": ["example.com/rack"]}
    assert document["settings"]["stalenessGrace"] == 7


def test_settings_that_cannot_be_read_are_the_defaults_with_a_note(
    team: Team, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("queue", team.queue, "--controller", "carina-system/other") == 0
    assert "note: the controller's settings are taken to be the defaults" in capsys.readouterr().err


def test_settings_that_are_not_valid_are_named(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_settings(site, "placment: spread\n")
    try:
        assert run("queue") == 2
    finally:
        _write_settings(site, "")
    assert capsys.readouterr().err == (
        "carina queue: placment, set by ConfigMap carina-system/carina-controller, is not a "
        "setting; --help lists them\n"
    )


def test_who_may_not_list_learns_what(
    site: Site, team: Team, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    credentials = site.cluster.service_account_credentials(team.namespace, "default")
    monkeypatch.setenv("KUBECONFIG", str(credentials.kubeconfig))
    assert run("queue") == 2
    error = capsys.readouterr().err
    assert error.startswith("carina queue: the cluster cannot be read: list queues.scheduling")


def create_claim(team: Team, name: str, gpus: int) -> None:
    """Creates a claim that asks the queue for devices by itself."""
    exactly = {"deviceClassName": GPU_CLASS, "count": gpus}
    metadata = {"name": name, "namespace": team.namespace, "labels": team.labels()}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    team.client.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec})


def _write_settings(site: Site, text: str) -> None:
    change = MergePatch({"data": {"settings.yaml": text}})
    site.client.patch(CONFIG_MAPS, _SETTINGS, change, namespace="carina-system")

"""`kubectl carina`: the file that a release has, installed by krew, on a running cluster."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from carina_dra.cli import command
from release import krew
from release.kubectl_plugin import COMPLETION, build
from release.project import Project, build_wheel
from release.wheels import this_machine
from simulation.kubernetes import build as programs
from simulation.kubernetes import releases
from simulation.kubernetes.cluster import KubectlError
from tests.integration.controller.live.site import Site, Team


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a user who has installed the plugin with krew."""
    folder = tmp_path_factory.mktemp("release")
    version = Project.read().version
    python = ".".join(platform.python_version_tuple()[:2])
    plugin = build(this_machine(), build_wheel(folder), folder, pythons=[python])
    archive = plugin.archive(folder, version)
    manifest = folder / "carina.yaml"
    manifest.write_text(
        krew.manifest(version, "https://releases.example.com", {plugin.platform: archive})
    )
    programs.build([releases.krew()])
    home = folder / "krew"
    subprocess.run(
        [
            releases.krew().program("krew"),
            *("install", f"--manifest={manifest}", f"--archive={archive}"),
        ],
        env={**os.environ, "KREW_ROOT": str(home), "KREW_NO_UPGRADE_CHECK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    (completion,) = home.glob(f"store/{krew.NAME}/*/{COMPLETION}")
    (home / "bin" / COMPLETION).symlink_to(completion)
    return home


@pytest.fixture(autouse=True)
def user(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user, with the plugin in the PATH, and with a home folder of its own for it."""
    monkeypatch.setenv("PATH", f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PEX_ROOT", str(installed / "unpacked"))


@pytest.fixture
def tenant(team: Team) -> Path:
    """The kubeconfig of a user with the role `edit` in the namespace of a team."""
    cluster, namespace = team.site.cluster, team.namespace
    cluster.kubectl("create", "serviceaccount", "user", "-n", namespace)
    rights = ("--clusterrole=edit", f"--serviceaccount={namespace}:user", "-n", namespace)
    cluster.kubectl("create", "rolebinding", "user", *rights)
    return cluster.service_account_credentials(namespace, "user").kubeconfig


def test_kubectl_finds_what_krew_has_installed(site: Site) -> None:
    assert site.cluster.kubectl("carina", "--version") == f"carina {Project.read().version}\n"


@pytest.mark.parametrize("name", command.installed())
def test_every_command_has_what_it_needs(site: Site, name: str) -> None:
    assert f"usage: kubectl carina {name}" in site.cluster.kubectl("carina", name, "--help")


def test_command_line_is_completed(site: Site) -> None:
    assert "queue\t" in site.cluster.kubectl("__complete", "carina", "qu")
    options = site.cluster.kubectl("__complete", "carina", "queue", "-o", "")
    assert [line.partition("\t")[0] for line in options.splitlines()[:-1]] == [
        *("table", "json", "yaml")
    ]


def test_operator_sees_and_stops_queues(site: Site, team: Team) -> None:
    assert team.queue in site.cluster.kubectl("carina", "queue")

    site.cluster.kubectl("carina", "queue", "stop", team.queue)

    hold = site.cluster.kubectl("get", "queue", team.queue, "-o", "jsonpath={.spec.hold}")
    assert hold == "Hold"


def test_tenant_is_told_what_it_may_not(site: Site, team: Team, tenant: Path) -> None:
    with pytest.raises(KubectlError) as refused:
        site.cluster.kubectl("carina", "queue", kubeconfig=tenant)

    assert "carina queue: the cluster cannot be read: " in str(refused.value)
    assert f'User "system:serviceaccount:{team.namespace}:user" cannot list' in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_tenant_cannot_stop_a_queue(site: Site, team: Team, tenant: Path) -> None:
    with pytest.raises(KubectlError, match=f"queue {team.queue} is not changed: .* cannot patch"):
        site.cluster.kubectl("carina", "queue", "stop", team.queue, kubeconfig=tenant)


def test_tenant_sees_why_its_group_waits(site: Site, team: Team, tenant: Path) -> None:
    with site.controller():
        team.gang("waits", pods=1, gpus=2)
        team.await_event("NoRoom")

    asked = subprocess.run(
        [site.cluster.kubectl_program, "carina", "why", f"{team.namespace}/waits"],
        env={**os.environ, "KUBECONFIG": str(tenant)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 3
    assert asked.stderr == ""
    assert "Pod waits-0: NoRoom: " in asked.stdout

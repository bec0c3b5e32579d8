"""Whether the process sees the processes of its node."""

from pathlib import Path

import pytest

from sharing import namespaces
from sharing.cgroup import DEFAULT_FOLDERS, KubepodsFolder

POD = "0::/kubepods/burstable/pod0a1b2c3d-1111-2222-3333-444455556666/" + "4f" * 32


def procfs(folder: Path, first: str, own: str = "0::/") -> Path:
    for name, text in (("1", first), ("self", own)):
        (folder / name).mkdir()
        (folder / name / "cgroup").write_text(text + "\n")
    return folder


@pytest.mark.parametrize("first", ["0::/init.scope", "0::/", "1:name=systemd:/init.scope\n0::/"])
def test_in_the_hosts_namespaces_there_is_no_problem(tmp_path: Path, first: str) -> None:
    assert namespaces.problem(procfs(tmp_path, first)) is None


def test_process_1_of_a_pod_is_not_the_hosts(tmp_path: Path) -> None:
    said = namespaces.problem(procfs(tmp_path, POD))
    assert said is not None
    assert "hostPID: true" in said


def test_process_1_is_not_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    said = namespaces.problem(procfs(tmp_path, "0::/"))
    assert said is not None
    assert "hostPID: true" in said


def test_a_cgroup_namespace_of_its_own_hides_pods(tmp_path: Path) -> None:
    said = namespaces.problem(procfs(tmp_path, "0::/../../../../init.scope"))
    assert said is not None
    assert "privileged" in said


def test_the_own_pod_says_where_pods_are(tmp_path: Path) -> None:
    folder = procfs(tmp_path, "0::/", own=POD.replace("/kubepods", "/k3s/kubepods"))
    assert namespaces.kubepods_folders(folder) == (KubepodsFolder("/k3s/kubepods"),)


def test_outside_of_a_pod_they_are_where_they_usually_are(tmp_path: Path) -> None:
    assert namespaces.kubepods_folders(procfs(tmp_path, "0::/")) == DEFAULT_FOLDERS

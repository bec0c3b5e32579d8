"""What a real Kubernetes is run from, and why there is none."""

import shutil
from pathlib import Path

import pytest

from simulation.kubernetes import binaries, releases
from tests import real_kubernetes


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with openssl in its PATH, the folder given, and nothing else."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl")
    path = tmp_path / "path"
    path.mkdir()
    (path / "openssl").symlink_to(openssl)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("CARINA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("KUBERNETES", raising=False)
    return path


def _with_programs(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_go_is_enough_for_a_control_plane(bare_machine: Path) -> None:
    _with_programs(bare_machine, "go")

    assert binaries.why_no_control_plane() is None


def test_without_go_the_reason_names_what_is_not_built(bare_machine: Path) -> None:
    reason = binaries.why_no_control_plane()

    assert reason is not None
    assert f"kubernetes {releases.kubernetes().version} must be built; install Go" in reason


def test_finished_builds_need_no_go(bare_machine: Path) -> None:
    for release in (releases.etcd(), releases.kubernetes()):
        (release.home / "bin").mkdir(parents=True)

    assert binaries.why_no_control_plane() is None


def test_ready_assets_need_no_go(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = _with_programs(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    assert binaries.why_no_control_plane() is None
    assert binaries.control_plane().controllers is None


def test_assets_with_controllers_run_them(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    components = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assets = _with_programs(tmp_path / "assets", "etcd", "kubectl", *components)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    assert binaries.control_plane().controllers is not None


def test_assets_are_no_node(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert "has only a control plane" in (binaries.why_no_node() or "")


def test_incomplete_assets_are_named(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = _with_programs(tmp_path / "assets", "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    assert "has no kube-apiserver, kubectl" in (binaries.why_no_control_plane() or "")


@pytest.mark.parametrize("minor", ["1.36", "1.37"])
def test_pinned_releases_can_be_chosen(minor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES", minor)

    assert releases.kubernetes().version.startswith(f"{minor}.")


def test_release_that_is_not_pinned_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES", "1.12")

    with pytest.raises(ValueError, match=r"KUBERNETES=1\.12 is not pinned .* use one of"):
        releases.kubernetes()


def test_test_without_its_cluster_is_skipped_with_the_reason(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="must be built; install Go"):
        real_kubernetes.require_real_kubernetes()


def test_in_ci_a_test_without_its_cluster_fails(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(
        pytest.fail.Exception, match=r"CI runs every test, but: .*must be built; install Go"
    ):
        real_kubernetes.require_real_kubernetes()

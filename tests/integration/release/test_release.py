"""`make release`: the files that it makes, and what it says where it cannot."""

import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from release import parts
from release.__main__ import main
from release.archive import Member, gzipped_tar, unpacked
from release.project import REPOSITORY, Project
from release.wheels import DARWIN_ARM64
from simulation.kubernetes import debian

_VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
_WITHOUT_LONG = ("--only=bill", "--only=chart", "--only=manifests")


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_release_is_the_same_each_time(helm: Path, tmp_path: Path) -> None:
    assert main([str(tmp_path / "first"), *_WITHOUT_LONG]) == 0
    assert main([str(tmp_path / "second"), *_WITHOUT_LONG]) == 0

    first = _content(tmp_path / "first")
    assert first == _content(tmp_path / "second")
    assert first.keys() == {
        *("SHA256SUMS", f"carina-{_VERSION}.tgz", f"carina-dra_v{_VERSION}.cdx.json"),
        f"carina_v{_VERSION}.yaml",
    }
    subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "first", check=True
    )


def test_packed_chart_and_manifests_have_the_version(helm: Path, tmp_path: Path) -> None:
    project = Project("carina-dra", "1.2.3-rc.1")
    parts.chart(tmp_path, project)
    parts.manifests(tmp_path, project, "registry.example.com/carina-dra")

    shown = subprocess.run(
        [helm, "show", "chart", tmp_path / "carina-1.2.3-rc.1.tgz"],
        capture_output=True,
        text=True,
        check=True,
    )
    chart = yaml.safe_load(shown.stdout)
    assert (chart["version"], chart["appVersion"]) == ("1.2.3-rc.1", "1.2.3-rc.1")
    manifests = (tmp_path / "carina_v1.2.3-rc.1.yaml").read_text()
    assert "image: registry.example.com/carina-dra:1.2.3-rc.1\n" in manifests
    assert "carina-dra:latest" not in manifests


def test_kubectl_plugin_for_another_system_is_the_same_each_time(tmp_path: Path) -> None:
    made = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        parts.plugin(
            folder, Project.read(), "https://releases.example.com", [DARWIN_ARM64], ["3.13"]
        )
        made.append(_content(folder))

    assert made[0] == made[1]
    (archive,) = (tmp_path / "first").glob(f"kubectl-carina_v{_VERSION}_darwin_arm64.tar.gz")
    members = {member.name: member for member in unpacked(archive)}
    assert members.keys() == {"LICENSE", "kubectl-carina", "kubectl_complete-carina"}
    assert members["kubectl-carina"].mode == 0o755
    program = tmp_path / "kubectl-carina"
    program.write_bytes(members["kubectl-carina"].content)
    with zipfile.ZipFile(program) as content:
        native = [name for name in content.namelist() if name.endswith(".so")]
    assert native
    assert all("darwin" in name or "abi3" in name for name in native)


def test_part_that_cannot_be_made_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "podman", lambda: None)

    assert main([str(tmp_path), "--only=image", "--only=bill"]) == 1

    assert (
        "image is not made: an image is built with Podman: install podman"
        in capsys.readouterr().err
    )
    assert _content(tmp_path).keys() == {f"carina-dra_v{_VERSION}.cdx.json", "SHA256SUMS"}


def test_release_is_made_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(SystemExit, match="is not empty"):
        main([str(tmp_path)])
    assert _content(tmp_path).keys() == {"mine"}


def test_archive_does_not_depend_on_the_order_of_its_files() -> None:
    files = [Member("b", b"2"), Member("a", b"1", 0o755)]

    assert gzipped_tar(files) == gzipped_tar(reversed(files))

"""The cgroups of MPS daemons, on hosts with either version of cgroups or both."""

from pathlib import Path

import pytest

from sharing.cgroup import is_below
from sharing.mps.cgroups import DaemonCgroup, Hierarchies, NoHierarchyError


def version_1(folder: Path) -> Path:
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    return folder


def version_2(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.procs").touch()
    (folder / "cgroup.controllers").touch()
    return folder


def entrances(root: Path) -> set[str]:
    cgroup = DaemonCgroup(Hierarchies.find(root), "gpu.carina.dev", "uid-a")
    return {str(path.relative_to(root)) for path in cgroup.entrances}


def test_with_version_2_alone_a_daemon_is_in_its_own_cgroup(tmp_path: Path) -> None:
    version_2(tmp_path)
    assert entrances(tmp_path) == {"carina-mps.gpu.carina.dev/uid-a/cgroup.procs"}


def test_with_both_versions_it_is_also_in_the_roots_of_version_1(tmp_path: Path) -> None:
    for name in ("memory", "devices", "systemd"):
        version_1(tmp_path / name)
    version_2(tmp_path / "unified")
    assert entrances(tmp_path) == {
        "unified/carina-mps.gpu.carina.dev/uid-a/cgroup.procs",
        "memory/cgroup.procs",
        "devices/cgroup.procs",
        "systemd/cgroup.procs",
    }


def test_with_version_1_alone_it_is_in_the_hierarchy_of_systemd(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "systemd"):
        version_1(tmp_path / name)
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "cpuacct").symlink_to("cpu,cpuacct")
    assert entrances(tmp_path) == {
        "cpu,cpuacct/cgroup.procs",
        "systemd/carina-mps.gpu.carina.dev/uid-a/cgroup.procs",
    }


def test_the_daemon_enters_its_own_cgroup_last(tmp_path: Path) -> None:
    """Until then, it ends with the process that has started it."""
    version_1(tmp_path / "memory")
    version_2(tmp_path / "unified")
    cgroup = DaemonCgroup(Hierarchies.find(tmp_path), "gpu.carina.dev", "uid-a")
    assert cgroup.entrances[-1].parent.name == "uid-a"


def test_without_cgroups_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(NoHierarchyError, match="cgroup_root must be the host's"):
        Hierarchies.find(tmp_path)
    with pytest.raises(NoHierarchyError, match="cannot be read"):
        Hierarchies.find(tmp_path / "missing")


def test_a_cgroup_that_is_not_there_has_no_processes(tmp_path: Path) -> None:
    cgroup = DaemonCgroup(Hierarchies.find(version_2(tmp_path)), "gpu.carina.dev", "uid-a")
    assert cgroup.pids() == set()
    assert cgroup.leader() is None
    assert cgroup.emptied(0)
    cgroup.remove()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/carina-mps.d/uid-a\n", True),
        ("5:memory:/\n1:name=systemd:/carina-mps.d/uid-a\n", True),
        ("0::/kubepods/pod1/carina-mps.d/uid-a\n", False),
        ("0::/carina-mps.d.other/uid-a\n", False),
        ("0::/\n", False),
        ("", False),
    ],
)
def test_the_processes_of_daemons_are_told_at_the_root_alone(text: str, expected: bool) -> None:
    """A container can make cgroups of any name within its own."""
    assert is_below(text, "carina-mps.d") is expected

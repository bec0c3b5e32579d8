"""Where the kubelet's cgroup manager puts pods (kubernetes 1.37, cgroup_manager_linux.go).

Its names: NewCgroupName(cgroupRoot, "kubepods"), then the QoS class unless it is Guaranteed, then
"pod" and the UID. `ToSystemd` joins all parts so far by "-" for each slice, and writes "_" for a
"-" within a part (cgroup_manager_linux_test.go has "Burstable-pod_123.slice").
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubelet_plugin.prepare.pod_cgroup import pod_cgroup

UID = "6c1a4e95-6bb6-11e6-bc26-28d2444e470d"
_ = UID.replace("-", "_")


@pytest.mark.parametrize(
    "path",
    [
        f"kubepods/pod{UID}",
        f"kubepods/burstable/pod{UID}",
        f"kubepods/besteffort/pod{UID}",
        f"kubepods.slice/kubepods-pod{_}.slice",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{_}.slice",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{_}.slice",
        f"kubelet/kubepods/burstable/pod{UID}",
        f"a/b/kubepods/pod{UID}",
        f"a.slice/a-kubepods.slice/a-kubepods-pod{_}.slice",
        f"a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-pod{_}.slice",
    ],
)
def test_a_pod_is_found(tmp_path: Path, path: str) -> None:
    (tmp_path / path / "a-container").mkdir(parents=True)
    (tmp_path / "system.slice/sshd.service").mkdir(parents=True)
    assert pod_cgroup(tmp_path, UID) == tmp_path / path


@pytest.mark.parametrize(
    "path",
    [
        f"pod{UID}",
        f"kubepods/other/pod{UID}",
        f"kubepods/burstable/pod0/pod{UID}",
        f"kubepods/burstable/pod0/container/kubepods/burstable/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-burstable-pod{_}.slice",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID}.slice",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0.slice/kubepods-pod{_}.slice",
        f"a.slice/b-kubepods.slice/b-kubepods-pod{_}.slice",
        f"user.slice/user-1.slice/user@1.service/kubepods/pod{UID}",
    ],
)
def test_a_group_of_any_other_place_is_not_a_pod(tmp_path: Path, path: str) -> None:
    (tmp_path / path).mkdir(parents=True)
    assert pod_cgroup(tmp_path, UID) is None


def test_groups_of_tenants_are_not_searched_where_pods_are(tmp_path: Path) -> None:
    (tmp_path / "kubepods/burstable").mkdir(parents=True)
    (tmp_path / f"system/kubepods/pod{UID}").mkdir(parents=True)
    assert pod_cgroup(tmp_path, UID) is None


def test_the_groups_of_several_kubelets_are_all_searched(tmp_path: Path) -> None:
    (tmp_path / "first/kubepods/burstable").mkdir(parents=True)
    (tmp_path / f"second/kubepods/pod{UID}").mkdir(parents=True)
    assert pod_cgroup(tmp_path, UID) == tmp_path / f"second/kubepods/pod{UID}"


@pytest.mark.parametrize(
    "uid", ["", ".", "..", "../pod0", "a/b", "0/a", f"{UID}\n", "0" * 64, "a_b"]
)
def test_a_uid_that_is_none_names_no_group(tmp_path: Path, uid: str) -> None:
    (tmp_path / "kubepods/pod0/a").mkdir(parents=True)
    assert pod_cgroup(tmp_path, uid) is None


def test_files_are_no_groups_however_many_there_are(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"cgroup.{number}").touch()
    (tmp_path / f"kubelet/kubepods/pod{UID}").mkdir(parents=True)
    assert pod_cgroup(tmp_path, UID) == tmp_path / f"kubelet/kubepods/pod{UID}"


def test_a_link_is_no_group(tmp_path: Path) -> None:
    """As with cgroup v1, where `cpu` is a link to `cpu,cpuacct`."""
    (tmp_path / f"cpu,cpuacct/kubepods/pod{UID}").mkdir(parents=True)
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    assert pod_cgroup(tmp_path, UID) == tmp_path / f"cpu,cpuacct/kubepods/pod{UID}"


def test_a_group_that_is_removed_meanwhile_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, path = tmp_path / "a", tmp_path / f"b/c/kubepods/pod{UID}"
    removed.mkdir()
    path.mkdir(parents=True)
    children = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder == removed:
            raise FileNotFoundError(folder)
        return children(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert pod_cgroup(tmp_path, UID) == path


def test_there_is_none_without_cgroups(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        pod_cgroup(tmp_path / "missing", UID)

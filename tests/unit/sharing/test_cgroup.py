"""The pod of a process by its cgroups, as the kubelet and container runtimes name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.cgroup import (
    DEFAULT_FOLDERS,
    KubepodsFolder,
    PodCgroup,
    is_below,
    is_below_another_root,
    kubepods_folder,
    pod_of,
)

UID = "0a1b2c3d-1111-2222-3333-444455556666"
OTHER = "ffffffff-9999-8888-7777-666655554444"
UID_, OTHER_ = UID.replace("-", "_"), OTHER.replace("-", "_")
ID = "4f" * 32
POD = PodCgroup(UID, ID)


def v2(path: str) -> str:
    return f"0::{path}\n"


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{ID}.scope",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/crio-{ID}.scope/container",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/docker-{ID}.scope",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/besteffort/pod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID}/crio-{ID}",
        f"/kubepods/burstable/pod{UID}/{ID}/docker/{'ab' * 32}",
        f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope/init.scope",
        f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope/crio-{ID}.scope",
    ],
)
def test_container_of_each_class_driver_and_runtime(path: str) -> None:
    assert pod_of(v2(path), DEFAULT_FOLDERS) == POD


def test_a_process_of_a_pod_and_no_container() -> None:
    path = f"/kubepods/burstable/pod{UID}"
    assert pod_of(v2(path), DEFAULT_FOLDERS) == PodCgroup(UID, None)


def test_the_uid_of_a_static_pod_has_no_dashes() -> None:
    uid = "0123456789abcdef" * 2
    assert pod_of(v2(f"/kubepods/pod{uid}/{ID}"), DEFAULT_FOLDERS) == PodCgroup(uid, ID)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/system.slice/sshd.service",
        "/kubepods",
        "/kubepods/burstable",
        "/kubepods.slice/kubepods-burstable.slice",
        f"/kubepods/pod/{ID}",
        f"/kubepods/guaranteed/pod{UID}/{ID}",
        f"/kubepods/burstable/burstable/pod{UID}/{ID}",
        f"/kubepods/burstable/a/pod{UID}/{ID}",
        f"/kubepods/xpod{UID}/{ID}",
        f"/kubepods.slice/pod{UID}/{ID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-besteffort-pod{UID_}.slice/{ID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-pod{UID_}.slice/{ID}",
        f"/kubepods.slice/kubepods-burstable-pod{UID_}.slice/{ID}",
        f"/kubepods.slice/kubepodsxpod{UID_}.slice/{ID}",
        # Anybody who may make cgroups outside of the kubelet's folder can give them any name.
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/{ID}",
        f"/system.slice/a.service/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
        f"/mykubepods/pod{UID}/{ID}",
        f"/../kubepods/pod{UID}/{ID}",
    ],
)
def test_paths_of_no_pod(path: str) -> None:
    assert pod_of(v2(path), DEFAULT_FOLDERS) is None


@pytest.mark.parametrize(
    "below",
    [
        f"kubepods/pod{OTHER}/{ID}",
        f"kubepods.slice/kubepods-pod{OTHER_}.slice/cri-containerd-{ID}.scope",
        f"../../pod{OTHER}/{ID}",
    ],
)
def test_the_outermost_pod_counts_whatever_a_container_makes_within_its_own(below: str) -> None:
    assert pod_of(v2(f"/kubepods/burstable/pod{UID}/{ID}/{below}"), DEFAULT_FOLDERS) == POD


def test_hierarchies_of_v1_that_do_not_know_pods_say_nothing() -> None:
    pod = f"/kubepods/pod{UID}/{ID}"
    text = f"12:misc:/\n4:memory:{pod}\n1:name=systemd:{pod}/x\n0::/\n"
    assert pod_of(text, DEFAULT_FOLDERS) == POD


def test_hierarchies_of_v1_that_disagree_are_of_no_pod() -> None:
    text = f"4:memory:/kubepods/pod{UID}/{ID}\n3:cpu:/kubepods/pod{OTHER}/{ID}\n"
    assert pod_of(text, DEFAULT_FOLDERS) is None


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x1c", "\x1e", "\x85", "\u2028"])
def test_a_container_cannot_write_a_line_by_the_name_of_a_cgroup(end: str) -> None:
    path = f"/kubepods/pod{UID}/{ID}/name{end}0::/kubepods/pod{OTHER}"
    assert pod_of(v2(path), DEFAULT_FOLDERS) == POD


def test_a_hierarchy_of_v1_that_knows_the_container_tells_it() -> None:
    text = f"4:memory:/kubepods/pod{UID}\n3:cpu:/kubepods/pod{UID}/{ID}\n"
    assert pod_of(text, DEFAULT_FOLDERS) == POD


def test_a_line_without_an_absolute_path_says_nothing() -> None:
    assert pod_of(v2(f"kubepods/pod{UID}/{ID}"), DEFAULT_FOLDERS) is None


def test_a_path_may_have_colons() -> None:
    text = f"0::/kubepods/pod{UID}/{ID}/a:b\n"
    assert pod_of(text, DEFAULT_FOLDERS) == POD


@pytest.mark.parametrize(
    ("own", "folder", "path"),
    [
        (
            f"/kubepods/besteffort/pod{OTHER}/{ID}",
            "/kubepods",
            f"/kubepods/burstable/pod{UID}/{ID}",
        ),
        (
            f"/a.slice/a-kubepods.slice/a-kubepods-burstable.slice/a-kubepods-burstable-pod{OTHER_}.slice/crio-{ID}.scope",
            "/a.slice/a-kubepods.slice",
            f"/a.slice/a-kubepods.slice/a-kubepods-pod{UID_}.slice/crio-{ID}.scope",
        ),
        (
            f"/docker/{'ab' * 32}/kubelet/kubepods/burstable/pod{OTHER}/{ID}",
            f"/docker/{'ab' * 32}/kubelet/kubepods",
            f"/docker/{'ab' * 32}/kubelet/kubepods/pod{UID}/{ID}",
        ),
    ],
)
def test_the_own_pod_tells_the_kubelets_folder_wherever_it_is(
    own: str, folder: str, path: str
) -> None:
    found = kubepods_folder(v2(own))
    assert found == KubepodsFolder(folder)
    assert pod_of(v2(path), (found,)) == POD
    assert pod_of(v2(f"/x{path}"), (found,)) is None


def test_the_outermost_folder_is_the_kubelets() -> None:
    own = f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{ID}"
    assert kubepods_folder(v2(own)) == KubepodsFolder("/kubepods")


@pytest.mark.parametrize(
    "own",
    ["/", "/init.scope", "/kubepods", "/system.slice/kubelet.service", "/machine/podman"],
)
def test_a_process_of_no_pod_does_not_tell_it(own: str) -> None:
    assert kubepods_folder(v2(own)) is None


def test_a_path_above_the_root_of_the_cgroup_namespace_is_noticed() -> None:
    assert is_below_another_root(v2("/../../kubepods-burstable-podx.slice/y"))
    assert not is_below_another_root(v2("/a..b/c"))


def test_one_hierarchy_of_v1_above_the_root_of_the_cgroup_namespace_is_noticed() -> None:
    assert is_below_another_root("4:memory:/\n1:name=systemd:/../init.scope\n")


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


@given(st.text())
def test_no_text_fails(text: str) -> None:
    pod_of(text, DEFAULT_FOLDERS)
    kubepods_folder(text)


_NAMES = st.sampled_from(
    [
        *("kubepods", "kubepods.slice", "burstable", "kubepods-burstable.slice", "..", ID),
        *(f"pod{OTHER}", f"kubepods-pod{OTHER_}.slice", f"kubepods-burstable-pod{OTHER_}.slice"),
        *(f"cri-containerd-{ID}.scope", "a"),
    ]
)


@given(st.lists(_NAMES, max_size=8), st.booleans())
def test_nothing_below_a_pod_makes_a_process_anothers(below: list[str], systemd: bool) -> None:
    pod = f"/kubepods.slice/kubepods-pod{UID_}.slice" if systemd else f"/kubepods/pod{UID}"
    found = pod_of(v2("/".join([pod, *below])), DEFAULT_FOLDERS)
    assert found is not None
    assert found.pod_uid == UID


@given(st.lists(_NAMES, max_size=8))
def test_nothing_outside_of_the_kubelets_folder_is_of_a_pod(below: list[str]) -> None:
    assert pod_of(v2("/".join(["/system.slice", *below])), DEFAULT_FOLDERS) is None

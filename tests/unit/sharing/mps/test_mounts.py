"""Whether containers see what is mounted for an MPS daemon."""

from pathlib import Path

import pytest

from sharing.mps.mounts import problem, reaches_host

ROOT = "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
FOLDER = Path("/var/lib/kubelet/plugins/gpu.carina.dev")
PRIVATE = f"90 23 254:0 /kubelet {FOLDER} rw - ext4 /dev/vda rw\n"
SHARED = f"90 23 254:0 /kubelet {FOLDER} rw shared:7 - ext4 /dev/vda rw\n"
SLAVE = f"90 23 254:0 /kubelet {FOLDER} rw master:7 - ext4 /dev/vda rw\n"
BOTH = f"90 23 254:0 /kubelet {FOLDER} rw shared:9 master:7 - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (ROOT, True),  # no container
        (ROOT + SHARED, True),
        (ROOT + BOTH, True),
        (ROOT + PRIVATE, False),
        (ROOT + SLAVE, False),
        (ROOT + SHARED + PRIVATE, False),  # one over the other
        (ROOT + "91 23 0:9 / /var/lib/kube\\040let rw - tmpfs tmpfs rw\n", True),
    ],
)
def test_only_shared_mounts_of_a_container_reach_the_host(mounts: str, expected: bool) -> None:
    assert reaches_host(mounts, FOLDER) is expected


def test_a_folder_below_a_mount_is_of_that_mount() -> None:
    assert not reaches_host(ROOT + PRIVATE, FOLDER / "mps")


ALL = "000001ffffffffff"
NONE = "0000000000000000"
ALL_BUT_SYS_ADMIN = f"{0x1FFFFFFFFFF ^ 1 << 21:016x}"


def proc(folder: Path, effective: str, mounts: str) -> Path:
    """A procfs as the process sees itself."""
    own = folder / "self"
    own.mkdir()
    (own / "status").write_text(f"Name:\tpython\nCapPrm:\t{ALL}\nCapEff:\t{effective}\n")
    (own / "mountinfo").write_text(mounts)
    return folder


def test_a_process_that_may_mount_what_the_host_sees_has_no_problem(tmp_path: Path) -> None:
    assert problem(FOLDER, proc(tmp_path, ALL, ROOT + SHARED)) is None


@pytest.mark.parametrize("effective", [NONE, ALL_BUT_SYS_ADMIN])
def test_a_process_that_may_not_mount_says_so(tmp_path: Path, effective: str) -> None:
    assert problem(FOLDER, proc(tmp_path, effective, ROOT + SHARED)) == (
        "this process may not mount; make its container privileged"
    )


def test_a_mount_that_the_host_does_not_see_is_a_problem(tmp_path: Path) -> None:
    found = problem(FOLDER, proc(tmp_path, ALL, ROOT + PRIVATE))
    assert found is not None
    assert str(FOLDER) in found
    assert "mountPropagation: Bidirectional" in found

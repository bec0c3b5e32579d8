"""The folder of an MPS daemon, with real mounts."""

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from carina_dra.sharing.files import MPS
from carina_dra.sharing.message import MpsDevice, Reference, WantedDaemon
from sharing.mps import folder, mounts
from sharing.mps.folder import DaemonFolder

WANTED = WantedDaemon(
    claim=Reference(namespace="default", name="a", uid="uid-a"),
    devices=(MpsDevice(uuid="GPU-a", memory_mib=1000),),
    thread_percentage=10,
)


@pytest.fixture
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="c", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def made(top: Path) -> Iterator[DaemonFolder]:
    """One that is made for a daemon."""
    daemon = DaemonFolder(top, "uid-a")
    try:
        daemon.make(WANTED)
        yield daemon
    finally:
        daemon.remove()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_root_alone_reaches_the_pipes_until_they_are_opened(made: DaemonFolder) -> None:
    assert (mode(made.pipes), made.is_open()) == (0o700, False)
    made.open()
    assert (mode(made.pipes), made.is_open()) == (0o755, True)


def test_the_pipes_are_closed_again_for_the_next_daemon(made: DaemonFolder) -> None:
    """Its limits are not set when it starts."""
    made.open()
    made.make(WANTED)
    assert (mode(made.pipes), made.is_open()) == (0o700, False)


def test_containers_cannot_fill_the_memory_of_the_node_with_empty_files(
    made: DaemonFolder,
) -> None:
    """Each takes about 1 KiB of the kernel, and they outlive their container."""
    files = [os.statvfs(at).f_files for at in (made.pipes, made.shm, made.logs)]
    assert files == [256, 16384, 64]


def test_pipes_whose_mount_is_gone_are_not_open(made: DaemonFolder) -> None:
    """As after a reboot."""
    made.open()
    mounts.unmount(made.pipes)
    assert mode(made.pipes) == 0o755
    assert not made.is_open()


def test_the_next_daemon_finds_no_pipes_and_logs_of_the_one_before(
    made: DaemonFolder, top: Path
) -> None:
    """Root of a container can have left anything among the pipes."""
    kept = top / "kept"
    kept.mkdir()
    (made.pipes / "control").touch()
    (made.pipes / "folder/below").mkdir(parents=True)
    (made.pipes / "link").symlink_to(kept)
    (made.logs / "control.log").touch()
    made.make(WANTED)
    assert not list(made.pipes.iterdir())
    assert not list(made.logs.iterdir())
    assert kept.is_dir()


def test_what_containers_have_in_shared_memory_stays(made: DaemonFolder) -> None:
    (made.shm / "of-a-container").touch()
    made.make(WANTED)
    assert (made.shm / "of-a-container").exists()


def test_every_user_can_write_shared_memory_and_remove_what_is_its_own(made: DaemonFolder) -> None:
    assert mode(made.shm) == 0o1777


@pytest.mark.parametrize(("name", "mib"), [("pipes", 1), ("shm", 64)])
def test_what_containers_write_is_in_memory_with_a_limit(
    made: DaemonFolder, name: str, mib: int
) -> None:
    there = os.statvfs(getattr(made, name))
    assert there.f_blocks * there.f_frsize == mib * 2**20


def test_containers_make_few_files_among_the_pipes(made: DaemonFolder) -> None:
    assert os.statvfs(made.pipes).f_files == 256


@pytest.mark.parametrize("name", ["pipes", "shm"])
@pytest.mark.parametrize("flag", [os.ST_NOSUID, os.ST_NODEV, os.ST_NOEXEC])
def test_nothing_that_containers_write_there_runs_or_is_a_device(
    made: DaemonFolder, name: str, flag: int
) -> None:
    assert os.statvfs(getattr(made, name)).f_flag & flag


def test_it_is_mounted_once_however_often_it_is_made(made: DaemonFolder) -> None:
    made.make(WANTED)
    for path in (made.pipes, made.shm):
        assert Path("/proc/self/mountinfo").read_text().count(f" {path} ") == 1


def test_it_is_removed_with_all_mounts_although_they_are_in_use(made: DaemonFolder) -> None:
    mounts._call("mount", b"tmpfs", bytes(made.shm), b"tmpfs", 0, b"size=1m")
    with (made.shm / "file").open("w"):
        made.remove()
    assert str(made.path) not in Path("/proc/self/mountinfo").read_text()
    assert not made.path.exists()


def test_what_is_not_there_is_removed(top: Path) -> None:
    DaemonFolder(top, "uid-b").remove()


def test_a_mount_that_fails_names_the_place(top: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"mount: .*{top}/missing"):
        mounts.mount_tmpfs(top / "missing", "size=1m")


_OWN_NAMESPACE = """
import os, sys
from pathlib import Path
from sharing.mps import mounts

REC, SLAVE, SHARED = 0x4000, 0x80000, 0x100000
source, target = map(Path, sys.argv[1:])
mounts._call("unshare", 0x20000)
for propagation in (SLAVE, SHARED):  # a host of its own, whose mounts are shared as by systemd
    mounts._call("mount", None, b"/", None, REC | propagation, None)
mounts.mount_tmpfs(source, "size=1m")
(source / "there").touch()
told, tell = os.pipe()
bound, bind = os.pipe()
if os.fork() == 0:
    mounts.bind_in_own_namespace(source, target)
    os.write(bind, b"-")
    os.read(told, 1)
    print("daemon", (target / "there").exists(), source.is_mount(), flush=True)
    os._exit(0)
os.read(bound, 1)
print("host", target.is_mount(), flush=True)
mounts.unmount(source)
os.write(tell, b"-")
os.wait()
"""


def test_a_daemon_has_its_shared_memory_alone_and_keeps_nothing_mounted(top: Path) -> None:
    """What is mounted for it over /dev/shm must not come to the host, where it is everybody's."""
    places = [top / "shm", top / "target"]
    for place in places:
        place.mkdir()
    command = [sys.executable, "-c", _OWN_NAMESPACE, *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "host False\ndaemon True False\n"


def test_it_records_what_the_daemon_was_started_for(made: DaemonFolder) -> None:
    assert made.recorded() == WANTED


def test_a_damaged_record_is_none(made: DaemonFolder) -> None:
    (made.path / "daemon.json").write_text("{")
    assert made.recorded() is None


def test_the_last_words_are_the_end_of_both_logs_in_a_line(made: DaemonFolder) -> None:
    (made.logs / "output").write_text("first\n" * 1000 + "no GPU\n")
    (made.logs / "control.log").write_text("bye\n")
    words = made.last_words()
    assert words.endswith("first no GPU bye")
    assert len(words) == 300


def test_the_folders_of_daemons_are_those_with_a_name_of_a_claim(
    made: DaemonFolder, top: Path
) -> None:
    (top / ".hidden").mkdir()
    (top / "uid-file").touch()
    assert list(folder.names(top)) == ["uid-a"]
    assert not list(folder.names(top / "missing"))


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        ("0a1b2c3d-1111-2222-3333-444455556666", True),
        ("a", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("..", False),
        ("a/b", False),
        ("-a", False),
        ("a-", False),
        ("a\n", False),
    ],
)
def test_the_name_of_a_folder_is_like_a_uid(uid: str, expected: bool) -> None:
    assert folder.is_name(uid) is expected


def test_a_path_that_is_too_long_for_a_socket_is_a_problem(top: Path) -> None:
    assert DaemonFolder(top, "uid-a").problem() is None
    problem = DaemonFolder(top / ("a" * 80), "uid-a").problem()
    assert problem is not None
    assert "shorten one of them" in problem


@pytest.mark.parametrize(
    ("kubelet_root", "fits"),
    [
        ("/var/lib/kubelet", True),
        ("/var/lib/k0s/kubelet", True),
        ("/var/snap/microk8s/common/var/lib/kubelet", False),
    ],
)
def test_the_sockets_of_a_daemon_fit_below_the_folder_of_a_kubelet(
    kubelet_root: str, fits: bool
) -> None:
    top = Path(kubelet_root, "plugins", "gpu.carina.dev", MPS)
    assert (DaemonFolder(top, str(uuid.UUID(int=0))).problem() is None) is fits

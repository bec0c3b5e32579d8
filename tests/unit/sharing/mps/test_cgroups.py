"""The cgroups of MPS daemons, on hosts with either version of cgroups or both."""

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import permutations
from pathlib import Path

import pytest

from sharing.mps.cgroups import DaemonCgroup, Hierarchies, NoHierarchyError, has_ended
from tests.eventually import eventually


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


def test_a_folder_that_is_no_hierarchy_is_none(tmp_path: Path) -> None:
    version_1(tmp_path / "systemd")
    (tmp_path / "notes").mkdir()
    assert entrances(tmp_path) == {"systemd/carina-mps.gpu.carina.dev/uid-a/cgroup.procs"}


@pytest.mark.parametrize("read_only", ["systemd", "memory/cgroup.procs"])
def test_a_hierarchy_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: str
) -> None:
    for name in ("memory", "systemd"):
        version_1(tmp_path / name)
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path / read_only)
    with pytest.raises(NoHierarchyError, match=f"{tmp_path / read_only} is not writable"):
        Hierarchies.find(tmp_path)


def test_a_cgroup_that_is_not_there_has_no_processes(tmp_path: Path) -> None:
    cgroup = DaemonCgroup(Hierarchies.find(version_2(tmp_path)), "gpu.carina.dev", "uid-a")
    assert cgroup.pids() == set()
    assert cgroup.leader() is None
    assert cgroup.emptied(0)
    cgroup.remove()


@pytest.fixture
def cgroup(tmp_path: Path) -> DaemonCgroup:
    made = DaemonCgroup(Hierarchies.find(version_2(tmp_path)), "gpu.carina.dev", "uid-a")
    made.make()
    return made


def put(cgroup: DaemonCgroup, *pids: int) -> None:
    """What the kernel writes of the processes in a cgroup."""
    cgroup.entrances[-1].write_text("".join(f"{pid}\n" for pid in pids))


def folder(cgroup: DaemonCgroup) -> Path:
    return cgroup.entrances[-1].parent


def end(session: int) -> None:
    """Ends the processes of a session that have made none of their own."""
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts programs, and ends them with the test."""
    with ExitStack() as cleanup:

        def started(*words: str) -> subprocess.Popen[bytes]:
            made = cleanup.enter_context(
                subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
            )
            cleanup.callback(end, made.pid)
            return made

        yield started


def gone(start: Callable[..., subprocess.Popen[bytes]]) -> int:
    """The PID of a process that has ended."""
    process = start("true")
    process.wait()
    return process.pid


def test_a_cgroup_can_be_there_already(cgroup: DaemonCgroup) -> None:
    cgroup.make()
    assert folder(cgroup).is_dir()


def test_the_group_above_goes_with_the_last_daemon(tmp_path: Path, cgroup: DaemonCgroup) -> None:
    other = DaemonCgroup(Hierarchies.find(tmp_path), "gpu.carina.dev", "uid-b")
    other.make()
    cgroup.remove()
    assert not folder(cgroup).exists()
    assert folder(other).is_dir()
    other.remove()
    assert not folder(other).parent.exists()


def test_a_cgroup_with_processes_is_not_removed(cgroup: DaemonCgroup) -> None:
    put(cgroup, 1)
    with pytest.raises(OSError, match="not empty"):
        cgroup.remove()


def test_one_that_is_removed_meanwhile_has_no_processes(
    cgroup: DaemonCgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_text(_: Path) -> str:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "read_text", read_text)
    error = errno.ENODEV
    assert cgroup.pids() == set()
    error = errno.EACCES
    with pytest.raises(PermissionError):
        cgroup.pids()


def test_it_is_waited_until_the_last_process_is_gone(
    cgroup: DaemonCgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cgroup, 7, 8)
    assert cgroup.pids() == {7, 8}
    assert not cgroup.emptied(0)
    left = [(), (8,)]
    monkeypatch.setattr("time.sleep", lambda _: put(cgroup, *left.pop()))
    assert cgroup.emptied(60)
    assert left == []


def test_the_leader_is_the_control_daemon_and_none_of_its_servers(
    tmp_path: Path, cgroup: DaemonCgroup, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A server has a session of its own, and may be called anything."""
    server = tmp_path / "mps) 1 (1"
    server.write_bytes(Path("/bin/sleep").read_bytes())
    server.chmod(0o755)
    script = 'sleep 1000 & echo $!; setsid "$0" 1000 & echo $!; wait'
    daemon = start("sh", "-c", script, str(server))
    assert daemon.stdout is not None
    with daemon.stdout:
        same_session, own_session = (int(daemon.stdout.readline()) for _ in range(2))
    try:
        eventually(lambda: Path(f"/proc/{own_session}/comm").read_text() == f"{server.name}\n")
        ended = gone(start)
        for pids in permutations((ended, same_session, own_session, daemon.pid)):
            put(cgroup, *pids)
            assert cgroup.leader() == daemon.pid
        put(cgroup, ended, same_session)
        assert cgroup.leader() is None
    finally:
        end(own_session)


def test_all_processes_are_killed_by_the_kernel(cgroup: DaemonCgroup) -> None:
    cgroup.kill()
    assert (folder(cgroup) / "cgroup.kill").read_text() == "1"


def test_a_kernel_that_kills_no_cgroups_has_its_processes_killed_one_by_one(
    cgroup: DaemonCgroup, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    (folder(cgroup) / "cgroup.kill").mkdir()  # it cannot be written
    ended, running = gone(start), [start("sleep", "1000") for _ in range(2)]
    put(cgroup, ended, *(process.pid for process in running))
    before = os.listdir("/proc/self/fd")
    cgroup.kill()
    assert [process.wait(30) for process in running] == [-signal.SIGKILL] * 2
    assert os.listdir("/proc/self/fd") == before


def test_a_process_that_has_the_pid_of_one_that_was_in_it_lives(
    cgroup: DaemonCgroup,
    start: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder(cgroup) / "cgroup.kill").mkdir()
    put(cgroup, start("sleep", "1000").pid)
    opened = os.pidfd_open
    signals: list[object] = []

    def open_late(pid: int) -> int:
        put(cgroup)
        return opened(pid)

    monkeypatch.setattr("os.pidfd_open", open_late)
    monkeypatch.setattr("signal.pidfd_send_signal", lambda *sent: signals.append(sent))
    cgroup.kill()
    assert signals == []


def test_a_process_that_ends_by_itself_keeps_no_other_alive(
    cgroup: DaemonCgroup,
    start: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder(cgroup) / "cgroup.kill").mkdir()
    first, second = start("sleep", "1000"), start("sleep", "1000")
    put(cgroup, first.pid, second.pid)
    opened = os.pidfd_open

    def open_of_one_that_ends(pid: int) -> int:
        descriptor = opened(pid)
        monkeypatch.setattr("os.pidfd_open", opened)
        process = first if pid == first.pid else second
        process.kill()
        process.wait()
        return descriptor

    monkeypatch.setattr("os.pidfd_open", open_of_one_that_ends)
    cgroup.kill()
    assert [process.wait(30) for process in (first, second)] == [-signal.SIGKILL] * 2


def test_the_end_of_a_process_is_seen_by_its_descriptor(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = start("sleep", "1000")
    descriptor = os.pidfd_open(process.pid)
    try:
        assert not has_ended(descriptor)
        process.kill()
        eventually(lambda: has_ended(descriptor))
    finally:
        os.close(descriptor)

"""An MPS control daemon in a real cgroup, by a program that answers as a test says."""

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.sharing.message import MpsDevice, Reference, WantedDaemon
from sharing.mps import control_daemon
from sharing.mps.cgroups import DaemonCgroup, Hierarchies
from sharing.mps.control import Control, ControlError
from sharing.mps.control_daemon import ControlDaemon, DaemonError, DaemonTurns
from sharing.mps.folder import DaemonFolder
from sharing.mps.installation import MpsInstallation, MpsSearch, NoMpsError
from tests.eventually import eventually

CGROUPS = Path("/sys/fs/cgroup")
PROGRAM = """#!/bin/sh
cd "$(dirname "$0")"
if [ "$1" = -f ]; then
    echo $$ >pid
    [ -e broken ] && echo "no GPU" && exit 1
    [ -e crowd ] && for _ in 1 2 3 4 5; do setsid sleep 1000 & (sleep 1000 &) done
    exec sleep 1000
fi
read -r command
echo "$command" >>commands
[ -e slow ] && rm slow && exit 1
[ -e hang ] && exec sleep 1000
[ -e endless ] && exec yes
case "$command" in
*limit*) cat memory ;;
*percentage*) cat cores ;;
quit) [ -e deaf ] || kill "$(cat pid)" ;;
*) cat servers ;;
esac
exit "$(cat status)"
"""
_numbers = itertools.count()


def wanted(gpu: str = "GPU-a") -> WantedDaemon:
    return WantedDaemon(
        claim=Reference(namespace="default", name="a", uid="uid-a"),
        devices=(MpsDevice(uuid=gpu, memory_mib=1000),),
        thread_percentage=10,
    )


class Search(MpsSearch):
    """Finds the program, unless a test has it missing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            DriverSearch([]),
            host_root=folder,
            cgroup_root=CGROUPS,
            plugin_directory=folder,
            links=folder,
        )
        self.program = folder / "program"
        self.is_missing = False

    def installation(self) -> MpsInstallation:
        if self.is_missing:
            raise NoMpsError("no NVIDIA driver is loaded")
        environment = {"PATH": "/usr/bin:/bin"}
        return MpsInstallation(self.program, environment, Hierarchies.find(CGROUPS))


class Node:
    """A node with one claim, and processes of carina-sharing that have its daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.search = Search(folder)
        self.turns = DaemonTurns(1)
        self.daemons: list[ControlDaemon] = []
        self.driver = f"c{os.getpid()}-{next(_numbers)}.dev"
        self.cgroup = DaemonCgroup(Hierarchies.find(CGROUPS), self.driver, "uid-a")
        self.files = DaemonFolder(folder / "mps", "uid-a")
        self.search.program.write_text(PROGRAM)
        self.search.program.chmod(0o755)
        for name, answer in (
            ("memory", "1000M"),
            ("cores", "10.0"),
            ("servers", ""),
            ("status", "0"),
        ):
            self.answer(name, answer)

    def answer(self, name: str, answer: str) -> None:
        (self.folder / name).write_text(answer)

    def daemon(self) -> ControlDaemon:
        """The daemon as a process of carina-sharing that has just started has it."""
        made = ControlDaemon(
            self.folder / "mps",
            "uid-a",
            search=self.search,
            cgroup_root=CGROUPS,
            driver_name=self.driver,
            turns=self.turns,
        )
        self.daemons.append(made)
        return made

    def started(self) -> ControlDaemon:
        daemon = self.daemon()
        daemon.start(wanted())
        return daemon

    def commands(self) -> list[str]:
        return (self.folder / "commands").read_text().splitlines()

    def close(self) -> None:
        self.cgroup.kill()
        assert self.cgroup.emptied(30)
        for daemon in self.daemons:
            daemon.end()
        self.cgroup.remove()
        self.files.remove()


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="c", dir="/tmp") as name:
        made = Node(Path(name))
        try:
            yield made
        finally:
            made.close()


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def children() -> set[str]:
    """The PIDs of the processes that this one has started, and has not heard of their end."""
    lists = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {pid for listed in lists for pid in listed.split()}


# --- started ---


def test_a_daemon_has_its_limits_when_it_has_started(node: Node) -> None:
    daemon = node.started()
    assert not daemon.has_ended()
    assert node.files.is_open()
    assert {
        "set_default_device_pinned_mem_limit 0 1000M",
        "set_default_active_thread_percentage 10",
    } <= set(node.commands())


@pytest.mark.parametrize(("name", "answer"), [("memory", "2000M"), ("cores", "100.0")])
def test_limits_that_do_not_hold_open_no_pipes(node: Node, name: str, answer: str) -> None:
    node.answer(name, answer)
    with pytest.raises(DaemonError, match="the daemon says"):
        node.started()
    assert not node.files.is_open()


def test_a_daemon_that_never_answers_is_not_waited_for_for_ever(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_daemon, "_START_SECONDS", 0.1)
    node.answer("status", "1")
    with pytest.raises(DaemonError, match=r"did not answer in 0.1 s: get_server_list failed"):
        node.started()


def test_a_daemon_that_does_not_answer_at_once_is_waited_for(node: Node) -> None:
    node.answer("slow", "")
    assert not node.started().has_ended()


def test_a_daemon_that_ends_at_its_start_says_why(node: Node) -> None:
    node.answer("broken", "")
    node.answer("status", "1")
    with pytest.raises(DaemonError, match="ended at its start: no GPU"):
        node.started()


def test_a_path_that_is_too_long_for_a_socket_is_the_reason(node: Node) -> None:
    node.folder /= "a" * 80
    with pytest.raises(DaemonError, match="longer than the 107 bytes that Linux allows"):
        node.started()


def test_a_program_that_cannot_be_executed_is_the_reason(node: Node) -> None:
    node.search.program.write_text("no program")
    with pytest.raises(DaemonError, match=r"cannot be launched: .*Exec format error"):
        node.started()


def test_whoever_had_a_turn_gives_it_back(node: Node) -> None:
    node.started().end()
    node.search.is_missing = True
    with pytest.raises(DaemonError, match="no NVIDIA driver is loaded"):
        node.started()
    assert node.turns.first.acquire(blocking=False)
    assert not node.turns.first.acquire(blocking=False)


# --- adopted ---


def test_the_daemon_of_an_earlier_process_is_adopted(node: Node) -> None:
    node.started()
    assert node.daemon().adopt(wanted())


def test_a_daemon_whose_pipes_were_not_opened_yet_is_adopted_and_they_are(node: Node) -> None:
    """The earlier process ended before."""
    node.started()
    node.files.pipes.chmod(0o700)
    assert node.daemon().adopt(wanted())
    assert node.files.is_open()


def test_a_daemon_with_a_server_from_before_its_pipes_were_opened_is_not_adopted(
    node: Node,
) -> None:
    node.started()
    node.files.pipes.chmod(0o700)
    node.answer("servers", "1234")
    assert not node.daemon().adopt(wanted())
    assert not node.files.is_open()


def test_a_daemon_with_servers_is_adopted(node: Node) -> None:
    node.started()
    node.answer("servers", "1234")
    assert node.daemon().adopt(wanted())


def test_where_there_is_a_record_and_no_daemon_nothing_is_adopted(node: Node) -> None:
    """As after a reboot."""
    node.started().end()
    assert not node.daemon().adopt(wanted())


def test_the_end_of_an_adopted_daemon_is_seen(node: Node) -> None:
    node.started()
    daemon = node.daemon()
    daemon.adopt(wanted())
    assert not daemon.has_ended()
    os.kill(node.cgroup.leader() or 0, signal.SIGKILL)
    eventually(daemon.has_ended)


def test_a_daemon_of_another_gpu_is_not_adopted(node: Node) -> None:
    """Though it has the limits that are wanted."""
    node.started()
    assert not node.daemon().adopt(wanted("GPU-b"))


def test_a_daemon_without_its_limits_is_not_adopted(node: Node) -> None:
    node.started()
    node.answer("memory", "2000M")
    assert not node.daemon().adopt(wanted())


def test_without_a_driver_it_cannot_be_told_whether_it_is_the_wanted_one(node: Node) -> None:
    node.started()
    node.search.is_missing = True
    with pytest.raises(DaemonError, match="no NVIDIA driver is loaded"):
        node.daemon().adopt(wanted())
    assert node.cgroup.leader()


def test_servers_and_orphans_are_not_taken_for_the_daemon(node: Node) -> None:
    """Whether they lead sessions of their own or have lost their parent."""
    node.answer("crowd", "")
    node.started()
    eventually(lambda: len(node.cgroup.pids()) == 11)
    assert node.cgroup.leader() == int((node.folder / "pid").read_text())


# --- probed ---


def test_a_daemon_that_does_not_answer_has_missed_a_probe(node: Node) -> None:
    daemon = node.started()
    daemon.probe()
    node.answer("status", "1")
    with pytest.raises(DaemonError, match="get_server_list failed"):
        daemon.probe()


def test_while_the_driver_is_replaced_no_probe_is_missed(node: Node) -> None:
    daemon = node.started()
    node.search.is_missing = True
    daemon.probe()


# --- ended ---


@pytest.mark.parametrize("is_missing", [False, True])
def test_one_that_does_not_quit_is_killed(node: Node, is_missing: bool) -> None:
    """Without a driver, it cannot even be told to."""
    daemon = node.started()
    node.answer("deaf", "")
    node.search.is_missing = is_missing
    daemon.end()
    assert not node.cgroup.pids()
    assert ("quit" in node.commands()) is not is_missing


def test_its_cgroup_goes_with_it(node: Node) -> None:
    daemon = node.started()
    daemon.end()
    assert not list(CGROUPS.glob(f"**/carina-mps.{node.driver}"))


def test_one_that_has_ended_leaves_neither_a_descriptor_nor_a_child(node: Node) -> None:
    node.started().end()
    before = descriptors(), children()
    daemon = node.daemon()
    for _ in range(2):
        daemon.start(wanted())
        daemon.end()
        assert daemon.leader is None
    daemon.start(wanted())
    other = node.daemon()
    other.adopt(wanted())
    other.end()
    daemon.end()
    assert (descriptors(), children()) == before


# --- asked ---


def control(node: Node) -> Control:
    return Control(node.search.program, {"PATH": "/usr/bin:/bin"}, node.files.pipes)


def test_a_program_that_fails_gives_no_answer(node: Node) -> None:
    node.answer("servers", "cannot connect")
    node.answer("status", "3")
    with pytest.raises(ControlError, match="get_server_list failed with 3: cannot connect"):
        control(node).ask("get_server_list")


def test_a_program_that_hangs_is_ended(node: Node) -> None:
    (node.folder / "hang").touch()
    before = children()
    with pytest.raises(ControlError, match=r"not answered in 0.1 s"):
        control(node).ask("get_server_list", 0.1)
    assert children() == before


def test_an_answer_without_end_is_none(node: Node) -> None:
    """Root of a container can write what comes from the pipes."""
    (node.folder / "endless").touch()
    with pytest.raises(ControlError, match="is longer than 65536 bytes"):
        control(node).ask("get_server_list", 60)


def test_a_program_that_is_missing_is_the_reason(node: Node) -> None:
    node.search.program.unlink()
    with pytest.raises(ControlError, match="cannot be run"):
        control(node).ask("get_server_list")

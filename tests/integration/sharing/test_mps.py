"""MPS daemons: real processes in real cgroups, of a stand-in for the driver's program."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carina_dra.sharing.files import DAMAGED, MPS_PIPES, MPS_SHM, NEW_WANTED, SOCKET
from carina_dra.sharing.message import MpsDaemon, SharingReport, WantedDaemon
from sharing.mps import mounts
from sharing.mps.cgroups import DaemonCgroup, Hierarchies
from tests.eventually import eventually
from tests.integration.sharing.cgroups import Version, mount
from tests.integration.sharing.site import Plugin, Site, reference, site
from tests.length import scaled

SET_MEMORY = "set_default_device_pinned_mem_limit 0 3000M"
GET_MEMORY = "get_default_device_pinned_mem_limit 0"
SET_CORES = "set_default_active_thread_percentage 30"
GET_CORES = "get_default_active_thread_percentage"
SERVERS = "get_server_list"
NOBODY = 65534
VERSIONS: tuple[Version, ...] = ("v1", "v2")


@pytest.fixture
def node() -> Iterator[Site]:
    with site("/kubepods") as made:
        yield made


@pytest.fixture
def wanted(node: Site) -> WantedDaemon:
    return node.daemon("a", memory_mib=3000, cores=30)


def leader(node: Site, claim: str = "a") -> int:
    """The only control daemon of a claim."""
    leaders = {pid for pid in node.cgroup(claim).pids() if os.getsid(pid) == pid}
    assert len(leaders) == 1
    return leaders.pop()


def connect(node: Site, claim: str = "a", user: int = 0) -> str:
    """What a CUDA program is told when it computes first: its server, and with which limits.

    Raises OSError as the program meets it, which then computes outside of MPS.
    """
    path = node.mps_folder(claim) / "ipc/control"
    node.folder.chmod(0o711)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        # The user of the file system is that of this thread alone: setfsuid(2).
        _as_user(user, lambda: client.connect(str(path)))
        client.sendall(b"connect\n")
        answer = b""
        while not answer.endswith(b"\0"):
            answer += client.recv(4096)
    return answer[:-1].decode().strip()


def _as_user(user: int, act: Callable[[], None]) -> None:
    os.seteuid(user)
    try:
        act()
    finally:
        os.seteuid(0)


def kill(process_of: Site) -> None:
    """Kills carina-sharing."""
    process = process_of.processes[-1]
    process.kill()
    process.wait()


def test_a_daemon_runs_with_its_limits_while_it_is_wanted(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        set_and_read = [SET_MEMORY, SET_CORES, GET_MEMORY, GET_CORES]
        assert node.commands("a")[1:] == [SERVERS, *set_and_read, SERVERS]
        assert connect(node, user=NOBODY).endswith(" 0=3000M 30.0")
        plugin.want()
        plugin.report(lambda report: not report.daemons)
    assert node.commands("a")[-2:] == ["quit", "ended"]
    assert not node.mps_folder("a").exists()
    assert not node.cgroup("a").pids()


def test_with_version_2_of_cgroups_alone(node: Site, wanted: WantedDaemon) -> None:
    root = mount("v2")
    if isinstance(root, str):
        pytest.skip(root)
    node.start("--cgroup-root", str(root))
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        assert f"0::/carina-mps.{node.driver}/" in Path(f"/proc/{leader(node)}/cgroup").read_text()
        plugin.want()
        plugin.report(lambda report: not report.daemons)


def test_it_is_said_that_there_is_mps(node: Site) -> None:
    node.start()
    with node.connected() as plugin:
        assert plugin.report(lambda report: True).offers.no_mps is None
        node.gpus.replace_driver("535.183.01")
        report = plugin.report(lambda report: report.offers.no_mps)
        assert report.offers.no_mps == (
            "the NVIDIA driver is 535.183.01; limits of MPS need 550 or later"
        )
        node.gpus.driver(available=False)
        plugin.report(lambda report: report.offers.no_mps == "no NVIDIA driver is loaded")


def test_a_daemon_sees_its_gpus_in_their_order_and_has_its_own_shared_memory(node: Site) -> None:
    node.start()
    wanted = node.daemon("a", 1, 0)
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    (started, *_) = node.gpus.mps_commands()
    assert started["devices"] == f"{node.uuid(1)},{node.uuid(0)}"
    shm = Path(f"/proc/{leader(node)}/root/dev/shm")
    assert shm.stat().st_dev == (node.mps_folder("a") / "shm").stat().st_dev
    assert shm.stat().st_dev != Path("/dev/shm").stat().st_dev
    assert os.statvfs(shm).f_blocks * os.statvfs(shm).f_frsize == 64 * 2**20


def test_no_user_reaches_a_daemon_before_its_limits_were_read_back(
    node: Site, wanted: WantedDaemon
) -> None:
    node.gpus.fail_mps(hang=GET_CORES)
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        eventually(lambda: GET_CORES in node.commands("a"))
        with pytest.raises(PermissionError):
            connect(node, user=NOBODY)
        node.gpus.fail_mps()
        plugin.ready(wanted)
    assert connect(node, user=NOBODY).endswith(" 0=3000M 30.0")


def test_a_server_from_before_the_limits_is_ended(node: Site, wanted: WantedDaemon) -> None:
    """A client that is root in its container reaches closed pipes."""
    node.gpus.fail_mps(hang=SERVERS)
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        eventually(lambda: SERVERS in node.commands("a"))
        first = leader(node)
        node.gpus.fail_mps(slow_command=SET_MEMORY)
        early = connect(node)
        assert early.endswith(" unlimited 100.0")
        node.gpus.fail_mps()
        seen = plugin.daemon("a", lambda daemon: daemon.state == "failed")
        assert "a client came before the limits were set" in seen.reason
        plugin.ready(wanted)
    assert leader(node) != first
    assert connect(node).endswith(" 0=3000M 30.0")


@pytest.mark.parametrize(
    ("command", "answer", "reason"),
    [
        (GET_MEMORY, "Unlimited\n", "limit of device 0 was set to 3000M, and the daemon says"),
        (GET_CORES, "100.0\n", "percentage was set to 30, and the daemon says '100.0'"),
    ],
)
def test_a_daemon_without_its_limits_is_not_ready(
    node: Site, wanted: WantedDaemon, command: str, answer: str, reason: str
) -> None:
    node.gpus.fail_mps(answers={command: answer})
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        seen = plugin.daemon("a", lambda daemon: daemon.state == "failed")
        assert reason in seen.reason
        node.gpus.fail_mps()
        assert plugin.ready(wanted).restarts > 0


def test_one_that_fails_at_its_start_says_why(node: Site, wanted: WantedDaemon) -> None:
    node.gpus.fail_mps(refuse="the GPU has fallen off the bus")
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        seen = plugin.daemon("a", lambda daemon: daemon.state == "failed")
        assert "the daemon ended at its start: the GPU has fallen off the bus" in seen.reason
        node.gpus.fail_mps()
        plugin.ready(wanted)


def test_a_slow_one_is_waited_for(node: Site, wanted: WantedDaemon) -> None:
    node.gpus.fail_mps(slow=3)
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        assert plugin.ready(wanted).restarts == 0


def test_one_that_was_killed_is_started_with_its_limits_and_no_server_is_left(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        server = int(connect(node).split()[0])
        os.kill(leader(node), signal.SIGKILL)
        seen = plugin.daemon("a", lambda daemon: daemon.state == "failed")
        assert seen.reason == "its process ended"
        assert plugin.ready(wanted).restarts == 1
    assert server not in node.cgroup("a").pids()
    assert connect(node, user=NOBODY).endswith(" 0=3000M 30.0")


def test_one_that_hangs_is_ended_and_started_and_delays_no_other(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        node.gpus.fail_mps(wanted.claim.uid, hang="*")
        other = node.daemon("b")
        plugin.want(daemons=[wanted, other])
        plugin.ready(other)
        seen = plugin.daemon("a", lambda daemon: daemon.state == "failed")
        assert seen.reason == f"3 probes failed: {SERVERS} was not answered in 2 s"
        node.gpus.fail_mps(wanted.claim.uid)
        plugin.ready(wanted)


def test_one_that_hangs_is_ended_when_it_is_not_wanted(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        connect(node)
        node.gpus.fail_mps(hang="*")
        plugin.want()
        plugin.report(lambda report: not report.daemons)
    assert not node.cgroup("a").pids()
    assert not node.mps_folder("a").exists()


def test_other_limits_are_those_of_another_daemon(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        before = leader(node)
        changed = node.daemon("a", memory_mib=4000, cores=50)
        plugin.want(daemons=[changed])
        plugin.ready(changed)
    assert leader(node) != before
    assert connect(node).endswith(" 0=4000M 50.0")


def test_a_claim_that_is_prepared_again_has_a_daemon_again(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    with node.connected() as plugin:
        for _ in range(3):
            plugin.want(daemons=[wanted])
            plugin.ready(wanted)
            plugin.want()
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    assert connect(node).endswith(" 0=3000M 30.0")


def _folder_made(node: Site) -> bool:
    return node.mps_folder("a").exists()


def _record_made(node: Site) -> bool:
    return (node.mps_folder("a") / "daemon.json").exists()


def _process_there(node: Site) -> bool:
    return bool(node.cgroup("a").pids())


@pytest.mark.parametrize("point", [_folder_made, _record_made, _process_there])
def test_after_it_was_killed_while_a_daemon_is_launched_there_is_one_daemon(
    node: Site, wanted: WantedDaemon, point: Callable[[Site], bool]
) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        eventually(lambda: point(node))
        kill(node)
    _is_ready_again(node, wanted)


@pytest.mark.parametrize("command", [SERVERS, SET_MEMORY, SET_CORES, GET_MEMORY, GET_CORES])
def test_after_it_was_killed_while_limits_are_set_there_is_one_daemon_with_limits(
    node: Site, wanted: WantedDaemon, command: str
) -> None:
    node.gpus.fail_mps(hang=command)
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        eventually(lambda: command in node.commands("a"))
        kill(node)
    node.gpus.fail_mps()
    _is_ready_again(node, wanted)


def _is_ready_again(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.ready(wanted)
    leader(node)
    assert connect(node, user=NOBODY).endswith(" 0=3000M 30.0")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_outlives_carina_sharing_and_is_adopted(
    node: Site, wanted: WantedDaemon, end: signal.Signals
) -> None:
    process = node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    before, server = leader(node), connect(node)
    process.send_signal(end)
    process.wait()
    node.start()
    with node.connected() as plugin:
        assert plugin.ready(wanted).restarts == 0
        assert (leader(node), connect(node)) == (before, server)
        os.kill(before, signal.SIGKILL)
        plugin.daemon("a", lambda daemon: daemon.restarts == 1)
        plugin.ready(wanted)


def test_one_with_other_limits_than_it_was_started_for_is_not_adopted(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    before = leader(node)
    kill(node)
    node.gpus.fail_mps(answers={GET_MEMORY: "Unlimited"})
    node.start()
    with node.connected() as plugin:
        plugin.daemon("a", lambda daemon: daemon.state == "failed")
        node.gpus.fail_mps()
        plugin.ready(wanted)
    assert leader(node) != before


def test_what_is_no_longer_wanted_after_a_restart_is_ended(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    kill(node)
    node.wanted_file.unlink()
    node.start()
    with node.connected() as plugin:
        plugin.want()
        plugin.report(lambda report: not report.daemons)
        eventually(lambda: not node.mps_folder("a").exists())
    assert not node.cgroup("a").pids()


def test_of_two_processes_only_the_first_supervises_until_it_ends(
    node: Site, wanted: WantedDaemon
) -> None:
    first = node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    before = leader(node)
    socket_of_first = (node.plugin_folder / SOCKET).lstat().st_ino
    node.launch()
    eventually(lambda: (node.plugin_folder / SOCKET).lstat().st_ino != socket_of_first)
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        seen = plugin.daemon("a", lambda daemon: True)
        assert (seen.state, seen.reason) == (
            "starting",
            "another process of carina-sharing still supervises the daemons",
        )
        first.kill()
        first.wait()
        assert plugin.ready(wanted).restarts == 0
    assert leader(node) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_all_processes_of_a_cgroup_are_killed_and_no_other(node: Site, version: Version) -> None:
    at = mount(version)
    if isinstance(at, str):
        pytest.skip(at)
    cgroup = DaemonCgroup(Hierarchies(at, ()), node.driver, "a")
    cgroup.make()
    members, other = {node.sleeper(), node.sleeper()}, node.sleeper()
    for pid in members:
        cgroup.entrances[-1].write_text(str(pid))
    assert cgroup.pids() == members
    assert not cgroup.emptied(0)
    cgroup.kill()
    assert cgroup.emptied(30)
    cgroup.remove()
    os.kill(other, 0)
    assert [process.poll() for process in node.processes] == [-signal.SIGKILL] * 2 + [None]


def test_with_a_damaged_file_nothing_is_ended_until_the_plugin_says_what_it_wants(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    before = leader(node)
    kill(node)
    node.wanted_file.write_bytes(b"{")
    node.start()
    assert (node.plugin_folder / DAMAGED).exists()
    with node.connected() as plugin:
        assert SharingReport.parse(plugin.lines.readline()).daemons == ()
        plugin.want(daemons=[wanted])
        assert plugin.ready(wanted).restarts == 0
    assert leader(node) == before


def test_a_uid_that_is_no_name_of_a_folder_is_refused(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    claim = reference("a").model_copy(update={"uid": "../a"})
    bad = wanted.model_copy(update={"claim": claim})
    with node.connected() as plugin:
        plugin.want(daemons=[bad, node.daemon("b")])
        plugin.ready(node.daemon("b"))
        report = plugin.report(lambda report: len(report.daemons) == 2)
    (seen,) = [daemon for daemon in report.daemons if daemon.wanted.claim.uid == "../a"]
    assert (seen.state, seen.reason) == ("failed", "'../a' cannot be the name of a folder")


@pytest.mark.parametrize("folder", [MPS_PIPES, MPS_SHM])
def test_no_link_of_a_container_is_followed(node: Site, wanted: WantedDaemon, folder: str) -> None:
    """Root in a container could lead Carina to a neighbour's daemon, or a daemon to a file."""
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
    link = node.mps_folder("a") / folder / "link"
    link.symlink_to(node.wanted_file)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        link.read_bytes()


def test_a_daemon_is_not_ended_by_what_could_not_be_recorded(
    node: Site, wanted: WantedDaemon
) -> None:
    node.start()
    later = node.daemon("b")
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        (node.plugin_folder / NEW_WANTED).mkdir()  # as if the disk were full
        plugin.want(daemons=[wanted, later])
        plugin.ready(later)
    before = leader(node, "b")
    kill(node)
    (node.plugin_folder / NEW_WANTED).rmdir()
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted, later])
        plugin.ready(later)
    assert leader(node, "b") == before


def test_a_mount_that_is_gone_is_noticed(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        mounts.unmount(node.mps_folder("a") / MPS_SHM)
        plugin.daemon("a", lambda daemon: daemon.state != "ready")
        plugin.ready(wanted)
    assert (node.mps_folder("a") / MPS_SHM).is_mount()


def test_the_processes_of_a_daemon_are_no_strangers(node: Site, wanted: WantedDaemon) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"), daemons=[wanted])
        plugin.ready(wanted)
        server = int(connect(node).split()[0])
        node.gpus.run_process(0, server, memory=2**30)
        stranger = node.sleeper()
        node.gpus.run_process(0, stranger, memory=2**20)
        report = plugin.report(lambda report: report.strangers)
        assert [found.processes for found in report.strangers] == [1]
        assert [use.used_mib for use in report.uses] == [0]


def test_daemons_for_ten_shares_of_each_gpu(node: Site) -> None:
    node.start()
    daemons = [node.daemon(f"c{number}", number % 8) for number in range(scaled(80))]
    with node.connected() as plugin:
        plugin.want(daemons=daemons)
        _all(plugin, lambda daemon: daemon.state == "ready", len(daemons))
        plugin.want()
        plugin.report(lambda report: not report.daemons)


def _all(plugin: Plugin, holds: Callable[[MpsDaemon], bool], count: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        report = plugin.report(lambda report: True)
        if len(report.daemons) == count and all(map(holds, report.daemons)):
            return
    raise AssertionError("they do not come to be ready")

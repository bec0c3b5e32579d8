"""Killed with SIGKILL before every step of a daemon's start and end, carina-sharing goes on there.

The next process ends in the same state: one daemon, with the limits that are wanted and all that it
needs once, or nothing at all. Daemons, their cgroups and their mounts are real.

Every fourth step is tried, others with other seeds; CARINA_TEST_LENGTH=1 tries all.
"""

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from carina_dra.sharing.files import MPS_LOGS, MPS_PIPES, MPS_SHM
from carina_dra.sharing.message import WantedDaemon
from sharing.mps.cgroups import Hierarchies, group_name
from tests.eventually import eventually
from tests.integration.killed import killed_before
from tests.integration.sharing.site import Plugin, Site, site, uid
from tests.length import scaled, seed

_EVERY = 4 // min(scaled(4), 4)
_CLAIM = "a"
_LIMITS = "0=1000M 10.0"
"""What the clients of the daemon have, as its stand-in says it."""
_FEWEST = 4
"""Steps that there are at least."""


@pytest.fixture
def node() -> Iterator[Site]:
    with site("/kubepods") as made:
        yield made


def steps() -> Iterator[int]:
    return count(seed() % _EVERY, _EVERY)


def launch(node: Site, number: int) -> subprocess.Popen[bytes]:
    """Starts a process that is killed before that step, and waits until it serves, if it does."""
    process = node.launch(changed=partial(killed_before, number, [uid(_CLAIM)]))
    eventually(lambda: process.poll() is not None or serves(node))
    return process


def serves(node: Site) -> bool:
    try:
        with node.connected():
            return True
    except OSError:
        return False


def holds_unless_killed(
    process: subprocess.Popen[bytes], node: Site, *wanted: WantedDaemon
) -> bool:
    """Wants daemons, and waits until all is so, or the process is killed; whether all is so."""
    try:
        with node.connected() as plugin:
            want(plugin, *wanted)
    except (AssertionError, OSError):
        assert process.wait() == -9, node.log
        return False
    return True


def want(plugin: Plugin, *wanted: WantedDaemon) -> None:
    plugin.want(daemons=wanted)
    for daemon in wanted:
        plugin.ready(daemon)
    if not wanted:
        plugin.report(lambda report: not report.daemons)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def mounted(node: Site) -> list[str]:
    """The folders of the claim at which something is mounted, as often as it is."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    folder = str(node.mps_folder(_CLAIM))
    return sorted(Path(line.split()[1]).name for line in lines if folder in line)


def leader(node: Site) -> int:
    """The process of the daemon, which is the only one of its cgroup that has a session."""
    pids = node.cgroup(_CLAIM).pids()
    (only,) = (pid for pid in pids if os.getsid(pid) == pid)
    return only


def limits_of_a_client(node: Site) -> str:
    program = node.gpus.root / "usr/bin/nvidia-cuda-mps-control"
    pipes = node.mps_folder(_CLAIM) / MPS_PIPES
    done = subprocess.run(
        [program],
        input="connect\n",
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split(maxsplit=1)[1].strip()


def assert_runs(node: Site) -> None:
    """One daemon runs, whose clients have the limits."""
    assert node.cgroup(_CLAIM).pids() == {leader(node)}
    assert mounted(node) == sorted((MPS_LOGS, MPS_PIPES, MPS_SHM))
    assert limits_of_a_client(node) == _LIMITS


def assert_nothing_is_left(node: Site) -> None:
    assert node.cgroup(_CLAIM).pids() == set()
    assert not (
        Hierarchies.find(Path("/sys/fs/cgroup")).tracking / group_name(node.driver)
    ).exists()
    assert not node.mps_folder(_CLAIM).exists()
    assert mounted(node) == []


def test_start(node: Site) -> None:
    wanted = node.daemon(_CLAIM)
    for number in steps():
        killed = launch(node, number)
        has_started = holds_unless_killed(killed, node, wanted)
        before = leader(node) if has_started else None
        end(killed)

        next_process = node.start()
        with node.connected() as plugin:
            want(plugin, wanted)
            assert_runs(node)
            if has_started:
                assert leader(node) == before, "a daemon with clients is not started again"
            want(plugin)
            assert_nothing_is_left(node)
        end(next_process)
        if has_started:
            break
    assert number > _FEWEST


def test_end(node: Site) -> None:
    wanted = node.daemon(_CLAIM)
    for number in steps():
        first = node.start()
        assert holds_unless_killed(first, node, wanted)
        assert_runs(node)
        end(first)
        killed = launch(node, number)
        has_ended = holds_unless_killed(killed, node)
        end(killed)

        next_process = node.start()
        with node.connected() as plugin:
            want(plugin)
            assert_nothing_is_left(node)
        end(next_process)
        if has_ended:
            break
    assert number > _FEWEST

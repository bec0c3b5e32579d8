"""Who exceeds the memory of a share loses a process: real processes in real cgroups."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharing.cgroup import KubepodsFolder
from sharing.ending import MOVED, end_process
from sharing.processes import FoundProcess, ProcessTable, ticks
from sharing.use import GpuProcess
from tests.integration.sharing.cgroups import Kubepods, kubepods, mount, move
from tests.integration.sharing.site import MIB, Site, reference, site, uid


@pytest.fixture(params=["v2-systemd", "v1"])
def cgroups(request: pytest.FixtureRequest) -> Iterator[Kubepods]:
    version, _, systemd = request.param.partition("-")
    at = mount(version)
    if isinstance(at, str):
        pytest.skip(at)
    with kubepods(at, systemd=bool(systemd)) as made:
        yield made


@pytest.fixture
def node(cgroups: Kubepods) -> Iterator[Site]:
    with site(cgroups.path) as made:
        made.start("--watchdog", "kill")
        yield made


def run(
    node: Site, cgroups: Kubepods, pod: str, memory_mib: int, *, minor: int = 0
) -> subprocess.Popen[bytes]:
    """Runs a process of a pod that uses a GPU."""
    pid = node.sleeper()
    move(pid, cgroups.container(uid(pod)))
    node.gpus.run_process(minor, pid, memory=memory_mib * MIB)
    return node.processes[-1]


def was_ended(node: Site, process: subprocess.Popen[bytes], minor: int = 0) -> bool:
    """Waits until a process has ended, whose memory the driver then frees."""
    status = process.wait(30)
    node.gpus.end_process(minor, process.pid)
    return status == -signal.SIGKILL


def test_the_largest_process_is_ended_and_neighbours_are_not(node: Site, cgroups: Kubepods) -> None:
    small, large = run(node, cgroups, "greedy", 400), run(node, cgroups, "greedy", 900)
    neighbour, stranger = run(node, cgroups, "modest", 1000), run(node, cgroups, "none", 9000)
    with node.connected() as plugin:
        plugin.want(node.share("greedy", "greedy"), node.share("modest", "modest"))
        assert was_ended(node, large)
        use = plugin.use("greedy", lambda use: use.ended and use.used_mib == 400)
    assert use.last_ended is not None
    assert use.last_ended.pod == reference("greedy")
    assert (use.last_ended.memory_mib, use.last_ended.why) == (900, "memory")
    assert str(use.last_ended.container_id) in cgroups.container(uid("greedy")).name
    assert [process.poll() for process in (small, neighbour, stranger)] == [None] * 3


def test_one_after_the_other_until_the_rest_is_within_the_limit(
    node: Site, cgroups: Kubepods
) -> None:
    first, second, third = (run(node, cgroups, "a", memory) for memory in (800, 700, 600))
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        assert was_ended(node, first)
        assert was_ended(node, second)
        use = plugin.use("a", lambda use: use.ended == 2 and use.used_mib == 600)
    assert use.exceeded == 1
    assert third.poll() is None


def test_memory_that_is_being_freed_ends_no_other(node: Site, cgroups: Kubepods) -> None:
    """The driver still lists the process. What is wanted is sampled."""
    first, second = run(node, cgroups, "a", 2000), run(node, cgroups, "a", 900)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.use("a", lambda use: use.ended)
        for _ in range(4):
            plugin.want(node.share("a", "a"))
            assert plugin.use("a", lambda use: True).ended == 1
        assert was_ended(node, first)
        assert plugin.use("a", lambda use: use.used_mib == 900).ended == 1
    assert second.poll() is None


def test_what_a_process_had_is_not_kept_by_others_of_its_pod(node: Site, cgroups: Kubepods) -> None:
    """The driver lists it while a process that it has forked has its files open."""
    trainer, neighbour = run(node, cgroups, "a", 2000), run(node, cgroups, "b", 900)
    move(node.sleeper(), cgroups.container(uid("a")))
    forked = node.processes[-1]
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"), node.share("b", "b"))
        assert trainer.wait(30) == -signal.SIGKILL
        assert plugin.use("a", lambda use: use.ended).used_mib == 2000
        assert was_ended(node, forked)
        node.gpus.end_process(0, trainer.pid)
        plugin.use("a", lambda use: use.ended == 2 and use.used_mib == 0)
    assert neighbour.poll() is None


def test_processes_of_pods_that_share_a_claim_count_together(node: Site, cgroups: Kubepods) -> None:
    first, second = run(node, cgroups, "a", 500), run(node, cgroups, "b", 600)
    with node.connected() as plugin:
        plugin.want(node.share("claim", "a", "b"))
        assert was_ended(node, second)
        use = plugin.use("claim", lambda use: use.ended)
    assert use.last_ended is not None
    assert use.last_ended.pod == reference("b")
    assert first.poll() is None


def test_only_memory_of_the_gpu_counts(node: Site, cgroups: Kubepods) -> None:
    process, other = run(node, cgroups, "a", 900), run(node, cgroups, "a", 5000, minor=1)
    node.gpus.run_process(1, process.pid, memory=200 * MIB)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"), node.share("b", "a", minor=1))
        assert was_ended(node, other, 1)
        assert plugin.use("a", lambda use: use.used_mib == 900).ended == 0
        plugin.use("b", lambda use: use.ended and use.used_mib == 200)
    assert process.poll() is None


def test_who_computes_outside_of_mps_is_ended(node: Site, cgroups: Kubepods) -> None:
    client, leaver, neighbour = (run(node, cgroups, pod, 100) for pod in ("a", "a", "b"))
    node.gpus.run_process(0, client.pid, memory=100 * MIB, kinds=frozenset({"compute", "mps"}))
    with node.connected() as plugin:
        daemon = node.daemon("a", memory_mib=1000)
        plugin.want(node.share("a", "a"), node.share("b", "b"), daemons=[daemon])
        assert was_ended(node, leaver)
        use = plugin.use("a", lambda use: use.ended and use.used_mib == 100)
        assert use.last_ended is not None
        assert (use.last_ended.pod, use.last_ended.why) == (reference("a"), "mps")
        plugin.ready(daemon)
        (server, *_) = node.cgroup("a").pids()
        node.gpus.run_process(0, server, memory=70_000 * MIB)
        node.gpus.run_process(0, client.pid, memory=2000 * MIB, kinds=frozenset({"mps"}))
        assert was_ended(node, client)
        report = plugin.report(lambda report: report.uses and report.uses[0].ended == 2)
        assert report.strangers == ()
        assert server in node.cgroup("a").pids()
    assert neighbour.poll() is None


def test_a_process_of_no_pod_is_never_ended(node: Site, cgroups: Kubepods) -> None:
    own, process = node.sleeper(), run(node, cgroups, "a", 900)
    node.gpus.run_process(0, own, memory=70_000 * MIB)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.strangers)
        node.gpus.run_process(0, process.pid, memory=2000 * MIB)
        assert was_ended(node, process)
        plugin.use("a", lambda use: use.ended)
    os.kill(own, 0)


def test_it_says_that_it_ends_violators(node: Site) -> None:
    with node.connected() as plugin:
        assert plugin.report(lambda _: True).offers.ends_violators


def test_a_watchdog_that_warns_ends_nobody(cgroups: Kubepods) -> None:
    with site(cgroups.path) as made:
        made.start()
        process = run(made, cgroups, "a", 5000)
        with made.connected() as plugin:
            plugin.want(made.share("a", "a"))
            report = plugin.report(lambda report: report.uses and report.uses[0].exceeded)
        assert not report.offers.ends_violators
        assert report.uses[0].ended == 0
        assert process.poll() is None


def seen(cgroups: Kubepods, pid: int) -> tuple[ProcessTable, GpuProcess]:
    """A process as a sample has it, and the table that it is from."""
    table = ProcessTable(Path("/proc"), (KubepodsFolder(cgroups.path),))
    found = table.find(pid, ticks() + 1)
    assert isinstance(found, FoundProcess)
    assert found.pod is not None
    return table, GpuProcess(
        pid=pid,
        started=found.started,
        runs=found.runs,
        pod_uid=found.pod.pod_uid,
        container_id=found.pod.container_id,
        memory=None,
        sm_percent=None,
        outside_mps=False,
    )


def test_a_process_that_moves_to_another_pod_after_the_sample_lives(
    node: Site, cgroups: Kubepods
) -> None:
    pid = node.sleeper()
    move(pid, cgroups.container(uid("a")))
    table, process = seen(cgroups, pid)
    move(pid, cgroups.container(uid("b")))
    assert end_process(table, process) == MOVED
    move(pid, cgroups.mount)
    assert end_process(table, process) == MOVED
    assert node.processes[-1].poll() is None


def test_a_process_that_moves_within_its_container_is_ended(node: Site, cgroups: Kubepods) -> None:
    pid = node.sleeper()
    move(pid, cgroups.container(uid("a")))
    table, process = seen(cgroups, pid)
    move(pid, cgroups.container(uid("a"), None, "own"))
    assert end_process(table, process) is None
    assert node.processes[-1].wait(30) == -signal.SIGKILL

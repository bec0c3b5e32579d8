"""Processes of GPUs, by simulated NVML and the procfs of this machine."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary, NvmlSession
from sharing import processes
from sharing.cgroup import DEFAULT_FOLDERS, PodCgroup
from sharing.observation import GpuSample, Seen, Unseen
from sharing.processes import FoundProcess, GoneProcess, GpuProcesses, ProcessTable, ticks
from simulation.nvml.installation import installed
from simulation.nvml.node import SimulatedNode
from tests.eventually import eventually

MIB = 2**20
UID, ID = "0a1b2c3d-1111-2222-3333-444455556666", "4f" * 32
OTHER = "0a1b2c3d-1111-2222-3333-777788889999"


@dataclass
class Reader:
    """The processes of GPUs, in a session of NVML."""

    processes: GpuProcesses
    session: NvmlSession

    def read(self, uuid: str) -> GpuSample:
        return self.processes.read(uuid, self.session)


class Procfs:
    """A folder with processes, as /proc has them."""

    ROOT = "4:memory:/\n"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int, pod_uid: str | None, *, began: int = 5) -> None:
        own = self.folder / str(pid)
        own.mkdir(exist_ok=True)
        fields = " ".join(["S", *["0"] * 16, "1", "0", str(began), "0"])
        (own / "stat").write_text(f"{pid} (a) b () {fields}\n")
        path = "/system.slice" if pod_uid is None else f"/kubepods/pod{pod_uid}/{ID}"
        (own / "cgroup").write_text(f"0::{path}\n")

    def end_first_thread(self, pid: int, *, threads: int) -> None:
        """Ends it, with cgroup v1, where the process has so many with it."""
        stat = self.folder / f"{pid}/stat"
        fields = stat.read_text().replace(") S", ") Z").split(" ")
        stat.write_text(" ".join([*fields[:-4], str(threads), *fields[-3:]]))
        (self.folder / f"{pid}/cgroup").write_text(self.ROOT)

    @property
    def table(self) -> ProcessTable:
        return ProcessTable(self.folder, DEFAULT_FOLDERS)


@pytest.fixture
def procfs(tmp_path: Path) -> Procfs:
    folder = tmp_path / "proc"
    folder.mkdir()
    return Procfs(folder)


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return SimulatedNode.create(tmp_path / "node", "dgx-h100", name="node-1")


@pytest.fixture
def reader(node: SimulatedNode, procfs: Procfs) -> Iterator[Reader]:
    with installed(node.directory), NvmlLibrary(lambda: None).lease() as session:
        yield Reader(GpuProcesses(procfs.table), session)


def sample(reader: Reader, node: SimulatedNode, minor: int = 0) -> GpuSample:
    return reader.read(node.state.gpus[minor].uuid)


def seen(reader: Reader, node: SimulatedNode) -> list[tuple[int, str | None, int]]:
    """PID, pod and MiB of each process of the first GPU."""
    found = sample(reader, node)
    assert isinstance(found, Seen)
    return [(known.pid, known.pod_uid, (known.memory or 0) // MIB) for known in found.processes]


def test_a_process_has_its_pod_and_memory(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(101, UID)
    procfs.add(102, None)
    node.run_process(0, 101, memory=300 * MIB)
    node.run_process(0, 102, memory=400 * MIB)
    assert seen(reader, node) == [(102, None, 400), (101, UID, 300)]
    found = sample(reader, node)
    assert isinstance(found, Seen)
    assert [known.container_id for known in found.processes] == [None, ID]


def test_processes_of_all_lists_count_once_with_the_most_that_one_says(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    for pid, kinds in ((1, {"compute", "graphics"}), (2, {"graphics"}), (3, {"mps", "compute"})):
        procfs.add(pid, UID)
        node.run_process(0, pid, memory=pid * MIB, kinds=frozenset(kinds))
    assert seen(reader, node) == [(3, UID, 3), (2, UID, 2), (1, UID, 1)]


@pytest.mark.parametrize("most", ["compute", "graphics"])
def test_a_list_that_says_less_does_not_make_it_less(
    monkeypatch: pytest.MonkeyPatch, reader: Reader, node: SimulatedNode, procfs: Procfs, most: str
) -> None:
    procfs.add(1, UID)
    for name, symbol in (("compute", "_COMPUTE"), ("graphics", "_GRAPHICS")):
        listed = [SimpleNamespace(pid=1, usedGpuMemory=(7 if name == most else 5) * MIB)]
        monkeypatch.setattr(processes, symbol, lambda _, listed=listed: listed)
    assert seen(reader, node) == [(1, UID, 7)]


def test_a_client_of_mps_that_no_other_list_has_counts(
    monkeypatch: pytest.MonkeyPatch, reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(1, UID)
    monkeypatch.setattr(
        processes, "_MPS", lambda _: [SimpleNamespace(pid=1, usedGpuMemory=7 * MIB)]
    )
    assert seen(reader, node) == [(1, UID, 7)]


def test_an_mps_server_is_left_out_and_keeps_no_other_from_being_seen(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    """It uses what its clients do, and must never count as a process that can be ended."""
    procfs.add(1, None)
    (procfs.folder / "1/cgroup").write_text("0::/carina-mps/uid-a\n")
    procfs.add(2, UID)
    node.run_process(0, 1, memory=9 * MIB)
    node.run_process(0, 2, memory=3 * MIB)
    assert seen(reader, node) == [(2, UID, 3)]


def test_a_process_that_has_ended_is_left_out(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    node.run_process(0, 101)
    assert seen(reader, node) == []


@pytest.mark.parametrize("taken_by", [None, OTHER])
def test_a_process_has_what_the_driver_lists_of_it_also_when_it_has_ended(
    reader: Reader, node: SimulatedNode, procfs: Procfs, taken_by: str | None
) -> None:
    """Those that it has forked keep it. Its PID may be another process's by now."""
    procfs.add(101, UID)
    node.run_process(0, 101, memory=5 * MIB)
    before = sample(reader, node)
    shutil.rmtree(procfs.folder / "101")
    if taken_by is not None:
        procfs.add(101, taken_by, began=9)
    assert isinstance(before, Seen)
    ended = tuple(replace(known, runs=False) for known in before.processes)
    assert [sample(reader, node) for _ in range(2)] == [Seen(ended)] * 2


def test_a_process_whose_parent_has_not_heard_of_its_end_is_of_its_pod_as_before(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, memory=5 * MIB)
    sample(reader, node)
    procfs.end_first_thread(101, threads=1)
    found = sample(reader, node)
    assert isinstance(found, Seen)
    assert [(known.pod_uid, known.runs) for known in found.processes] == [(UID, False)]


def test_a_pid_that_was_not_listed_in_between_is_of_who_has_it(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, memory=5 * MIB)
    sample(reader, node)
    node.end_process(0, 101)
    sample(reader, node)
    procfs.add(101, OTHER, began=9)
    node.run_process(0, 101, memory=7 * MIB)
    assert seen(reader, node) == [(101, OTHER, 7)]


@pytest.mark.parametrize(("pause", "owner"), [(4.9, UID), (5.0, OTHER), (-1.0, OTHER)])
def test_a_pid_that_was_listed_long_ago_is_of_who_has_it(
    reader: Reader, node: SimulatedNode, procfs: Procfs, pause: float, owner: str
) -> None:
    """A GPU is not looked at while it has no share."""
    at = 1000.0
    reader = replace(reader, processes=GpuProcesses(procfs.table, lambda: at))
    procfs.add(101, UID)
    node.run_process(0, 101, memory=5 * MIB)
    sample(reader, node)
    procfs.add(101, OTHER, began=9)
    at += pause
    assert seen(reader, node) == [(101, owner, 5)]


def test_the_processes_of_a_pod_are_those_whose_cgroup_is_of_its_containers(procfs: Procfs) -> None:
    for pid, pod in ((1, None), (2, UID), (3, OTHER), (4, UID)):
        procfs.add(pid, pod)
    (procfs.folder / "self").mkdir()
    for pid, name in ((5, "crio-conmon-" + ID), (6, "")):  # CRI-O's own, and an administrator's
        procfs.add(pid, None)
        (procfs.folder / f"{pid}/cgroup").write_text(f"0::/kubepods/pod{UID}/{name}\n")
    assert set(procfs.table.of_pod(UID, listed_at=1000)) == {2, 4}
    assert set(procfs.table.of_pod(UID, listed_at=5)) == set()


def test_a_process_that_ends_while_it_is_looked_up_has_ended(procfs: Procfs) -> None:
    (procfs.folder / "101").mkdir()
    assert procfs.table.find(101, listed_at=1000) == GoneProcess()


def test_no_file_of_a_process_stays_open(procfs: Procfs) -> None:
    procfs.add(101, UID)
    procfs.table.find(101, listed_at=1000)
    (procfs.folder / "102").mkdir()
    procfs.table.find(102, listed_at=1000)
    stat = procfs.folder / "101/stat"
    stat.write_text(stat.read_text().replace(") S", ") Z"))
    (procfs.folder / "101/task").mkdir()
    procfs.table.find(101, listed_at=1000)
    opened = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    assert [path for path in opened if path.startswith(str(procfs.folder))] == []


def test_processes_with_as_much_memory_are_in_the_order_of_their_pids(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    for pid, memory in ((103, 0), (102, MIB), (101, MIB)):
        procfs.add(pid, UID)
        node.run_process(0, pid, memory=memory)
    found = sample(reader, node)
    assert isinstance(found, Seen)
    assert [(known.pid, known.memory) for known in found.processes] == [
        (101, MIB),
        (102, MIB),
        (103, 0),
    ]


def test_a_process_that_began_after_the_list_was_read_is_another_one(procfs: Procfs) -> None:
    procfs.add(101, UID, began=1000)
    assert procfs.table.find(101, listed_at=1000) == GoneProcess()
    assert procfs.table.find(101, listed_at=999) == GoneProcess()
    assert procfs.table.find(101, listed_at=1001) == FoundProcess(
        started=1000, runs=True, pod=PodCgroup(UID, ID)
    )


def test_a_process_that_moves_belongs_to_where_it_is(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    node.run_process(0, 101)
    procfs.add(101, UID)
    assert seen(reader, node)[0][1] == UID
    procfs.add(101, None)
    assert seen(reader, node)[0][1] is None


IN_POD = f"4:memory:/kubepods/pod{UID}/{ID}\n"
"""What a thread that runs says with cgroup v1. One that has ended is in the root."""


def first_thread_has_ended(procfs: Procfs, *others: str | None) -> FoundProcess | GoneProcess:
    """A process by the cgroups of its other threads: None for one that ends before it is read."""
    procfs.add(101, None)
    for number, cgroups in enumerate((procfs.ROOT, *others)):
        folder = procfs.folder / f"101/task/{101 + number}"
        folder.mkdir(parents=True)
        if cgroups is not None:
            (folder / "cgroup").write_text(cgroups)
    procfs.end_first_thread(101, threads=1 + len(others))
    return procfs.table.find(101, listed_at=1000)


def test_a_process_whose_first_thread_has_ended_is_of_the_pod_of_the_others(
    procfs: Procfs,
) -> None:
    expected = FoundProcess(started=5, runs=True, pod=PodCgroup(UID, ID))
    assert first_thread_has_ended(procfs, IN_POD) == expected


def test_threads_that_end_before_they_are_looked_at_do_not_hide_that_a_process_runs(
    procfs: Procfs,
) -> None:
    found = first_thread_has_ended(procfs, None)
    assert isinstance(found, FoundProcess)
    assert found.runs


def test_a_process_whose_threads_have_all_ended_does_not_run(procfs: Procfs) -> None:
    assert first_thread_has_ended(procfs) == FoundProcess(started=5, runs=False, pod=None)


def test_of_very_many_threads_some_are_looked_at(
    procfs: Procfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample looks them up. A tracer can keep threads that have ended."""
    read: list[str] = []
    original = processes._read

    def counted(folder: int, name: str) -> str:
        read.append(name)
        return original(folder, name)

    monkeypatch.setattr(processes, "_read", counted)
    first_thread_has_ended(procfs, *[procfs.ROOT] * 1000)
    assert len(read) < 300


@contextmanager
def sleeping() -> Iterator[int]:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_the_processes_of_this_machine_are_read_as_procfs_has_them() -> None:
    table = ProcessTable(Path("/proc"), DEFAULT_FOLDERS)
    before = ticks()
    with sleeping() as pid:
        assert table.find(pid, before) == GoneProcess()
        eventually(lambda: ticks() > before + 1)
        found = table.find(pid, ticks() + 1)
        assert isinstance(found, FoundProcess)
        assert (found.runs, found.pod) == (True, None)
    assert table.find(pid, ticks() + 1) == GoneProcess()


def test_a_process_whose_parent_has_not_heard_of_its_end_does_not_run() -> None:
    table = ProcessTable(Path("/proc"), DEFAULT_FOLDERS)
    with sleeping() as pid:
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not _found(table, pid).runs)


def _found(table: ProcessTable, pid: int) -> FoundProcess:
    found = table.find(pid, ticks() + 1)
    assert isinstance(found, FoundProcess)
    return found


def test_who_computes_and_is_no_client_of_mps_is_outside_of_it(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    kinds = ({"compute"}, {"compute", "mps"}, {"mps"}, {"graphics"}, {"compute", "graphics"})
    for pid, lists in enumerate(kinds, start=1):
        procfs.add(pid, UID)
        node.run_process(0, pid, kinds=frozenset(lists))
    assert outside(reader, node) == {1, 5}


def test_nobody_is_outside_of_mps_where_the_driver_does_not_list_its_clients(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(1, UID)
    node.run_process(0, 1)
    node.remove_symbol("nvmlDeviceGetMPSComputeRunningProcesses_v3")
    assert outside(reader, node) == set()


def outside(reader: Reader, node: SimulatedNode) -> set[int]:
    found = sample(reader, node)
    assert isinstance(found, Seen)
    return {known.pid for known in found.processes if known.outside_mps}


def test_a_process_without_a_figure_keeps_no_other_from_being_seen(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    for pid, memory in ((1, 300 * MIB), (2, None)):
        procfs.add(pid, UID)
        node.run_process(0, pid, memory=memory)
    assert figures(reader, node) == {1: 300 * MIB, 2: None}


def test_a_driver_that_has_given_a_figure_can_give_it(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    """So who has a process without one cannot make its GPU unwatched."""
    for pid, memory in ((1, 300 * MIB), (2, None)):
        procfs.add(pid, UID)
        node.run_process(0, pid, memory=memory)
    sample(reader, node)
    node.end_process(0, 1)
    assert figures(reader, node) == {2: None}
    reader.processes.forget()
    assert isinstance(sample(reader, node), Unseen)


def figures(reader: Reader, node: SimulatedNode) -> dict[int, int | None]:
    found = sample(reader, node)
    assert isinstance(found, Seen)
    return {known.pid: known.memory for known in found.processes}


def test_the_handle_of_a_gpu_is_looked_up_once_a_session(
    reader: Reader, node: SimulatedNode
) -> None:
    assert sample(reader, node) == Seen(())
    node.fail("nvmlDeviceGetHandleByUUID", pynvml.NVML_ERROR_UNKNOWN)
    assert sample(reader, node) == Seen(())
    reader.session = NvmlSession(None)
    assert isinstance(sample(reader, node), Unseen)


def test_the_handle_of_a_gpu_that_failed_is_looked_up_again(
    reader: Reader, node: SimulatedNode
) -> None:
    assert sample(reader, node) == Seen(())
    for symbol in (_COMPUTE, "nvmlDeviceGetHandleByUUID"):
        node.fail(symbol, pynvml.NVML_ERROR_UNKNOWN)
    assert _COMPUTE in reason(reader, node)
    assert "nvmlDeviceGetHandleByUUID" in reason(reader, node)


_COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"


def reason(reader: Reader, node: SimulatedNode) -> str:
    failed = sample(reader, node)
    assert isinstance(failed, Unseen)
    return failed.reason


def test_memory_that_the_driver_does_not_say_is_a_reason(
    reader: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, memory=None)
    reason = "the driver does not say how much memory processes use"
    assert sample(reader, node) == Unseen(reason)


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMigMode",
    ],
)
def test_a_call_that_a_driver_does_not_have_costs_what_it_feeds(
    reader: Reader, node: SimulatedNode, procfs: Procfs, symbol: str
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101)
    node.remove_symbol(symbol)
    assert [pid for pid, *_ in seen(reader, node)] == [101]


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetHandleByUUID",
    ],
)
def test_a_call_that_fails_leaves_the_gpu_unwatched_with_the_reason(
    reader: Reader, node: SimulatedNode, symbol: str
) -> None:
    node.fail(symbol, pynvml.NVML_ERROR_UNKNOWN)
    failed = sample(reader, node)
    assert isinstance(failed, Unseen)
    assert "returned NVML_ERROR_UNKNOWN" in failed.reason


def test_a_lost_gpu_is_unwatched_and_others_are_not(reader: Reader, node: SimulatedNode) -> None:
    node.lose_gpu(0)
    assert isinstance(sample(reader, node, 0), Unseen)
    assert sample(reader, node, 1) == Seen(())


def test_a_gpu_in_mig_mode_is_unwatched(reader: Reader, node: SimulatedNode) -> None:
    pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
    assert sample(reader, node) == Unseen("it is in MIG mode")


def sm(reader: Reader, node: SimulatedNode) -> list[int | None]:
    found = sample(reader, node)
    assert isinstance(found, Seen)
    return [known.sm_percent for known in found.processes]


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(node: SimulatedNode, procfs: Procfs, clock: Clock) -> Iterator[Reader]:
    with installed(node.directory), NvmlLibrary(lambda: None).lease() as session:
        yield Reader(GpuProcesses(procfs.table, clock), session)


def test_the_use_of_multiprocessors_is_read_once_a_second(
    timed: Reader, node: SimulatedNode, procfs: Procfs, clock: Clock
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, sm_percent=40)
    assert sm(timed, node) == [40]
    node.run_process(0, 101, sm_percent=70)
    assert sm(timed, node) == [40]
    clock.now += 0.9
    assert sm(timed, node) == [40]
    clock.now += 0.1
    assert sm(timed, node) == [70]
    node.run_process(0, 101, sm_percent=0)
    clock.now += 1
    assert sm(timed, node) == [0]


def test_the_use_of_multiprocessors_is_not_of_an_earlier_session(
    timed: Reader, node: SimulatedNode, procfs: Procfs
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, sm_percent=40)
    assert sm(timed, node) == [40]
    node.run_process(0, 101, sm_percent=70)
    timed.processes.forget()
    assert sm(timed, node) == [70]


def test_the_most_of_the_last_second_counts_and_no_more_than_all(
    timed: Reader, node: SimulatedNode, procfs: Procfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver also gives what it saw earlier, whatever time it is asked for."""
    since = int((Clock.now - 1) * 1_000_000)
    said = [(101, 0, 0), (101, 1, 7), (101, 1, 5), (102, 1, 130), (103, 1, 0), (103, 0, 90)]
    asked = []

    def utilization(_: object, time: int) -> list[SimpleNamespace]:
        asked.append(time)
        return [
            SimpleNamespace(pid=pid, timeStamp=since + later, smUtil=percent)
            for pid, later, percent in said
        ]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", utilization)
    for pid in (101, 102, 103):
        procfs.add(pid, UID)
        node.run_process(0, pid, memory=MIB)
    assert sm(timed, node) == [7, 100, 0]
    assert asked == [since]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_driver_that_does_not_say_it_costs_nothing_else(
    reader: Reader, node: SimulatedNode, procfs: Procfs, code: int
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, sm_percent=40)
    node.fail("nvmlDeviceGetProcessUtilization", code)
    assert sm(reader, node) == [None]


def test_samples_from_before_the_last_second_do_not_count(
    timed: Reader, node: SimulatedNode, procfs: Procfs, clock: Clock
) -> None:
    procfs.add(101, UID)
    node.run_process(0, 101, sm_percent=40)
    clock.now = 1e11
    assert sm(timed, node) == [0]


def test_of_very_many_processes_those_with_the_most_memory_are_looked_up(
    reader: Reader, node: SimulatedNode, procfs: Procfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharing.processes._MOST_PROCESSES", 2)
    for pid in (101, 102, 103):
        procfs.add(pid, UID)
        node.run_process(0, pid, memory=pid * MIB)
    assert seen(reader, node) == [(103, UID, 103), (102, UID, 102), (101, None, 101)]

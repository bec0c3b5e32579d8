"""The end of a process that was seen, with real processes, and of no other one.

All processes of this machine are of one pod here, unless a test says otherwise.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sharing import ending
from sharing.cgroup import PodCgroup
from sharing.ending import ANOTHER, GONE, KEPT, MOVED, end_process
from sharing.processes import FoundProcess, GoneProcess, ProcessTable, ticks
from sharing.use import GpuProcess
from tests.eventually import eventually

POD = PodCgroup("0a1b2c3d-1111-2222-3333-444455556666", "4f" * 32)
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_TRIES = 100
"""Others on this machine also start processes."""


class Table(ProcessTable):
    """The processes of this machine, in a pod."""

    def __init__(
        self, pod: PodCgroup | None = POD, others: Mapping[int, PodCgroup] | None = None
    ) -> None:
        super().__init__(Path("/proc"), ())
        self.pod = pod
        self.others = others or {}
        """The pods of some processes."""
        self.before: Callable[[], object] = lambda: None
        """Called before a process is read once more."""
        self.after: Callable[[], object] = lambda: None
        """Called after it."""

    def find(self, pid: int, listed_at: int) -> FoundProcess | GoneProcess:
        self.before()
        found = super().find(pid, listed_at)
        self.after()
        if isinstance(found, GoneProcess):
            return found
        return replace(found, pod=self.others.get(pid, self.pod))


class Sleepers:
    """Processes that sleep."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.DEVNULL
        )
        self.started.append(made)
        return made

    def take_pid(self, pid: int) -> subprocess.Popen[bytes]:
        """Ends the process with this PID, and gives the PID to another."""
        for process in self.started:
            if process.pid == pid:
                process.kill()
                process.wait()
        for _ in range(_TRIES):
            _LAST_PID.write_text(str(pid - 1))
            if (made := self.start()).pid == pid:
                return made
            self._end(made)
        raise AssertionError(f"{_TRIES} processes did not get the PID {pid}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def end_all(self) -> None:
        for process in self.started:
            self._end(process)


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    made = Sleepers()
    try:
        yield made
    finally:
        made.end_all()


needs_pids = pytest.mark.skipif(
    not os.access(_LAST_PID, os.W_OK), reason=f"{_LAST_PID} cannot be written on this machine"
)


def seen(pid: int, table: Table) -> GpuProcess:
    """The process as a sample has it."""
    found = table.find(pid, ticks() + 1)
    assert isinstance(found, FoundProcess)
    assert found.pod is not None
    eventually(lambda: ticks() > found.started + 1)
    return GpuProcess(
        pid=pid,
        started=found.started,
        runs=True,
        pod_uid=found.pod.pod_uid,
        container_id=found.pod.container_id,
        memory=2**30,
        sm_percent=0,
        outside_mps=False,
    )


def test_a_process_that_is_as_it_was_seen_is_ended(sleepers: Sleepers) -> None:
    process, table = sleepers.start(), Table()
    assert end_process(table, seen(process.pid, table)) is None
    assert process.wait(30) == -signal.SIGKILL


def test_a_process_that_has_ended_is_not(sleepers: Sleepers) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    process.kill()
    process.wait()
    assert end_process(table, known) == GONE


def test_a_process_whose_parent_has_not_heard_of_its_end_is_not(sleepers: Sleepers) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert end_process(table, known) == GONE


def test_all_of_its_pod_are_ended_where_a_process_had_ended_and_others_keep_what_it_had(
    sleepers: Sleepers,
) -> None:
    process, forked, neighbour, host = (sleepers.start() for _ in range(4))
    another = PodCgroup("another", POD.container_id)
    table = Table(None, {process.pid: POD, forked.pid: POD, neighbour.pid: another})
    known = replace(seen(process.pid, table), runs=False)
    process.kill()
    process.wait()
    began = ticks()
    eventually(lambda: ticks() > began)
    assert end_process(table, known) is None
    assert forked.wait(30) == -signal.SIGKILL
    assert (neighbour.poll(), host.poll()) == (None, None)
    assert end_process(table, known) == KEPT


@needs_pids
def test_the_process_that_has_its_pid_by_now_lives(sleepers: Sleepers) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    another = sleepers.take_pid(process.pid)
    assert end_process(table, known) == ANOTHER
    assert another.poll() is None


@needs_pids
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_pid_that_is_given_away_during_the_act_ends_nobody(
    sleepers: Sleepers, moment: str
) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    taken: list[subprocess.Popen[bytes]] = []
    setattr(table, moment, lambda: taken.append(sleepers.take_pid(process.pid)))
    assert end_process(table, known) in (ANOTHER, GONE)  # it depends on the clock tick
    assert [another.poll() for another in taken] == [None]


@pytest.mark.parametrize(
    "now", [None, PodCgroup("another", POD.container_id), PodCgroup(POD.pod_uid, "another")]
)
def test_a_process_that_has_moved_lives(sleepers: Sleepers, now: PodCgroup | None) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    table.pod = now
    assert end_process(table, known) == MOVED
    assert process.poll() is None


def test_a_process_of_no_pod_lives(sleepers: Sleepers) -> None:
    process, table = sleepers.start(), Table()
    known = replace(seen(process.pid, table), pod_uid=None, container_id=None)
    table.pod = None
    assert end_process(table, known) == MOVED
    assert process.poll() is None


def test_a_process_that_procfs_cannot_tell_of_lives(sleepers: Sleepers, tmp_path: Path) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    assert end_process(ProcessTable(tmp_path, ()), known) == GONE
    assert process.poll() is None


def test_a_process_whose_first_thread_has_ended_is_ended(sleepers: Sleepers) -> None:
    script = (
        "import ctypes, threading, signal\n"
        "threading.Thread(target=lambda: threading.Event().wait()).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.DEVNULL)
    sleepers.started.append(process)
    stat = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    table = Table()
    known = seen(process.pid, table)
    assert end_process(table, known) is None
    assert process.wait(30) == -signal.SIGKILL


_HELD = """
import ctypes, os, signal, sys, threading
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

def wait():
    while True:
        signal.pause()

def seize(thread):
    assert libc.ptrace(0x4206, thread, None, 0x40) == 0  # PTRACE_SEIZE, PTRACE_O_TRACEEXIT

def forked(work):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        work(lambda said: os.write(writing, b"%d\\n" % said))
        wait()
    return child, int(os.read(reading, 20))

def with_thread(say):
    other = lambda: (say(threading.get_native_id()), threading.Event().wait())
    threading.Thread(target=other).start()

def tracer_of(thread):
    def trace(say):
        seize(thread)
        say(0)
    return trace

held, thread = forked(with_thread if sys.argv[1] == "one thread is traced" else lambda say: say(0))
match sys.argv[1]:
    case "one thread traces":
        traced = threading.Event()
        tracer = lambda: (seize(held), traced.set(), threading.Event().wait())
        threading.Thread(target=tracer, daemon=True).start()
        traced.wait()
    case "one thread is traced":
        seize(thread)
    case "tracers are traced":
        last = held
        for _ in range(20):
            last, _ = forked(tracer_of(last))
    case _:
        seize(held)
print(held, flush=True)
wait()
"""


@contextmanager
def held_process(sleepers: Sleepers, how: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A process that another keeps from ending, and that one or its parent."""
    tracer = subprocess.Popen(
        [sys.executable, "-c", _HELD, how], stdout=subprocess.PIPE, start_new_session=True
    )
    sleepers.started.append(tracer)
    assert tracer.stdout is not None
    try:
        with tracer.stdout:
            yield int(tracer.stdout.readline()), tracer
    finally:
        os.killpg(tracer.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "how", ["all is traced", "one thread traces", "one thread is traced", "tracers are traced"]
)
def test_a_tracer_cannot_keep_a_process_of_its_pod_from_ending(
    sleepers: Sleepers, how: str
) -> None:
    table = Table()
    with held_process(sleepers, how) as (held, _):
        began = ticks()
        eventually(lambda: ticks() > began)  # before, a PID may be another's by now
        assert end_process(table, seen(held, table)) is None
        eventually(lambda: has_ended(held))


def test_a_tracer_of_another_pod_lives(sleepers: Sleepers) -> None:
    table = Table()
    with held_process(sleepers, "all is traced") as (held, tracer):
        table.others = {tracer.pid: PodCgroup("another", None)}
        assert end_process(table, seen(held, table)) is None
        assert tracer.poll() is None


def has_ended(pid: int) -> bool:
    """Whether no thread of a process is left that has anything."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        states = [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()
    return set(states) <= {"Z", "X"}


@contextmanager
def refused(monkeypatch: pytest.MonkeyPatch, error: OSError) -> Iterator[None]:
    def refuse(*_: object) -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("os.pidfd_open", refuse)
        yield


def test_a_kernel_that_cannot_is_a_reason(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)
    with refused(monkeypatch, OSError(38, "Function not implemented")):
        assert "cannot be opened" in str(end_process(table, known))
        assert "Linux has from 5.3 on" in str(ending.problem())
    assert process.poll() is None
    assert ending.problem() is None


def test_a_signal_that_is_refused_is_a_reason(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the process would count as ended."""
    process, table = sleepers.start(), Table()
    known = seen(process.pid, table)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("signal.pidfd_send_signal", refuse)
    assert "cannot be sent a signal" in str(end_process(table, known))


def traced_by(
    monkeypatch: pytest.MonkeyPatch, table: ProcessTable, tracers: Mapping[int, int]
) -> list[int]:
    """Has a process traced by another; returns the processes whose tracers are asked for."""
    asked: list[int] = []

    def found(pid: int) -> Iterator[int]:
        asked.append(pid)
        yield tracers.get(pid, 0)

    monkeypatch.setattr(table, "tracers", found)
    return asked


def test_of_a_process_and_its_tracers_so_many_threads_are_looked_at_in_all(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, tracer, table = sleepers.start(), sleepers.start(), Table()
    known = seen(process.pid, table)
    looks: list[int] = []

    def threads(pid: int) -> Iterator[int]:
        for traced_by in (tracer.pid, *[0] * 10_000):
            looks.append(pid)
            yield traced_by

    monkeypatch.setattr(table, "tracers", threads)
    assert end_process(table, known) is None
    assert len(looks) == 4096


def test_a_tracer_that_has_ended_by_itself_leaves_the_process_ended(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, tracer, table = sleepers.start(), sleepers.start(), Table()
    known = seen(process.pid, table)
    tracer.kill()
    tracer.wait()
    traced_by(monkeypatch, table, {process.pid: tracer.pid})
    assert end_process(table, known) is None
    assert process.wait(30) == -signal.SIGKILL


def test_tracers_of_each_other_are_followed_once(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, first, second, table = *(sleepers.start() for _ in range(3)), Table()
    known = seen(process.pid, table)
    chain = {process.pid: first.pid, first.pid: second.pid, second.pid: first.pid}
    asked = traced_by(monkeypatch, table, chain)
    began = ticks()
    eventually(lambda: ticks() > began)  # before, a PID may be another's by now
    assert end_process(table, known) is None
    assert asked == [process.pid, first.pid, second.pid]
    assert {ended.wait(30) for ended in (process, first, second)} == {-signal.SIGKILL}


def test_no_descriptor_stays_open(sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    known = [seen(sleepers.start().pid, table) for _ in range(2)]
    traced_by(monkeypatch, table, {known[0].pid: sleepers.start().pid})
    before = os.listdir("/proc/self/fd")
    for process in known:
        end_process(table, process)
        end_process(Table(None), process)
    assert os.listdir("/proc/self/fd") == before

"""Who uses a GPU, as NVML says, and of which pod a process is, as procfs says.

NVML gives PIDs in the PID namespace of its caller, so this process has to be in that of the host.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import pynvml

from carina_dra.nvidia.nvml_library import NvmlCallError, NvmlSession, call, optional_call
from sharing.cgroup import KubepodsFolder, PodCgroup, is_below, pod_of
from sharing.observation import GpuSample, Seen, Unseen
from sharing.use import GpuProcess

_MOST_PROCESSES: Final = 4096
"""Of a GPU that are looked up, those with the most memory first: ten times what fits on a GPU with
the memory that each needs to compute. More of them must not cost more time."""
_MOST_THREADS: Final = 256
"""Of a process whose cgroups are looked at. A process makes thousands at no cost."""
_REMEMBERED: Final = 5.0
"""Seconds for which the last list of a GPU says whose its PIDs are. After longer, such as while it
had no share, they may have been given away."""
_SM_WINDOW: Final = 1.0
"""Seconds."""
_NONE_COMPUTED: Final = "NVML_ERROR_NOT_FOUND"
# Those without a version raise an error of pynvml's own if the driver does not have them.
_COMPUTE: Final = pynvml.nvmlDeviceGetComputeRunningProcesses_v3
_GRAPHICS: Final = pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3
_MPS: Final = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """What procfs says of a process."""

    started: int
    """In clock ticks since the boot."""
    runs: bool
    """False if all of its threads have ended, and its parent has not heard of it yet."""
    pod: PodCgroup | None
    """None if it is of no pod."""
    is_mps_server: bool = False
    """Whether it is of an MPS daemon of Carina's: it uses what its clients do."""


@dataclass(frozen=True, slots=True)
class GoneProcess:
    """A process that is gone, so that its PID may be another's by now."""


class ProcessTable:
    """The processes of the node."""

    def __init__(
        self, proc: Path, folders: Sequence[KubepodsFolder], mps_group: str = "carina-mps"
    ) -> None:
        """`folders` are those that the cgroups of pods can be in; `mps_group` that of daemons."""
        self._proc = str(proc)
        self._folders = folders
        self._mps_group = mps_group

    def tracers(self, pid: int) -> Iterator[int]:
        """Yields, for each thread of a process, the PID of the process that traces it, or 0."""
        with suppress(OSError), os.scandir(f"{self._proc}/{pid}/task") as threads:
            for thread in threads:
                tracer = self._status(f"{pid}/task/{thread.name}", b"TracerPid:")
                yield self._status(str(tracer), b"Tgid:") if tracer else 0  # it is a thread, too

    def _status(self, thread: str, field: bytes) -> int:
        """Returns a number of a thread's file `status`; 0 if the thread is gone."""
        with suppress(OSError):
            for line in Path(f"{self._proc}/{thread}/status").read_bytes().split(b"\n"):
                if line.startswith(field):
                    return int(line.split()[1])
        return 0

    def of_pod(self, pod_uid: str, listed_at: int) -> Iterator[int]:
        """Yields the PIDs of all processes of a pod's containers that had them at a time."""
        for name in os.listdir(self._proc):
            if name.isdecimal():
                match self.find(int(name), listed_at):
                    case FoundProcess(pod=PodCgroup(uid, str())) if uid == pod_uid:
                        yield int(name)
                    case _:
                        pass

    def find(self, pid: int, listed_at: int) -> FoundProcess | GoneProcess:
        """Returns the process that had this PID at a time.

        The time is in clock ticks since the boot (`ticks`). A process that began later, or in the
        same tick, may be another one.
        """
        try:
            # All that is opened below is of this process, even if its PID is given to another.
            folder = os.open(f"{self._proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return GoneProcess()
        try:
            stat = _Stat.parse(_read(folder, "stat"))
            if stat.started >= listed_at:
                return GoneProcess()
            return self._found(folder, stat)
        except OSError:
            return GoneProcess()
        finally:
            os.close(folder)

    def _found(self, folder: int, stat: "_Stat") -> FoundProcess:
        runs = not stat.has_ended or stat.threads > 1
        for cgroups in _cgroups(folder, of_others=stat.has_ended and runs):
            pod = pod_of(cgroups, self._folders)
            is_mps_server = is_below(cgroups, self._mps_group)
            if pod is not None or is_mps_server:
                return FoundProcess(stat.started, runs, pod, is_mps_server)
        return FoundProcess(stat.started, runs, None)


def ticks() -> int:
    """Returns the time since the boot, as procfs has the start of a process: in clock ticks."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_A_SECOND)


_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode(errors="surrogateescape")


def _cgroups(folder: int, *, of_others: bool) -> Iterator[str]:
    """Yields the cgroups of a process: those of its first thread, and of others.

    With cgroup v1, a thread that has ended is of none (Linux, proc_cgroup_show). Of many others,
    some are looked at, the youngest first. Raises OSError.
    """
    yield _read(folder, "cgroup")
    if of_others:
        tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        try:
            threads = os.listdir(tasks)[-_MOST_THREADS:]
        finally:
            os.close(tasks)
        for thread in reversed(threads):
            cgroups = ""
            with suppress(OSError):  # it has ended meanwhile
                cgroups = _read(folder, f"task/{thread}/cgroup")
            yield cgroups


@dataclass(frozen=True, slots=True)
class _Stat:
    """What the file /proc/<pid>/stat says (proc_pid_stat(5))."""

    has_ended: bool
    """Whether the first thread has."""
    threads: int
    """All that have not ended. A process can replace them faster than they can be looked at."""
    started: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads fields 3 (state), 20 (num_threads) and 22 (starttime).

        A name, which is field 2, may have parentheses.
        """
        fields = text.rpartition(")")[2].split()
        return cls(fields[0] in ("Z", "X"), int(fields[17]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class _Listed:
    """What the lists of the driver say of a process."""

    memory: int | None
    outside_mps: bool


class GpuProcesses:
    """The processes of GPUs, read within leases of NVML. For one thread."""

    def __init__(self, table: ProcessTable, now: Callable[[], float] = time.time) -> None:
        """`now` is in seconds since 1970."""
        self._table = table
        self._now = now
        self._sm: dict[str, _SmPercent] = {}
        self._session: NvmlSession | None = None
        self._handles: dict[str, object] = {}
        """Of the session, by the UUID of the GPU."""
        self._last: dict[str, _Last] = {}
        """By the UUID of the GPU."""
        self._measured: set[str] = set()
        """The UUIDs of GPUs whose driver has said of a process how much memory it has."""

    def read(self, uuid: str, session: NvmlSession) -> GpuSample:
        """Returns the processes of a GPU, or why they cannot be told.

        Blocks as long as the driver does.
        """
        if session is not self._session:
            self._session = session
            self._handles.clear()
        try:
            return self._read(uuid)
        except NvmlCallError as error:
            self._handles.pop(uuid, None)
            return Unseen(str(error.failure))

    def forget(self) -> None:
        """Forgets what was read in earlier sessions."""
        self._session = None
        self._sm.clear()
        self._handles.clear()
        self._last.clear()
        self._measured.clear()

    def _read(self, uuid: str) -> GpuSample:
        handle = self._handle(uuid)
        modes = optional_call(pynvml.nvmlDeviceGetMigMode, handle)
        if modes is not None and pynvml.NVML_DEVICE_MIG_ENABLE in modes:
            return Unseen("it is in MIG mode")
        listed_at = ticks()
        listed = _listed(
            call(_COMPUTE, handle), optional_call(_GRAPHICS, handle), optional_call(_MPS, handle)
        )
        if any(process.memory is not None for process in listed.values()):
            self._measured.add(uuid)
        if listed and uuid not in self._measured:
            return Unseen("the driver does not say how much memory processes use")
        sm_percent = self._sm_percent(uuid, handle) if listed else {}
        return Seen(tuple(self._processes(uuid, listed, sm_percent, listed_at)))

    def _handle(self, uuid: str) -> object:
        handle = self._handles.get(uuid)
        if handle is None:
            handle = self._handles[uuid] = call(pynvml.nvmlDeviceGetHandleByUUID, uuid)
        return handle

    def _processes(
        self,
        uuid: str,
        listed: Mapping[int, _Listed],
        sm_percent: Mapping[int, int] | None,
        listed_at: int,
    ) -> Iterator[GpuProcess]:
        by_size = sorted(listed.items(), key=lambda item: (-(item[1].memory or 0), item[0]))
        before = self._remembered(uuid)
        known = {
            pid: found
            for pid, _ in by_size[:_MOST_PROCESSES]
            if (found := self._looked_up(pid, listed_at, before.get(pid))) is not None
        }
        self._last[uuid] = _Last(self._now(), known)
        for index, (pid, process) in enumerate(by_size):
            found = known.get(pid) if index < _MOST_PROCESSES else _UNKNOWN
            if found is None or found.is_mps_server:
                continue
            yield GpuProcess(
                pid=pid,
                started=found.started,
                runs=found.runs,
                pod_uid=None if found.pod is None else found.pod.pod_uid,
                container_id=None if found.pod is None else found.pod.container_id,
                memory=process.memory,
                sm_percent=None if sm_percent is None else sm_percent.get(pid, 0),
                outside_mps=process.outside_mps,
            )

    def _remembered(self, uuid: str) -> Mapping[int, FoundProcess]:
        last = self._last.get(uuid)
        if last is None or not 0 <= self._now() - last.at < _REMEMBERED:
            return {}
        return last.by_pid

    def _looked_up(
        self, pid: int, listed_at: int, before: FoundProcess | None
    ) -> FoundProcess | None:
        """Returns the process of a PID that the driver lists; None if it is not known.

        While the PID is in one list after the other, it is of the same process, also if that has
        ended: others can keep what it had, such as children, which have its files open. Its PID can
        be of another process by then.
        """
        found = self._table.find(pid, listed_at)
        if before is None:
            return None if isinstance(found, GoneProcess) else found
        match found:
            case FoundProcess(started, runs=True) if started == before.started:
                return found
            case _:  # with cgroup v1, one that has ended is of no pod
                return replace(before, runs=False)

    def _sm_percent(self, uuid: str, handle: object) -> Mapping[int, int] | None:
        """What the processes of a GPU compute, by PID, as of a second ago at most."""
        now = self._now()
        known = self._sm.get(uuid)
        if known is None or not 0 <= now - known.read_at < _SM_WINDOW:
            known = self._sm[uuid] = _SmPercent(now, _read_sm_percent(handle, now))
        return known.by_pid


_UNKNOWN: Final = FoundProcess(started=0, runs=True, pod=None)


def _listed(
    compute: Sequence[Any], graphics: Sequence[Any] | None, mps: Sequence[Any] | None
) -> Mapping[int, _Listed]:
    """The processes in the lists of a GPU, by PID, with the most memory that a list says.

    A list is None if the driver does not have it.
    """
    memory: dict[int, int | None] = {}
    for process in chain(compute, graphics or (), mps or ()):
        known = memory.get(process.pid)
        said = process.usedGpuMemory
        memory[process.pid] = known if said is None else max(said, known or 0)
    outside: set[int] = set()
    if mps is not None:
        outside = {process.pid for process in compute} - {process.pid for process in mps}
    return {pid: _Listed(used, pid in outside) for pid, used in memory.items()}


@dataclass(frozen=True, slots=True)
class _Last:
    """The processes of a GPU in its last sample."""

    at: float
    by_pid: Mapping[int, FoundProcess]


@dataclass(frozen=True, slots=True)
class _SmPercent:
    read_at: float
    by_pid: Mapping[int, int] | None


def _read_sm_percent(handle: object, now: float) -> Mapping[int, int] | None:
    """None if the driver does not say it."""
    since = int((now - _SM_WINDOW) * 1_000_000)
    try:
        samples: Sequence[Any] | None = optional_call(
            pynvml.nvmlDeviceGetProcessUtilization, handle, since
        )
    except NvmlCallError as error:
        if error.failure.code == _NONE_COMPUTED:
            return {}
        _log.debug("use of multiprocessors cannot be read", extra={"failure": str(error.failure)})
        return None
    if samples is None:
        return None
    percent: dict[int, int] = {}
    for sample in samples:
        if sample.timeStamp > since:  # drivers also give what they saw earlier
            percent[sample.pid] = max(min(sample.smUtil, 100), percent.get(sample.pid, 0))
    return percent

"""Ends a process, and no other one.

Between a sample and the act, a process can end and its PID be given to another, or it can be moved
to another cgroup. So a file descriptor of the process is opened first (pidfd_open(2)). Then procfs
says once more whether the PID is of the process that was seen, in the same pod. The signal goes by
the descriptor (pidfd_send_signal(2)), and fails once the process is gone. A PID is not given away
before; so if the signal can be sent, what procfs said was of this process.

A process of which a thread is traced can be kept from ending by the tracer (ptrace(2),
PTRACE_O_TRACEEXIT). So all tracers are ended with it that are of the same pod, and their tracers.

What a process had of a GPU is kept after its end by all who have its files open: processes that it
has forked, or that it has passed them to. Files can also be in a socket, of nobody. So then all
processes of its pod are ended.
"""

import os
import signal
from contextlib import suppress
from itertools import islice
from typing import Final

from sharing.cgroup import PodCgroup
from sharing.processes import FoundProcess, ProcessTable, ticks
from sharing.use import GpuProcess

GONE: Final = "it has ended by itself"
ANOTHER: Final = "its PID is another process's by now"
MOVED: Final = "it is in another cgroup by now"
KEPT: Final = "it has ended, and no process of its pod is there that keeps what it had"
_MOST_THREADS: Final = 4096
"""Of a process and of its tracers that are looked at in a sample. Those that nobody traces end, so
that the next sample looks at others."""


def end_process(table: ProcessTable, process: GpuProcess) -> str | None:
    """Sends SIGKILL to a process as it was seen; returns why it did not, None if it did.

    If it had ended when it was seen, it is sent to all of its pod, who keep what it had.
    """
    if not process.runs:
        return _end_pod(table, process)
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return GONE
    except OSError as error:
        return f"it cannot be opened: {error}"
    try:
        match table.find(process.pid, ticks() + 1):
            case FoundProcess(started, runs, pod):
                if started != process.started:
                    return ANOTHER
                if not runs:
                    return GONE
                found = (None, None) if pod is None else (pod.pod_uid, pod.container_id)
                if pod is None or found != (process.pod_uid, process.container_id):
                    return MOVED
            case _:
                return GONE
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _end_tracers(table, process)
    except ProcessLookupError:
        return GONE
    except OSError as error:
        return f"it cannot be sent a signal: {error}"
    finally:
        os.close(descriptor)
    return None


def _end_tracers(table: ProcessTable, process: GpuProcess) -> None:
    pending, known, left = [process.pid], {process.pid, 0}, _MOST_THREADS
    while pending and left:
        looked_at = ticks()
        for tracer in islice(table.tracers(pending.pop()), left):
            left -= 1
            if tracer not in known:
                known.add(tracer)
                if _end_of_pod(table, tracer, looked_at, process.pod_uid):
                    pending.append(tracer)


def _end_pod(table: ProcessTable, process: GpuProcess) -> str | None:
    now, ended = ticks(), False
    if process.pod_uid is not None:
        for pid in table.of_pod(process.pod_uid, now):
            ended |= _end_of_pod(table, pid, now, process.pod_uid)
    return None if ended else KEPT


def _end_of_pod(table: ProcessTable, pid: int, looked_at: int, pod_uid: str | None) -> bool:
    """Ends a process that was there at a time, and returns whether it is of this pod."""
    with suppress(OSError):  # it has ended by itself
        descriptor = os.pidfd_open(pid)
        try:
            match table.find(pid, looked_at):
                case FoundProcess(pod=PodCgroup(pod_uid=uid)) if uid == pod_uid:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    return True
                case _:
                    pass
        finally:
            os.close(descriptor)
    return False


def problem() -> str | None:
    """Returns why processes cannot be ended on this node; None if they can."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"pidfd_open fails ({error}), which Linux has from 5.3 on"
    return None

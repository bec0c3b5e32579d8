"""Whether a simulated GPU still has a process: one that stands for a real one ends with it."""

from pathlib import Path

from simulation.nvml.state import GpuProcess, GpuState

__all__ = ["running", "start_of"]


def start_of(pid: int) -> int | None:
    """When a process began, in clock ticks since the boot; None if there is none with this PID."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(rest[18])


def running(gpu: GpuState) -> list[GpuProcess]:
    """The processes that the GPU has."""
    return [
        process
        for process in gpu.processes
        if process.started is None or process.started == start_of(process.pid)
    ]

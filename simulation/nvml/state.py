"""What changes on a simulated node, kept in one JSON file that processes share.

`StateFile.read` gives the current state, parsed again only when the file has changed;
`StateFile.update` applies a function to it under a lock. A state is immutable, so a
reader may keep it. The file is replaced by renaming, so that a process killed at any moment leaves
a whole state behind.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

__all__ = [
    "WHOLE_GPU",
    "ComputeInstance",
    "DriverState",
    "Event",
    "Fault",
    "GpuInstance",
    "GpuProcess",
    "GpuState",
    "Health",
    "MemoryLimit",
    "NodeState",
    "StateFile",
]

WHOLE_GPU = 0xFFFFFFFF
"""NVML's "no instance" in an event: the GPU is not partitioned."""

_KEPT_EVENTS = 1000

DriverState: TypeAlias = Literal["loaded", "unloaded", "not installed"]


@dataclass(frozen=True, slots=True)
class ComputeInstance:
    """A compute instance; `profile` is NVML_COMPUTE_INSTANCE_PROFILE_*."""

    id: int
    profile: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A GPU instance; `profile` is NVML_GPU_INSTANCE_PROFILE_*."""

    id: int
    profile: int
    start: int
    size: int
    compute_instances: tuple[ComputeInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The limits of a cgroup's memory on a GPU, in bytes."""

    cgroup: str
    """The path."""
    inode: int
    """Of the folder: the limits end with the cgroup."""
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Health:
    """What NVML says of a GPU's health."""

    recovery_action: int = 0
    """NVML_GPU_RECOVERY_ACTION_*; drivers below r565 do not say it."""
    rows_pending: bool = False
    rows_failed: bool = False
    repair_pending: bool = False
    memory_unrepairable: bool = False
    sram_threshold_exceeded: bool = False
    fabric_state: int | None = None
    """NVML_GPU_FABRIC_STATE_*; None for that of the hardware."""
    fabric_status: int = 0
    fabric_health_mask: int = 0
    clocks_event_reasons: int = 0


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a GPU."""

    pid: int
    memory: int | None = 2**30
    """Bytes; None if the driver does not say it."""
    sm_percent: int = 0
    """Of the GPU's multiprocessors."""
    kinds: frozenset[Literal["compute", "graphics", "mps"]] = frozenset({"compute"})
    """The lists that it is in."""
    started: int | None = None
    """When the real process began that it stands for, and with which it ends; in clock ticks since
    the boot. None if it stands for none."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU."""

    uuid: str
    serial: str
    presence: Literal["attached", "lost", "unplugged"] = "attached"
    mig_enabled: bool = False
    mig_pending: bool = False
    compute_mode: int = 0
    virtualization: int = 0
    """NVML's number of the virtualization mode; 0 is none, 2 is a vGPU in its guest."""
    processes: tuple[GpuProcess, ...] = ()
    instances: tuple[GpuInstance, ...] = ()
    health: Health = Health()
    memory_limits: tuple[MemoryLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Calls of a symbol return a code: `remaining` times; always if None."""

    symbol: str
    code: int
    minor: int | None = None
    """Only on this GPU; None for all."""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event that NVML delivers to event sets that registered for it; numbered from 1."""

    number: int
    minor: int
    type: int
    data: int
    gpu_instance: int = WHOLE_GPU
    compute_instance: int = WHOLE_GPU


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node; `gpus` are keyed by minor number."""

    name: str
    boot_id: str
    gpus: dict[int, GpuState]
    driver_version: str
    driver: DriverState = "loaded"
    faults: tuple[Fault, ...] = ()
    hanging: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    compute_instance_device: Literal["gpu", "mig device"] = "gpu"
    """Whose handle the info of a compute instance has: the GPU's, as nvml.h says, or the MIG
    device's, which some drivers give."""
    memory_limits_by_cgroup: bool = True
    """Whether the driver limits the memory of cgroups, if it is of r615 or later."""
    held_limit: int | None = None
    """The hard limit that the driver says, whatever was set."""
    events: tuple[Event, ...] = ()
    last_event: int = 0

    def with_gpu(self, minor: int, gpu: GpuState) -> "NodeState":
        """This state with one GPU replaced."""
        return replace(self, gpus={**self.gpus, minor: gpu})

    def with_event(
        self,
        minor: int,
        event_type: int,
        data: int,
        gpu_instance: int = WHOLE_GPU,
        compute_instance: int = WHOLE_GPU,
    ) -> "NodeState":
        """This state with a further event."""
        number = self.last_event + 1
        event = Event(number, minor, event_type, data, gpu_instance, compute_instance)
        return replace(self, events=(*self.events, event)[-_KEPT_EVENTS:], last_event=number)


_STATE: TypeAdapter[NodeState] = TypeAdapter(NodeState)


class StateFile:
    """The state of one node, on disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "state.json"
        self._lock = directory / "state.lock"
        self._version: tuple[int, int] | None = None
        self._state: NodeState | None = None

    def create(self, state: NodeState) -> None:
        """Writes the first state."""
        self._lock.touch()
        self._write(state)

    def read(self) -> NodeState:
        """The current state."""
        status = self._path.stat()
        version = (status.st_ino, status.st_mtime_ns)
        if self._state is None or version != self._version:
            self._state = _STATE.validate_json(self._path.read_bytes())
            self._version = version
        return self._state

    def update(
        self,
        change: Callable[[NodeState], NodeState],
        written: Callable[[NodeState], object] = lambda _: None,
    ) -> NodeState:
        """Changes the state under the lock, and returns the new one.

        If `change` raises, the state stays as it is. `written` is called with the new state under
        the lock, to write files that follow from it.
        """
        with self._locked():
            before = _STATE.validate_json(self._path.read_bytes())
            after = change(before)
            if after != before:
                self._write(after)
            written(after)
            return after

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, state: NodeState) -> None:
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(_STATE.dump_json(state))
        temporary.replace(self._path)

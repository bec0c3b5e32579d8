"""The simulated libcuda.so.1: an object with a method for each C function that is used.

Kernels do nothing and take time: as if all processes with a context computed all the time, and
those that take turns had equal ones. The clients of an MPS server have one turn together, in which
they run beside each other.
"""

import ctypes
import json
import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from gpu_proof import cuda, own_cgroups
from simulation.cuda.mps import Attachment, attach
from simulation.nvml.c_arguments import number, put, target
from simulation.nvml.hardware import HARDWARE
from simulation.nvml.live import running, start_of
from simulation.nvml.state import GpuProcess, GpuState, NodeState, StateFile

__all__ = ["CudaFault", "SimulatedCuda", "install", "set_faults"]

CudaFault: TypeAlias = Literal[
    "cuMemAlloc is not limited",
    "cuMemCreate is not limited",
    "cuMemAllocAsync is not limited",
    "each process has a limit of its own",
    "memory is counted twice",
    "more is reserved than said",
    "no percentage holds",
    "a fault is everyone's",
    "the environment raises limits",
    "turns are of processes",
]
"""How it fails. A node has several."""
_FAULTS: Final = "cuda-faults.json"
_TURNS: Final = "cuda-turns"
_MIB: Final = 2**20
_CONTEXT: Final = 300 * _MIB
_RESERVED: Final = 600 * _MIB
"""As the simulated NVML says it."""
_MULTIPROCESSORS: Final = 132
_BLOCKS_AT_A_TIME: Final = 2 * _MULTIPROCESSORS
_ROUND: Final = 2e-8
"""Seconds."""
_OUT_OF_MEMORY, _NO_DEVICE, _ILLEGAL_ADDRESS = 2, 100, 700
_NAMES: Final = {
    _OUT_OF_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY",
    _NO_DEVICE: b"CUDA_ERROR_NO_DEVICE",
    _ILLEGAL_ADDRESS: b"CUDA_ERROR_ILLEGAL_ADDRESS",
}
_WORK, _FAULT = 1, 2


def install(directory: Path) -> None:
    """Makes this process compute on the simulated node in a directory."""
    cuda.loaded = SimulatedCuda(directory)


def set_faults(directory: Path, *faults: CudaFault) -> None:
    """Makes it fail in these ways, and in no others."""
    (directory / _FAULTS).write_text(json.dumps(faults))


class SimulatedCuda:
    """Replaces `ctypes.CDLL("libcuda.so.1")`, for one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = StateFile(directory)
        self._minor = -1
        self._mps: Attachment | None = None
        self._error = 0

    # --- the device ---

    def cuInit(self, _flags: Any) -> int:
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = self._file.read().gpus
        found = [minor for minor, gpu in gpus.items() if wanted in (None, gpu.uuid)]
        if not found:
            return _NO_DEVICE
        self._minor = found[0]
        self._mps = attach(raises="the environment raises limits" in self._faults)
        return 0

    def cuGetErrorName(self, code: Any, text: Any) -> int:
        put_text = target(text)
        put_text.value = _NAMES.get(number(code))
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        hardware = HARDWARE.validate_json((self._directory / "hardware.json").read_bytes())
        major, minor = hardware.cuda_version
        put(version, major * 1000 + minor * 10)
        return 0

    def cuDeviceGet(self, device: Any, ordinal: Any) -> int:
        put(device, number(ordinal))
        return 0

    def cuDevicePrimaryCtxRetain(self, _context: Any, _device: Any) -> int:
        turns = self._directory / _TURNS
        turns.mkdir(exist_ok=True)
        pid = os.getpid()
        group = f"server {self._mps.server}" if self._mps else f"process {pid}"
        (turns / str(pid)).write_text(f"{start_of(pid)} {group}")
        return self._take(_CONTEXT, limited=True)

    def cuCtxSetCurrent(self, _context: Any) -> int:
        return 0

    def cuDeviceGetAttribute(self, value: Any, _attribute: Any, _device: Any) -> int:
        put(value, -(-_MULTIPROCESSORS * self._percentage // 100))
        return 0

    # --- memory ---

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        node = self._file.read()
        gpu = node.gpus[self._minor]
        size = min((self._memory, *(limit for limit, _ in self._limits(gpu))))
        put(total, size)
        put(free, size - self._own(gpu))
        return 0

    def cuMemAlloc_v2(self, _pointer: Any, size: Any) -> int:
        if number(size) < _MIB:  # what a kernel writes to
            return 0
        return self._take(number(size), limited="cuMemAlloc is not limited" not in self._faults)

    def cuMemAllocAsync(self, _pointer: Any, size: Any, _stream: Any) -> int:
        limited = "cuMemAllocAsync is not limited" not in self._faults
        return self._take(number(size), limited=limited)

    def cuMemCreate(self, _handle: Any, size: Any, _properties: Any, _flags: Any) -> int:
        return self._take(number(size), limited="cuMemCreate is not limited" not in self._faults)

    def cuMemAddressReserve(self, *_arguments: Any) -> int:
        return self._error

    def cuMemMap(self, *_arguments: Any) -> int:
        return self._error

    def cuMemSetAccess(self, *_arguments: Any) -> int:
        return self._error

    def cuMemAllocManaged(self, _pointer: Any, size: Any, _flags: Any) -> int:
        return self._take(number(size), limited=False)

    def cuMemsetD8_v2(self, *_arguments: Any) -> int:
        return self._error

    # --- kernels ---

    def cuModuleLoadData(self, _module: Any, _image: Any) -> int:
        return self._error

    def cuModuleGetFunction(self, function: Any, _module: Any, name: Any) -> int:
        put(function, _FAULT if name == b"fault" else _WORK)
        return self._error

    def cuLaunchKernel(self, function: Any, blocks: Any, *arguments: Any) -> int:
        began = time.monotonic()
        if self._error:
            return self._error
        if number(function) == _FAULT:
            self._error = _ILLEGAL_ADDRESS
            if "a fault is everyone's" in self._faults:
                (self._directory / _TURNS / "fault").touch()
            return 0
        pointers = arguments[7]
        rounds = ctypes.cast(pointers[0], ctypes.POINTER(ctypes.c_ulonglong))[0]
        times = max(number(blocks) / _BLOCKS_AT_A_TIME, 1)
        takes = rounds * _ROUND * times * self._wait * 100 / self._percentage
        time.sleep(max(began + takes - time.monotonic(), 0))
        return 0

    def cuCtxSynchronize(self) -> int:
        if (self._directory / _TURNS / "fault").exists():
            self._error = _ILLEGAL_ADDRESS
        return self._error

    # --- what they follow from ---

    @property
    def _faults(self) -> Collection[CudaFault]:
        try:
            faults: list[CudaFault] = json.loads((self._directory / _FAULTS).read_text())
        except FileNotFoundError:
            return ()
        return faults

    @property
    def _percentage(self) -> int:
        if self._mps is None or "no percentage holds" in self._faults:
            return 100
        return self._mps.percentage

    @property
    def _wait(self) -> float:
        """How many times as long a kernel takes as if it were alone."""
        files = [file for file in (self._directory / _TURNS).iterdir() if file.name.isdecimal()]
        groups: dict[str, int] = {}
        for file in files:
            started, _, group = file.read_text().partition(" ")
            if started == str(start_of(int(file.name))):
                groups[group] = groups.get(group, 0) + 1
        if "turns are of processes" in self._faults:
            return sum(groups.values())
        own = (self._directory / _TURNS / str(os.getpid())).read_text().partition(" ")[2]
        return len(groups) * groups[own]

    @property
    def _memory(self) -> int:
        hardware = HARDWARE.validate_json((self._directory / "hardware.json").read_bytes())
        reserved = _RESERVED * (4 if "more is reserved than said" in self._faults else 1)
        return int(hardware.model(self._minor).memory_mib * _MIB - reserved)

    def _take(self, size: int, *, limited: bool) -> int:
        """Has the process have more memory, unless a limit is in the way."""
        if self._error:
            return self._error
        taken: list[bool] = []

        def change(node: NodeState) -> NodeState:
            gpu = node.gpus[self._minor]
            limits = self._limits(gpu) if limited else []
            whole = sum(process.memory or 0 for process in running(gpu))
            limits.append((self._memory, whole))
            if any(used + size > most for most, used in limits):
                return node
            taken.append(True)
            return node.with_gpu(self._minor, self._with(gpu, size))

        self._file.update(change)
        return 0 if taken else _OUT_OF_MEMORY

    def _limits(self, gpu: GpuState) -> list[tuple[int, int]]:
        """The limits that hold for this process, and what is used of each."""
        limits = []
        if self._mps is not None and self._mps.limit is not None:
            limits.append((self._mps.limit, self._own(gpu)))
        own = _cgroup(os.getpid())
        for limit in gpu.memory_limits:
            if own is not None and own.is_relative_to(limit.cgroup):
                inside = (known for known in running(gpu) if _is_in(known.pid, limit.cgroup))
                alone = "each process has a limit of its own" in self._faults
                used = self._own(gpu) if alone else sum(known.memory or 0 for known in inside)
                limits.append((limit.hard, used))
        return limits

    def _own(self, gpu: GpuState) -> int:
        own = (known.memory or 0 for known in running(gpu) if known.pid == os.getpid())
        said = sum(own)
        return said // 2 if "memory is counted twice" in self._faults else said

    def _with(self, gpu: GpuState, size: int) -> GpuState:
        pid = os.getpid()
        said = (self._own(gpu) + size) * (2 if "memory is counted twice" in self._faults else 1)
        kinds: frozenset[Any] = frozenset({"compute", "mps"} if self._mps else {"compute"})
        process = GpuProcess(pid, said, 0, kinds, start_of(pid))
        others = (known for known in running(gpu) if known.pid != pid)
        return replace(gpu, processes=(*others, process))


def _cgroup(pid: int) -> Path | None:
    root = own_cgroups.mount()
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:  # it has ended
        return None
    found: Callable[[str], bool] = lambda line: line.startswith("0::")  # noqa: E731
    path = next(filter(found, lines), None)
    return None if root is None or path is None else root / path.removeprefix("0::/")


def _is_in(pid: int, cgroup: str) -> bool:
    path = _cgroup(pid)
    return path is not None and path.is_relative_to(cgroup)

"""C functions about the limits of memory of cgroups, which drivers have from r615 on.

A cgroup is any folder that exists. MIG mode has no limits, as NVIDIA says of MIG handles.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from simulation.nvml.c_arguments import target
from simulation.nvml.library import Session, answer, function
from simulation.nvml.state import GpuState, MemoryLimit

_DRIVER = 615


@function
def nvmlDeviceSetMemoryLimits_v1(nvml: Session, device: Any, limits: Any) -> None:
    minor, wanted = _gpu(nvml, device), target(limits)
    cgroup, inode = _cgroup(wanted.nameSpace)
    if wanted.softLimit > wanted.hardLimit:
        answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def change(gpu: GpuState) -> GpuState:
        before = _found(gpu, cgroup, inode)
        others = tuple(limit for limit in gpu.memory_limits if limit.cgroup != cgroup)
        changed = replace(before, soft=wanted.softLimit, hard=wanted.hardLimit)
        unlimited = changed.hard == pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
        return replace(gpu, memory_limits=others if unlimited else (*others, changed))

    nvml.change_gpu(minor, change)


@function
def nvmlDeviceGetMemoryLimits_v1(nvml: Session, device: Any, limits: Any) -> None:
    minor, asked = _gpu(nvml, device), target(limits)
    found = _found(nvml.gpu(minor).state, *_cgroup(asked.nameSpace))
    held = nvml.state.held_limit
    asked.softLimit = found.soft
    asked.hardLimit = found.hard if held is None else held
    asked.currentUsed = 0


def _gpu(nvml: Session, device: Any) -> int:
    if nvml.driver_branch < _DRIVER:
        answer(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    gpu = nvml.whole_device(device)
    if not nvml.state.memory_limits_by_cgroup or gpu.state.mig_enabled:
        answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return gpu.slot.minor


def _cgroup(name_space: str) -> tuple[str, int]:
    path = Path(name_space)
    if not path.is_absolute() or not path.is_dir():
        answer(pynvml.NVML_ERROR_NOT_FOUND)
    return str(path), path.stat().st_ino


def _found(gpu: GpuState, cgroup: str, inode: int) -> MemoryLimit:
    """The limits of a cgroup: none if it was made again after they were set."""
    for limit in gpu.memory_limits:
        if (limit.cgroup, limit.inode) == (cgroup, inode):
            return limit
    return MemoryLimit(cgroup, inode, soft=0, hard=int(pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX))

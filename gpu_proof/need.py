"""What a part needs of the machine, and why it is missing, in words for a person."""

import os
from enum import Enum
from typing import assert_never

from gpu_proof import cuda
from kubelet_plugin.inventory.compute_mode import ComputeMode
from kubelet_plugin.inventory.gpu import MigMode, ObservedGpu
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
)


class Need(Enum):
    """What a part needs."""

    GPU = "a GPU that this machine's driver answers for"
    WHOLE = "that GPU out of MIG mode, in the compute mode DEFAULT"
    CUDA = "the library of CUDA"
    ROOT = "root"
    CGROUPS = "cgroups of its own"


def found_gpu(inventory: Inventory, uuid: str | None) -> ObservedGpu | str:
    """Returns the GPU with this UUID, or the first; else why there is none."""
    match inventory:
        case DriverMissing(reason):
            return reason
        case DriverUnusable(failure):
            return f"the NVIDIA driver does not work: {failure}"
        case DriverReplaced():
            return "the NVIDIA driver was replaced meanwhile"
        case DriverReady(gpus):
            wanted = [gpu for gpu in gpus if uuid in (None, gpu.gpu.uuid)]
            if wanted:
                return wanted[0]
            return "there is no GPU" if uuid is None else f"there is no GPU {uuid}"
    assert_never(inventory)


def missing(need: Need, gpu: ObservedGpu | str, *, cgroups: bool) -> str | None:
    """Returns why a need is not met; None if it is."""
    match need:
        case Need.GPU:
            return gpu if isinstance(gpu, str) else None
        case Need.WHOLE:
            return None if isinstance(gpu, str) else _not_whole(gpu)
        case Need.CUDA:
            try:
                cuda.load()
            except OSError as error:
                return f"there is no library of CUDA: {error}"
            return None
        case Need.ROOT:
            return None if os.geteuid() == 0 else "it does not run as root"
        case Need.CGROUPS:
            return None if cgroups else "no cgroup can be made: cgroup v2 is not mounted writable"
    assert_never(need)


def _not_whole(gpu: ObservedGpu) -> str | None:
    if gpu.state.mig_mode is not MigMode.OFF:
        return f"{gpu.gpu.uuid} is in MIG mode, which is left as it is"
    if gpu.state.compute_mode is not ComputeMode.DEFAULT:
        mode = gpu.state.compute_mode.value
        return f"{gpu.gpu.uuid} is in the compute mode {mode}, which is left as it is"
    return None

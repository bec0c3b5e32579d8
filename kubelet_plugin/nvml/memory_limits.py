"""Limits of a GPU's memory that the driver enforces for a cgroup, from driver r615 on.

NVML names a cgroup by its path in this process's file system. A limit counts the memory of all
processes of the cgroup and of those below it, and an allocation beyond it fails. It ends with its
cgroup. CUDA's managed memory is not counted (NVIDIA, MPS: "MPS v3 memory partitioning").

Functions take the handle of a GPU, and are called within a lease of the library.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

import pynvml

from carina_dra.nvidia.nvml_library import NO_SUCH, NvmlCallError, call

PROBE: Final = "carina-memory-limit-probe"
"""The cgroup, below the root, on which it is tried whether a limit holds."""
_PROBED_BYTES: Final = 2**30
_NONE: Final = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
_UNAVAILABLE: Final = NO_SUCH | {"NVML_ERROR_NOT_FOUND", "NVML_ERROR_NO_PERMISSION"}
"""Errors that stay: of an old driver, and of a cgroup without the controller that is needed."""

_log = logging.getLogger(__name__)


def read_limit(handle: object, cgroup: Path) -> int | None:
    """Returns the limit of a cgroup in bytes; None if it has none.

    Raises:
        NvmlCallError: the cgroup does not exist, or the driver has no such limits.
    """
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=os.fsencode(cgroup))
    call(pynvml.nvmlDeviceGetMemoryLimits_v1, handle, limits)
    return None if limits.hardLimit == _NONE else int(limits.hardLimit)


def set_limit(handle: object, cgroup: Path, limit: int | None) -> None:
    """Sets the limit of a cgroup in bytes; None removes it. Nothing is guaranteed to the cgroup.

    Raises:
        NvmlCallError: as `read_limit`.
    """
    hard = _NONE if limit is None else limit
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(cgroup), 0, hard)
    call(pynvml.nvmlDeviceSetMemoryLimits_v1, handle, limits)


def limits_memory(handle: object, cgroup_root: Path) -> bool:
    """Returns whether the driver keeps a limit: it is set on a cgroup made for this, and read back.

    Raises:
        NvmlCallError: the driver fails otherwise than by not having such limits.
    """
    try:
        read_limit(handle, cgroup_root)  # else a cgroup would be made for each driver without
    except NvmlCallError as error:
        if error.failure.code == "NVML_ERROR_FUNCTION_NOT_FOUND":
            return False  # another error may be because of the root, which has no limits
    probe = cgroup_root / PROBE
    try:
        probe.mkdir(exist_ok=True)
    except OSError as error:
        _log.warning(
            "the driver can limit the memory of cgroups, but no cgroup can be made, so no share "
            "is enforced by the kernel; mount the host's cgroups writable, or set cgroup_root",
            extra={"path": str(probe), "error": str(error)},
        )
        return False
    try:
        set_limit(handle, probe, _PROBED_BYTES)
        return read_limit(handle, probe) == _PROBED_BYTES
    except NvmlCallError as error:
        removed = not probe.exists()  # by another process that tries it
        if removed or error.failure.code not in _UNAVAILABLE:
            raise
        return False
    finally:
        with contextlib.suppress(OSError):  # the next one removes it
            probe.rmdir()

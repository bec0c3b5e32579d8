"""Calls of NVML that change a GPU's partitions, and what to do when one fails."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kubelet_plugin.inventory.health import NvmlFailure
from kubelet_plugin.nvml.library import NvmlBusyError, NvmlCallError, NvmlLibrary
from kubelet_plugin.prepare.resource import ResourceError

_RETRIED: Final[Mapping[str, str]] = {
    "NVML_ERROR_IN_USE": "a process on the node uses the GPU, which may be a monitoring agent; "
    "`nvidia-smi` and `fuser -v /dev/nvidia*` list such processes",
    "NVML_ERROR_INSUFFICIENT_RESOURCES": "other GPU instances take the room; `nvidia-smi mig -lgi` "
    "lists them. If no claim has them, destroy them; otherwise, it becomes free when their pods "
    "have ended",
}
_FINAL: Final[Mapping[str, str]] = {
    "NVML_ERROR_NOT_SUPPORTED": "the driver lists the profile, but does not make it on this GPU; "
    "select another profile",
    "NVML_ERROR_INVALID_ARGUMENT": "the driver lists the placement, but does not accept it on this "
    "GPU; select another profile",
    "NVML_ERROR_RESET_REQUIRED": "the GPU changes MIG mode only with a reset; switch the mode with "
    "`nvidia-smi -mig` and reset the GPU when nothing uses it",
    "NVML_ERROR_NO_PERMISSION": "run the plugin's container as root and privileged",
}
_GONE: Final = frozenset(
    {
        "NVML_ERROR_GPU_IS_LOST",
        "NVML_ERROR_GPU_NOT_FOUND",
        "NVML_ERROR_NOT_FOUND",
        "NVML_ERROR_DRIVER_NOT_LOADED",
    }
)


class GpuGoneError(ResourceError):
    """The GPU is not there. Neither GPU instances nor a MIG mode of Carina's outlast that."""


@contextmanager
def mig_calls(library: NvmlLibrary, task: str) -> Iterator[None]:
    """Keeps the library open inside the `with` block. `task` says what cannot be done if it fails.

    Raises:
        GpuGoneError: a call in the block failed because the GPU or the driver is not there.
        ResourceError: a call in the block failed; names the task and the remedy.
    """
    try:
        with library.lease():
            yield
    except NvmlBusyError as error:
        raise ResourceError(f"{task}: {error}", retriable=True) from error
    except NvmlCallError as error:
        raise _failed(task, error.failure) from error


def _failed(task: str, failure: NvmlFailure) -> ResourceError:
    if failure.code in _FINAL:
        return ResourceError(f"{task}: {failure}; {_FINAL[failure.code]}", retriable=False)
    remedy = _RETRIED.get(failure.code, "check nvidia-smi and the kernel log")
    kind = GpuGoneError if failure.code in _GONE else ResourceError
    return kind(f"{task}: {failure}; {remedy}", retriable=True)

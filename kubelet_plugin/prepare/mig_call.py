"""Calls of NVML that change a GPU's partitions, and what to do when one fails."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kubelet_plugin.inventory.health import NvmlFailure
from kubelet_plugin.nvml.library import NvmlBusyError, NvmlCallError, NvmlLibrary
from kubelet_plugin.nvml.mig_instance import FINDING
from kubelet_plugin.prepare.resource import ResourceError

_RETRIED: Final[Mapping[str, str]] = {
    "NVML_ERROR_IN_USE": "a process on the node uses the GPU, which may be a monitoring agent; "
    "`nvidia-smi` and `fuser -v /dev/nvidia*` list such processes",
    "NVML_ERROR_INSUFFICIENT_RESOURCES": "other GPU instances take the room; `nvidia-smi mig -lgi` "
    "lists them. If no claim has them, destroy them; otherwise, it becomes free when their pods "
    "have ended",
}
_CREATION: Final = "nvmlDeviceCreateGpuInstanceWithPlacement"
_NOT_CREATED: Final[Mapping[str, str]] = {
    "NVML_ERROR_NOT_SUPPORTED": "the driver lists the profile, but does not make it on this GPU; "
    "select another profile",
    "NVML_ERROR_INVALID_ARGUMENT": "the driver lists the placement, but does not accept it on this "
    "GPU; select another profile",
}
_FINAL: Final[Mapping[str, str]] = {
    "NVML_ERROR_RESET_REQUIRED": "the GPU changes MIG mode only with a reset; switch the mode with "
    "`nvidia-smi -mig` and reset the GPU when nothing uses it",
    "NVML_ERROR_NO_PERMISSION": "run the plugin's container as root and privileged",
}
_REFUSALS: Final = frozenset({*_RETRIED, *_NOT_CREATED, *_FINAL})
_GONE: Final = frozenset({"NVML_ERROR_GPU_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED"})
_LOST: Final = "NVML_ERROR_GPU_IS_LOST"


class GpuGoneError(ResourceError):
    """The GPU or its driver is not there. No GPU instance outlasts that."""


class GpuLostError(GpuGoneError):
    """The GPU fell off the bus. Its MIG mode may outlast the reset that brings it back."""


@contextmanager
def mig_calls(library: NvmlLibrary, task: str) -> Iterator[None]:
    """Keeps the library open inside the `with` block. `task` says what cannot be done if it fails.

    Raises:
        GpuGoneError: a call in the block failed because the GPU or the driver is not there;
            GpuLostError if the GPU fell off the bus.
        ResourceError: a call in the block failed; names the task and the remedy.
    """
    try:
        with library.lease():
            yield
    except NvmlBusyError as error:
        raise ResourceError(f"{task}: {error}", retriable=True) from error
    except NvmlCallError as error:
        raise _failed(task, error.failure) from error


def was_refused(failure: NvmlFailure) -> bool:
    """Returns whether a change was refused, so that nothing has changed.

    After other errors, such as a timeout, that is not known.
    """
    return failure.function in (_CREATION, "nvmlDeviceSetMigMode") and failure.code in _REFUSALS


def _failed(task: str, failure: NvmlFailure) -> ResourceError:
    final = {**_FINAL, **_NOT_CREATED} if failure.function == _CREATION else _FINAL
    if failure.code in final:
        return ResourceError(f"{task}: {failure}; {final[failure.code]}", retriable=False)
    remedy = _RETRIED.get(failure.code, "check nvidia-smi and the kernel log")
    return _kind(failure)(f"{task}: {failure}; {remedy}", retriable=True)


def _kind(failure: NvmlFailure) -> type[ResourceError]:
    if failure.code == _LOST:
        return GpuLostError
    not_found = failure.code == "NVML_ERROR_NOT_FOUND" and failure.function == FINDING
    return GpuGoneError if not_found or failure.code in _GONE else ResourceError

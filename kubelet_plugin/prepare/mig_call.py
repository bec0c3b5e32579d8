"""Calls of NVML that change a GPU's partitions, and what to do when one fails."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import (
    NvmlBusyError,
    NvmlCallError,
    NvmlLibrary,
    NvmlReleasedError,
)
from kubelet_plugin.claims.resource_failure import (
    GpuBusy,
    GpuFellOff,
    GpuGone,
    GpuResetRequired,
    GpusReleased,
    MigPlacementRefused,
    MigProfileRefused,
    MigRoomTaken,
    NvmlCallFailed,
    NvmlHangs,
    PermissionMissing,
    ResourceFailure,
)
from kubelet_plugin.nvml.mig_instance import FINDING
from kubelet_plugin.prepare.resource import LeftBehindError, ResourceError

_CauseType: TypeAlias = Callable[[str, NvmlFailure], ResourceFailure]

_OF_ANY_CALL: Final[Mapping[str, _CauseType]] = {
    "NVML_ERROR_IN_USE": GpuBusy,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": MigRoomTaken,
    "NVML_ERROR_RESET_REQUIRED": GpuResetRequired,
    "NVML_ERROR_NO_PERMISSION": PermissionMissing,
}
_CREATION: Final = "nvmlDeviceCreateGpuInstanceWithPlacement"
_OF_CREATION: Final[Mapping[str, _CauseType]] = {
    "NVML_ERROR_NOT_SUPPORTED": MigProfileRefused,
    "NVML_ERROR_INVALID_ARGUMENT": MigPlacementRefused,
}
_REFUSALS: Final = frozenset({*_OF_ANY_CALL, *_OF_CREATION})
_GONE: Final = frozenset(
    {
        "NVML_ERROR_GPU_NOT_FOUND",
        "NVML_ERROR_DRIVER_NOT_LOADED",
        "NVML_ERROR_LIBRARY_NOT_FOUND",
    }
)
_LOST: Final = "NVML_ERROR_GPU_IS_LOST"


class GpuGoneError(LeftBehindError):
    """The driver says that it is not there, or that the GPU is not.

    What Carina made is gone as well if that is so. If the driver errs, it is there still.
    """


@contextmanager
def mig_calls(library: NvmlLibrary, task: str) -> Iterator[None]:
    """Keeps the library open inside the `with` block. `task` says what cannot be done if it fails.

    Raises:
        GpuGoneError: a call in the block failed because the GPU or the driver is not there.
        LeftBehindError: the node's GPUs are released.
        ResourceError: a call in the block failed; names the task and the remedy.
    """
    try:
        with library.lease():
            yield
    except NvmlReleasedError as error:
        raise LeftBehindError(GpusReleased(task)) from error
    except NvmlBusyError as error:
        raise ResourceError(NvmlHangs(task, str(error))) from error
    except NvmlCallError as error:
        raise _failed(task, error.failure) from error


def was_refused(failure: NvmlFailure) -> bool:
    """Returns whether a change was refused, so that nothing has changed.

    After other errors, such as a timeout, that is not known.
    """
    return failure.function in (_CREATION, "nvmlDeviceSetMigMode") and failure.code in _REFUSALS


def _failed(task: str, failure: NvmlFailure) -> ResourceError:
    if failure.code == _LOST:
        return GpuGoneError(GpuFellOff(task, failure))
    not_found = failure.code == "NVML_ERROR_NOT_FOUND" and failure.function == FINDING
    if not_found or failure.code in _GONE:
        return GpuGoneError(GpuGone(task, failure))
    known = {**_OF_ANY_CALL, **_OF_CREATION} if failure.function == _CREATION else _OF_ANY_CALL
    return ResourceError(known.get(failure.code, NvmlCallFailed)(task, failure))

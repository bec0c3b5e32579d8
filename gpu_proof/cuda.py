"""CUDA's driver API, as far as it is needed (CUDA Driver API reference, cuda.h).

`CudaContext` is the context of this process on its first GPU. The library is the driver's
`libcuda.so.1`.
"""

import ctypes
import time
from ctypes import (
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_ulonglong,
    c_ushort,
    c_void_p,
)
from typing import Any, Final, Literal, TypeAlias

from gpu_proof import ptx

LIBRARY: Final = "libcuda.so.1"
AllocatingCall: TypeAlias = Literal[
    "cuMemAlloc", "cuMemCreate", "cuMemAllocAsync", "cuMemAllocManaged"
]
"""The function that allocates."""
OUT_OF_MEMORY: Final = "CUDA_ERROR_OUT_OF_MEMORY"
_MULTIPROCESSORS: Final = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_THREADS: Final = 1024
"""Of a block: the most that CUDA allows."""
_ATTACH_GLOBAL: Final = 1
_PINNED: Final = 1
_ON_DEVICE: Final = 1
_READ_WRITE: Final = 3

loaded: Any = None
"""The library, once it is loaded."""


class CudaError(Exception):
    """A function of CUDA returned an error."""

    def __init__(self, function: str, name: str) -> None:
        super().__init__(f"{function}: {name}")
        self.name = name


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class _AllocationFlags(ctypes.Structure):
    _fields_ = (
        ("compressionType", c_ubyte),
        ("gpuDirectRDMACapable", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class _AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("requestedHandleTypes", c_int),
        ("location", _Location),
        ("win32HandleMetaData", c_void_p),
        ("allocFlags", _AllocationFlags),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", c_int))


def load() -> Any:
    """Returns the library.

    Raises:
        OSError: there is none.
    """
    global loaded  # noqa: PLW0603 - as pynvml keeps that of NVML
    if loaded is None:
        loaded = ctypes.CDLL(LIBRARY)
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Calls a function.

    Raises:
        CudaError: it returns an error.
    """
    code = getattr(load(), name)(*arguments)
    if code:
        text = c_char_p()
        load().cuGetErrorName(code, byref(text))
        raise CudaError(name, (text.value or str(code).encode()).decode())


def driver_version() -> str:
    """Returns the newest version of CUDA that the driver has."""
    version = c_int()
    call("cuDriverGetVersion", byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


class CudaContext:
    """The context of this process on its first GPU."""

    def __init__(self) -> None:
        """Makes it.

        Raises:
            CudaError: CUDA has no GPU for this process.
        """
        call("cuInit", 0)
        self._device = c_int()
        call("cuDeviceGet", byref(self._device), 0)
        context = c_void_p()
        call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        call("cuCtxSetCurrent", context)
        self._functions: dict[str, c_void_p] = {}
        self._out = c_ulonglong()

    def multiprocessors(self) -> int:
        """Returns how many multiprocessors CUDA says that the process has."""
        count = c_int()
        call("cuDeviceGetAttribute", byref(count), _MULTIPROCESSORS, self._device)
        return count.value

    def memory(self) -> tuple[int, int]:
        """Returns the free and the total memory of the GPU, as CUDA says, in bytes."""
        free, total = c_size_t(), c_size_t()
        call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, kind: AllocatingCall, size: int) -> None:
        """Allocates memory, which stays until the process ends. Managed memory is written, too.

        Raises:
            CudaError: it cannot be.
        """
        match kind:
            case "cuMemAlloc":
                call("cuMemAlloc_v2", byref(c_ulonglong()), c_size_t(size))
            case "cuMemCreate":
                self._create(size)
            case "cuMemAllocAsync":
                call("cuMemAllocAsync", byref(c_ulonglong()), c_size_t(size), None)
                call("cuCtxSynchronize")
            case "cuMemAllocManaged":
                self._allocate_managed(size)

    def work(self, rounds: int, blocks: int) -> float:
        """Lets each thread of blocks count, and returns how long it took, in seconds."""
        began = time.monotonic()
        self._launch("work", rounds, blocks)
        return time.monotonic() - began

    def fault(self) -> None:
        """Writes to an address that no memory has.

        Raises:
            CudaError: always.
        """
        self._launch("fault", 1, 1)

    def _launch(self, name: str, rounds: int, blocks: int) -> None:
        if not self._functions:
            self._load()
        of_rounds = c_ulonglong(rounds)
        pointers = (
            ctypes.cast(byref(of_rounds), c_void_p),
            ctypes.cast(byref(self._out), c_void_p),
        )
        parameters = (c_void_p * 2)(*pointers)
        grid = (c_uint(blocks), c_uint(1), c_uint(1))
        block = (c_uint(_THREADS if name == "work" else 1), c_uint(1), c_uint(1))
        function = self._functions[name]
        call("cuLaunchKernel", function, *grid, *block, c_uint(0), None, parameters, None)
        call("cuCtxSynchronize")

    def _load(self) -> None:
        call("cuMemAlloc_v2", byref(self._out), c_size_t(4))
        module = c_void_p()
        call("cuModuleLoadData", byref(module), c_char_p(ptx.SOURCE))
        for name in ("work", "fault"):
            function = c_void_p()
            call("cuModuleGetFunction", byref(function), module, name.encode())
            self._functions[name] = function

    def _allocate_managed(self, size: int) -> None:
        pointer = c_ulonglong()
        call("cuMemAllocManaged", byref(pointer), c_size_t(size), c_uint(_ATTACH_GLOBAL))
        call("cuMemsetD8_v2", pointer, c_ubyte(1), c_size_t(size))
        call("cuCtxSynchronize")

    def _create(self, size: int) -> None:
        location = _Location(_ON_DEVICE, self._device.value)
        properties = _AllocationProperties(type=_PINNED, location=location)
        handle, pointer = c_ulonglong(), c_ulonglong()
        whole, none = c_size_t(size), c_ulonglong(0)
        call("cuMemCreate", byref(handle), whole, byref(properties), none)
        call("cuMemAddressReserve", byref(pointer), whole, c_size_t(0), none, none)
        call("cuMemMap", pointer, whole, c_size_t(0), handle, none)
        call("cuMemSetAccess", pointer, whole, byref(_Access(location, _READ_WRITE)), c_size_t(1))

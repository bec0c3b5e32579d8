"""The process that computes, as that of a tenant does: it does what it reads, a JSON object a line.

    {"call": "allocate", "kind": "cuMemAlloc", "size": 1073741824}
    {"error": null, "value": 0, "at": 1234.5}

`error` is the name of CUDA's error, and `at` the time at which the call returned, of the monotonic
clock, which is the same in all processes of the node. It ends with its input. `--shm` is the folder
that it has as /dev/shm, as the container of a claim with an MPS daemon has.
"""

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from gpu_proof.cuda import AllocatingCall, CudaContext, CudaError

_MIB: Final = 2**20
_CHUNKS: Final = (256 * _MIB, 16 * _MIB, 2 * _MIB)
"""Sizes of allocations, the next one when one fails. CUDA's granularity is 2 MiB."""
_NEW_MOUNTS: Final = 0x00020000
"""CLONE_NEWNS."""
_BIND: Final = 0x1000
"""MS_BIND."""
_PRIVATE: Final = 0x44000
"""MS_REC | MS_PRIVATE: what is mounted here is seen nowhere else."""


class CudaProgram:
    """What it can be asked for."""

    def __init__(self) -> None:
        self._context: CudaContext | None = None

    @property
    def _cuda(self) -> CudaContext:
        if self._context is None:
            self._context = CudaContext()
        return self._context

    def attach(self) -> int:
        """Makes the context of CUDA, and gives the number of multiprocessors."""
        return self._cuda.multiprocessors()

    def total_memory(self) -> int:
        """The size of the GPU, as CUDA says it here."""
        return self._cuda.memory()[1]

    def allocate(self, kind: AllocatingCall, size: int) -> int:
        """Allocates."""
        self._cuda.allocate(kind, size)
        return size

    def fill(self, kind: AllocatingCall, most: int) -> int:
        """Allocates until it fails, or until it has `most`; gives what it has."""
        had = 0
        for chunk in _CHUNKS:
            while had + chunk <= most:
                try:
                    self._cuda.allocate(kind, chunk)
                except CudaError as error:
                    if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                        raise
                    break
                had += chunk
        return had

    def rounds(self, blocks: int, seconds: float) -> int:
        """The rounds that take so long where it runs now."""
        rounds = 10_000
        self._cuda.work(rounds, blocks)
        while (took := self._cuda.work(rounds, blocks)) < seconds / 2:
            rounds *= 2
        return max(int(rounds * seconds / took), 1)

    def work(self, rounds: int, blocks: int) -> float:
        """Computes; gives how long it took, in seconds."""
        return self._cuda.work(rounds, blocks)

    def work_between(self, rounds: int, blocks: int, begin: float, end: float) -> int:
        """Computes again and again until a time; gives how many were done after the first time."""
        done = 0
        while time.monotonic() < end:
            self._cuda.work(rounds, blocks)
            done += begin < time.monotonic() < end
        return done

    def fault(self) -> int:
        """Makes an illegal access."""
        self._cuda.fault()
        return 0


_CALLS: Final[Mapping[str, Callable[..., float]]] = {
    name: getattr(CudaProgram, name)
    for name in (
        "attach", "total_memory", "allocate", "fill", "rounds", "work", "work_between", "fault",
    )
}  # fmt: skip


def main() -> None:
    """Does what it reads until there is no more."""
    parser = argparse.ArgumentParser(prog="gpu_proof.cuda_program")
    parser.add_argument("--cgroup", type=Path, action="append", default=[])
    parser.add_argument("--shm", type=Path)
    options = parser.parse_args()
    for cgroup in options.cgroup:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    if options.shm is not None:
        _mount(options.shm, Path("/dev/shm"))  # noqa: S108 - where MPS has its shared memory
    program = CudaProgram()
    error: str | None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            value, error = _CALLS[asked.pop("call")](program, **asked), None
        except CudaError as failure:
            value, error = 0, failure.name
        answer = {"error": error, "value": value, "at": time.monotonic()}
        print(json.dumps(answer), flush=True)


def _mount(source: Path, target: Path) -> None:
    """Has this process see a folder at another place.

    Raises:
        OSError: it may not, or there is no such folder.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    private, bind = ctypes.c_ulong(_PRIVATE), ctypes.c_ulong(_BIND)
    if (
        libc.unshare(_NEW_MOUNTS) != 0
        or libc.mount(None, b"/", None, private, None) != 0
        or libc.mount(bytes(source), bytes(target), None, bind, None) != 0
    ):
        raise OSError(ctypes.get_errno(), f"{source} cannot be mounted at {target}")


if __name__ == "__main__":
    main()

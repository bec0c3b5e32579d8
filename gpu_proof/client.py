"""The process that computes, as a part uses it."""

import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PATIENCE: Final = 120.0
"""Seconds until a call of CUDA is said to hang."""


class ClientError(Exception):
    """A client ended, hangs, or got an error of CUDA."""


@dataclass(frozen=True, slots=True)
class CudaAnswer:
    """What came of a call."""

    error: str | None
    """The name of CUDA's error."""
    value: float
    at: float
    """When it returned, of the monotonic clock."""


class CudaClient:
    """A process that uses the GPU."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._pending = b""

    @property
    def pid(self) -> int:
        """Its PID, as this process sees it."""
        return self._process.pid

    def get(self, name: str, **arguments: object) -> float:
        """Calls, and returns the value.

        Raises:
            ClientError: CUDA returned an error, or there is no answer.
        """
        answer = self.call(name, **arguments)
        if answer.error is not None:
            raise ClientError(f"{name}: {answer.error}")
        return answer.value

    def call(self, name: str, **arguments: object) -> CudaAnswer:
        """Calls, and returns the answer.

        Raises:
            ClientError: there is none.
        """
        self.begin(name, **arguments)
        return self.answer()

    def begin(self, name: str, **arguments: object) -> None:
        """Calls without waiting for the answer.

        Raises:
            ClientError: the process has ended.
        """
        assert self._process.stdin is not None  # noqa: S101 - it was started with one
        try:
            self._process.stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ClientError(f"the process has ended: {self._process.wait()}") from error

    def answer(self, patience: float = _PATIENCE) -> CudaAnswer:
        """Returns the answer to the call that was begun.

        Raises:
            ClientError: there is none.
        """
        assert self._process.stdout is not None  # noqa: S101 - it was started with one
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], patience)
            if not ready:
                raise ClientError(f"no answer within {patience:g} s")
            part = os.read(self._process.stdout.fileno(), 65536)
            if not part:
                raise ClientError(f"the process has ended: {self._process.wait()}")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return CudaAnswer(**json.loads(line))

    def wait(self, patience: float) -> int | None:
        """Returns the exit status, negative for a signal; None if it does not end meanwhile."""
        descriptor = os.pidfd_open(self._process.pid)  # it is told at once, without polling
        try:
            ended, _, _ = select.select([descriptor], [], [], patience)
        finally:
            os.close(descriptor)
        return self._process.wait() if ended else None

    def kill(self) -> None:
        """Ends it, as the kernel ends a process."""
        self._process.kill()
        self._process.wait()


@contextmanager
def started(
    module: Sequence[str],
    *,
    cgroups: Sequence[Path] = (),
    shm: Path | None = None,
    environment: dict[str, str],
) -> Iterator[CudaClient]:
    """Starts a client with the command that runs a module, and ends it after the block."""
    flags = [f"--cgroup={cgroup}" for cgroup in cgroups]
    flags += [] if shm is None else [f"--shm={shm}"]
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*module, "gpu_proof.cuda_program", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        | environment,
    )
    client = CudaClient(process)
    try:
        yield client
    finally:
        client.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what it had not read
                    pipe.close()

"""A command to an MPS control daemon, and its answer: by the driver's own program, on its pipes."""

import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

PATIENCE: Final = 2.0
"""Seconds that a daemon has for an answer."""
_DYING: Final = 1.0
"""Seconds in which a killed program ends, unless the kernel keeps it."""
_MOST_BYTES: Final = 65536
"""Of an answer: the pipes can be written as root of a container, which could answer for ever."""
_SHOWN: Final = 200


class ControlError(Exception):
    """A daemon does not answer: says why."""


class Control:
    """The control program, for the daemon of some pipes."""

    def __init__(self, program: Path, environment: Mapping[str, str], pipes: Path) -> None:
        self._program = program
        self._environment = {**environment, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)}

    def ask(self, command: str, patience: float = PATIENCE) -> str:
        """Sends a command and returns the answer.

        Raises:
            ControlError: there is no answer in time, or the program fails.
        """
        try:
            answer, status = self._run(command, time.monotonic() + patience)
        except OSError as error:
            raise ControlError(f"{self._program} cannot be run: {error}") from error
        except subprocess.TimeoutExpired:
            raise ControlError(f"{command} was not answered in {patience:g} s") from None
        text = answer.decode(errors="replace")
        if status != 0:
            words = " ".join(text.split())[:_SHOWN]
            raise ControlError(f"{command} failed with {status}: {words or 'no output'}")
        return text

    def _run(self, command: str, deadline: float) -> tuple[bytes, int]:
        """Returns the output of the program and its exit status."""
        with _pipe() as (commands, writing):
            writing.write(f"{command}\n".encode())
            writing.close()
            with _pipe() as (output, open_end):
                process = subprocess.Popen(  # noqa: S603 - the driver's program
                    [self._program],
                    stdin=commands,
                    stdout=open_end,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                )
                open_end.close()
                try:
                    answer = _read(output, deadline, command)
                    return answer, process.wait(max(deadline - time.monotonic(), _DYING))
                finally:
                    _end(process)


@contextmanager
def _pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as first, os.fdopen(writing, "wb") as second:
        yield first, second


def _read(pipe: BinaryIO, deadline: float, command: str) -> bytes:
    """Reads until the program closes its output."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    answer = b""
    while len(answer) < _MOST_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise subprocess.TimeoutExpired(command, 0)
        part = os.read(pipe.fileno(), _MOST_BYTES)
        if not part:
            return answer
        answer += part
    raise ControlError(f"the answer to {command} is longer than {_MOST_BYTES} bytes")


def _end(process: subprocess.Popen[bytes]) -> None:
    """A process that the kernel keeps is left: `subprocess` reaps it later."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_DYING)

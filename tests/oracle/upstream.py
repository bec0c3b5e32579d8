"""The program that answers as upstream does, built from its Go modules, and how to ask it."""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from threading import Thread
from typing import IO, Any, Literal, TypeAlias

from simulation.kubernetes import build
from simulation.kubernetes.releases import Release

Object: TypeAlias = dict[str, Any]
Subcommand: TypeAlias = Literal["allocate", "cel", "bench", "requests"]

_SHOWN = 100_000
"""The number of characters of a case that an error shows."""
_FOLDER = Path(__file__).parent / "upstream"


def program() -> Path:
    """The program; it is built where it is missing.

    Raises:
        BuildError: it cannot be built.
    """
    sources = b"".join(path.read_bytes() for path in sorted(_FOLDER.iterdir()))
    release = Release("oracle", hashlib.sha256(sources).hexdigest()[:12], _FOLDER, {"oracle": "."})
    build.build([release])
    return release.program("oracle")


def why_not() -> str | None:
    """Why there can be no oracle here; None where there can."""
    return None if which("go") else "there is no Go to build upstream's allocator with"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A running oracle."""

    _input: IO[str]
    _output: IO[str]

    def answer(self, case: Mapping[str, Any]) -> Object:
        """What upstream answers to a case."""
        return self.answer_json(json.dumps(case))

    def answer_json(self, case: str) -> Object:
        """What upstream answers to a case in JSON, on one line."""
        self._write([case + "\n"])
        return self._read(case)

    def answers(self, cases: Iterable[Mapping[str, Any]]) -> Iterator[Object]:
        """What it answers to many cases, in their order. It works ahead of the reader."""
        lines = [json.dumps(case) + "\n" for case in cases]
        # The pipes hold less than all cases and answers: one thread writes while another reads.
        writer = Thread(target=self._write, args=(lines,), daemon=True)
        writer.start()
        for line in lines:
            yield self._read(line)
        writer.join()

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._input.write(line)
        self._input.flush()

    def _read(self, case: str) -> Object:
        line = self._output.readline()
        if not line:
            raise RuntimeError(f"the oracle has ended; its last case was {case[:_SHOWN]}")
        answer: Object = json.loads(line)
        return answer


@contextmanager
def running(subcommand: Subcommand) -> Iterator[Upstream]:
    """Starts the oracle, and ends it."""
    process = subprocess.Popen(
        [program(), subcommand], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Upstream(process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()

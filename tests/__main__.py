"""Runs pytest in several processes that share the tests, and says where their time went.

    python -m tests --processes 2 -m "not node"

All other arguments are pytest's. The first process writes to the terminal; what the others write
follows when they have ended.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from simulation.kubernetes.state import FIRST_NUMBER
from tests import time_spent

_CLUSTERS_EACH = 16
"""More than a process runs at a time."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: the first of a process that is not 0."""
    parser = argparse.ArgumentParser(prog="python -m tests", description="Runs the tests.")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    options, for_pytest = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        return _run(options.processes, for_pytest, Path(name))


def _run(number: int, arguments: Sequence[str], folder: Path) -> int:
    together = folder / "together"
    together.mkdir()
    logs = [folder / f"{index}.log" for index in range(number)]
    times = [folder / f"{index}.json" for index in range(number)]
    with ExitStack() as cleanup:
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", *arguments),
                    *(f"--together={together}", f"--time-spent={times[index]}"),
                ],
                stdout=cleanup.enter_context(log.open("wb")) if index else None,
                stderr=subprocess.STDOUT if index else None,
                env=os.environ | {FIRST_NUMBER: str(index * _CLUSTERS_EACH)},
            )
            for index, log in enumerate(logs)
        ]

        def end_all(*_: object) -> None:
            for process in processes:
                process.terminate()

        signal.signal(signal.SIGTERM, end_all)
        statuses = [_ended(process) for process in processes]
    for log in logs[1:]:
        print(log.read_text(errors="replace"), flush=True)
    print(f"where the time of {number} processes went:")
    spent = time_spent.added(time_spent.read(time) for time in times if time.exists())
    print(*spent.lines(), sep="\n", flush=True)
    return next((status for status in statuses if status), 0)


def _ended(process: "subprocess.Popen[bytes]") -> int:
    """Waits for the exit status. Ctrl-C reaches the process, too, which then cleans up."""
    while True:
        with suppress(KeyboardInterrupt):
            return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The components as processes: started with a log of their own, seen when they die."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simulation.kubernetes.state import StateDirectory

T = TypeVar("T")
_TAIL_LINES = 25


class ComponentDiedError(RuntimeError):
    """A component ended by itself; the message has the tail of its log."""


class NotReachedError(AssertionError):
    """What was waited for did not come about in time; the message says what was seen last."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running component. Its output is in `log`, that of earlier starts included."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    def check(self) -> None:
        """Sees that it still runs.

        Raises:
            ComponentDiedError: it does not.
        """
        status = self.popen.poll()
        if status is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise ComponentDiedError(f"{self.name} exited with {status}; {self.log} ends:\n{tail}")

    def stop(self, signal_number: signal.Signals = signal.SIGTERM, timeout: float = 10.0) -> None:
        """Sends the signal and waits for the end; what does not heed it in time is killed."""
        self.popen.send_signal(signal_number)
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def start(
    state: StateDirectory,
    name: str,
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Starts a component; the state directory's end is its end."""
    log = state.logs / f"{name}.log"
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=state.path,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C is for the owner, who ends us in order
        )
    state.children.append(popen)
    pid_files = state.path / "processes"
    pid_files.mkdir(exist_ok=True)
    (pid_files / f"{name}.pid").write_text(str(popen.pid))
    return Process(name, log, popen)


def wait_for(
    what: str,
    probe: Callable[[], T | None],
    *,
    timeout: float = 30.0,
    alive: Sequence[Process] = (),
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """Asks `probe` until it gives something true, and gives that.

    `timeout` is in seconds. Exceptions of the types `retry_on` count as "not yet".

    Raises:
        NotReachedError: it never did.
        ComponentDiedError: one of the processes `alive` ended meanwhile.
    """
    deadline = time.monotonic() + timeout
    seen: object = None
    while True:
        for process in alive:
            process.check()
        try:
            seen = answer = probe()
            if answer:
                return answer
        except retry_on as error:
            seen = error
        if time.monotonic() > deadline:
            raise NotReachedError(f"waited {timeout:.0f} s in vain for {what}; last seen: {seen!r}")
        time.sleep(0.03)

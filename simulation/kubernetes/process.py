"""The components as processes, each with its own log."""

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
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.03, 1.0
_PAUSE_BY_PROBE, _PAUSE_BY_WAIT = 2.0, 0.05
"""A probe may run kubectl: it leaves most of the processor's time to what is waited for, and nearly
all of it where that takes long."""


class ComponentDiedError(RuntimeError):
    """A component exited unexpectedly; the message has the end of its log."""


class NotReachedError(AssertionError):
    """A condition was not met in time; the message has the last result."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running component. `log` contains its output, including that of earlier starts."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    def check(self) -> None:
        """Checks that the component is still running.

        Raises:
            ComponentDiedError: the component has exited.
        """
        status = self.popen.poll()
        if status is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise ComponentDiedError(f"{self.name} exited with {status}; {self.log} ends:\n{tail}")

    def stop(self, signal_number: signal.Signals = signal.SIGTERM, timeout: float = 10.0) -> None:
        """Sends the signal and waits for the exit; after `timeout` seconds, kills the process."""
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
    """Starts a component, which ends with its state directory at the latest."""
    log = state.logs / f"{name}.log"
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=state.path,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C is for the owner, which stops the components in order
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
    """Calls `probe` until its result is true, and returns this result.

    `timeout` is in seconds. After an exception of a type in `retry_on`, `probe` is called again.

    Raises:
        NotReachedError: no result was true in time.
        ComponentDiedError: one of the processes in `alive` exited.
    """
    started = time.monotonic()
    deadline = started + timeout
    last: object = None
    while True:
        for process in alive:
            process.check()
        began = time.monotonic()
        try:
            last = result = probe()
            if result:
                return result
        except retry_on as error:
            last = error
        ended = time.monotonic()
        if ended > deadline:
            raise NotReachedError(f"waited {timeout:.0f} s for {what}; last result: {last!r}")
        pause = max(_PAUSE_BY_PROBE * (ended - began), _PAUSE_BY_WAIT * (ended - started))
        time.sleep(min(max(pause, _LEAST_PAUSE_S), _LONGEST_PAUSE_S))

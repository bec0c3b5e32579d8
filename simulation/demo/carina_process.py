"""A process of Carina's on this machine, whose output goes to a log."""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from simulation.demo.console import DemoError
from simulation.demo.manifests import REPOSITORY

_STOP_SECONDS = 15
_LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class CarinaProcess:
    """A process that was started."""

    name: str
    """What it is, for errors."""
    log: Path
    _popen: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, command: Sequence[str], log: Path) -> Self:
        """Starts it without the settings that the environment may have for it."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("CARINA_")
        }
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=inherited,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C goes to the demo, which stops it in order
            )
        return cls(name, log, popen)

    def check_alive(self) -> None:
        """Raises DemoError with the last lines of the log if it has exited."""
        if self._popen.poll() is not None:
            end = "\n".join(self.log.read_text().splitlines()[-_LAST_LINES:])
            raise DemoError(f"{self.name} has exited:\n{end}")

    def stop(self) -> int:
        """Stops it with SIGTERM, as the kubelet does; gives its exit status."""
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

"""What the demo prints, and what it checks."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

_BOLD, _GREEN, _CYAN, _DIM, _END = "\033[1m", "\033[32m", "\033[36m", "\033[2m", "\033[0m"
_SHOWN_MOUNTS = 2


class DemoError(Exception):
    """A check failed, or a part of the demo did; the message says which."""


@dataclass(slots=True)
class Console:
    """Prints the demo's progress on a stream, with colours on a terminal, and counts its checks."""

    out: TextIO
    checked: int = 0
    """Number of checks that passed."""
    _coloured: bool = field(init=False)
    _quiet: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._coloured = self.out.isatty()

    def headline(self, text: str) -> None:
        """Prints the heading of a step."""
        self._print(f"\n{self._paint(_BOLD, '== ' + text)}")

    def say(self, text: str) -> None:
        """Prints indented lines."""
        for line in text.splitlines():
            self._print(f"   {line}")

    def call(self, text: str) -> None:
        """Prints a call between two components."""
        self.say(self._paint(_CYAN, text))

    def spec(self, content: dict[str, Any]) -> None:
        """Prints a CDI spec; a long list of mounts is shortened."""
        edits = content["containerEdits"]
        mounts = edits.get("mounts", [])
        if len(mounts) > _SHOWN_MOUNTS:
            rest = f"... and {len(mounts) - _SHOWN_MOUNTS} more of the driver's files"
            edits = {**edits, "mounts": [*mounts[:_SHOWN_MOUNTS], rest]}
        shown = {**content, "containerEdits": edits}
        self.say(self._paint(_DIM, json.dumps(shown, indent=2)))

    def check(self, what: str, holds: object) -> None:
        """Checks and prints a statement.

        Raises:
            DemoError: the statement does not hold.
        """
        if not holds:
            raise DemoError(f"check failed: {what}")
        self.checked += 1
        self.say(f"{self._paint(_GREEN, 'ok')} {what}")

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Prints nothing meanwhile; checks count."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def wait_for_interrupt(self, kubeconfig: Path) -> None:
        """Waits for Ctrl-C while the user looks around."""
        self.headline("All pods run. Look around, then press Ctrl-C")
        self.say(f"export KUBECONFIG={kubeconfig}")
        self.say("kubectl get resourceslices,resourceclaims,pods -A")
        interrupts = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, interrupts)
        signal.sigwait(interrupts)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts)

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(text, file=self.out, flush=True)

    def _paint(self, colour: str, text: str) -> str:
        if not self._coloured:
            return text
        return "\n".join(f"{colour}{line}{_END}" for line in text.split("\n"))

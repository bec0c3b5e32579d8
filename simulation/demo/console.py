"""What the demo prints, and what it checks."""

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

_BOLD, _GREEN, _CYAN, _DIM, _END = "\033[1m", "\033[32m", "\033[36m", "\033[2m", "\033[0m"
_SHOWN_MOUNTS = 2


class DemoError(Exception):
    """Something is not as it ought to be: says what."""


@dataclass(slots=True)
class Narrator:
    """Tells the story on a stream, in colours on a terminal."""

    out: TextIO
    checked: int = 0
    """How many things were found right."""
    _coloured: bool = field(init=False)

    def __post_init__(self) -> None:
        self._coloured = self.out.isatty()

    def headline(self, text: str) -> None:
        """A step begins: what is to be seen, and why."""
        self._print(f"\n{self._paint(_BOLD, '== ' + text)}")

    def say(self, text: str) -> None:
        """A detail; every line of it is indented."""
        for line in text.splitlines():
            self._print(f"   {line}")

    def call(self, text: str) -> None:
        """A call that one part makes to another."""
        self.say(self._paint(_CYAN, text))

    def spec(self, content: dict[str, Any]) -> None:
        """A CDI spec, with a long list of mounts cut short."""
        edits = content["containerEdits"]
        mounts = edits.get("mounts", [])
        if len(mounts) > _SHOWN_MOUNTS:
            rest = f"... and {len(mounts) - _SHOWN_MOUNTS} more of the driver's files"
            edits = {**edits, "mounts": [*mounts[:_SHOWN_MOUNTS], rest]}
        shown = {**content, "containerEdits": edits}
        self.say(self._paint(_DIM, json.dumps(shown, indent=2)))

    def check(self, what: str, holds: object) -> None:
        """Says that something is right.

        Raises:
            DemoError: it is not.
        """
        if not holds:
            raise DemoError(f"not so: {what}")
        self.checked += 1
        self.say(f"{self._paint(_GREEN, 'ok')} {what}")

    def wait_for_interrupt(self, kubeconfig: Path) -> None:
        """Leaves the listener alone until Ctrl-C."""
        self.headline("All pods run. Look around, then press Ctrl-C")
        self.say(f"export KUBECONFIG={kubeconfig}")
        self.say("kubectl get resourceslices,resourceclaims,pods -A")
        interrupts = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, interrupts)
        signal.sigwait(interrupts)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts)

    def _print(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def _paint(self, colour: str, text: str) -> str:
        if not self._coloured:
            return text
        return "\n".join(f"{colour}{line}{_END}" for line in text.split("\n"))

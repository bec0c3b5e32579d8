"""What carina-sharing has made of the MPS daemons that are recorded, for those who wait for it.

The record of daemons is changed first, then `changed` is called, and `wait` returns once
carina-sharing has said how it is with what is recorded now. Nobody waits with a lock that telling
it needs, the node's.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.sharing.message import MpsDaemon, SharingReport


@dataclass(frozen=True, slots=True)
class SharingAway:
    """carina-sharing does not run on the node, or is not connected."""


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """It has not said yet how it is with what is recorded now."""


@dataclass(frozen=True, slots=True)
class Answered:
    """It has."""

    daemons: Mapping[str, MpsDaemon]
    """By the UIDs of their claims."""
    no_mps: str | None
    """Why it runs no daemons; None if it does."""


SharingAnswer: TypeAlias = SharingAway | NotAnswered | Answered


class Supervision:
    """Between the ports, which wait, and the client, which tells and hears. Thread-safe."""

    def __init__(self) -> None:
        self._wake: Callable[[], None] | None = None
        self._state = threading.Condition()
        self._changes = 0
        self._told: tuple[int, int] | None = None
        """Which of the changes are told in this connection, and with which generation."""
        self._report: SharingReport | None = None

    # --- for those who change the record ---

    def changed(self) -> None:
        """Says that the record has changed."""
        with self._state:
            self._changes += 1
            wake = self._wake
        if wake is not None:
            wake()

    def wait(self, decided: Callable[[SharingAnswer], bool], seconds: float) -> SharingAnswer:
        """Returns the answer once it is what is waited for, or the last after that time."""
        with self._state:
            self._state.wait_for(lambda: decided(self._answer()), seconds)
            return self._answer()

    @property
    def answer(self) -> SharingAnswer:
        """The present answer."""
        with self._state:
            return self._answer()

    # --- for the client ---

    def attend(self, wake: Callable[[], None]) -> None:
        """Sets what is called after each change; it returns at once."""
        with self._state:
            self._wake = wake

    @property
    def changes(self) -> int:
        """How many changes there were; to be asked before the record is read."""
        with self._state:
            return self._changes

    def told(self, changes: int, generation: int) -> None:
        """Says that carina-sharing was told these changes with the message of this generation."""
        with self._state:
            self._told = changes, generation
            self._state.notify_all()

    def heard(self, report: SharingReport | None) -> None:
        """Sets the last report; None if the connection has ended."""
        with self._state:
            self._report = report
            if report is None:
                self._told = None
            self._state.notify_all()

    def _answer(self) -> SharingAnswer:
        if self._report is None:
            return SharingAway()
        if self._told is None:
            return NotAnswered()
        changes, generation = self._told
        if changes != self._changes or self._report.generation < generation:
            return NotAnswered()
        daemons = {daemon.wanted.claim.uid: daemon for daemon in self._report.daemons}
        return Answered(daemons, self._report.offers.no_mps)

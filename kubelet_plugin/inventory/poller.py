"""Looks at the node's GPUs again and again, and tells when they have changed.

A look may take for ever: a driver call that hangs cannot be ended. One thread looks, another
watches that it comes back, so that a hanging driver is noticed and freezes nothing else. What was
seen last stays in force meanwhile.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from kubelet_plugin.inventory.change import InventoryChange, changes
from kubelet_plugin.inventory.inventory import Inventory

__all__ = ["InventoryPoller", "Reporter"]

_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Hears of what an operator should know. Methods are called from several threads."""

    def inventory_read(self, seconds: float) -> None:
        """A look at the GPUs took that long."""

    def inventory_seen(self, inventory: Inventory) -> None:
        """What was seen differs from what was seen before, or it is the first look."""

    def inventory_changed(self, change: InventoryChange) -> None:
        """Something has changed since the last look."""

    def inventory_read_stalled(self, seconds: float) -> None:
        """A look has not come back after that long; told once a look."""

    def inventory_read_resumed(self, seconds: float) -> None:
        """The look that had stalled came back after that long."""


class InventoryPoller:
    """Looks at the GPUs at an interval, and whenever asked to."""

    def __init__(
        self,
        read: Callable[[Inventory | None], Inventory],
        *,
        changed: Callable[[Inventory], None],
        reporter: Reporter,
        clock: Callable[[], float],
        interval: float,
        patience: float = 30.0,
    ) -> None:
        """`read` looks once, given what it saw last; only the poller's thread calls it.

        `changed` gets the first inventory and each that differs from the one before; it must return
        at once. All times are in seconds: `interval` between the end of a look and the next,
        `patience` for a look until it counts as stalled; `clock` is monotonic.
        """
        self._read = read
        self._changed = changed
        self._reporter = reporter
        self._clock = clock
        self._interval = interval
        self._patience = patience
        self._latest: Inventory | None = None
        self._passed_on: Inventory | None = None
        self._state = threading.Condition()
        self._looks = 0
        self._looking_since: float | None = None
        self._wanted = False
        self._stopped = False

    @property
    def latest(self) -> Inventory | None:
        """What was seen last; None before the first look came back."""
        return self._latest

    def start(self) -> None:
        """Looks for the first time at once."""
        for name, work in (("inventory-poller", self._poll), ("inventory-watchdog", self._guard)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def stop(self) -> None:
        """Looks no more. Does not wait for a look that is under way: it may hang."""
        with self._state:
            self._stopped = True
            self._state.notify_all()

    def look_now(self) -> None:
        """Looks at once, or once more if a look is under way. Returns before it does."""
        with self._state:
            self._wanted = True
            self._state.notify_all()

    def _poll(self) -> None:
        while True:
            with self._state:
                if self._stopped:
                    return
                self._wanted = False
                self._looks += 1
                self._looking_since = self._clock()
                self._state.notify_all()
            try:
                self._look()
            except Exception:  # noqa: BLE001 - a bug in reading: the GPUs stay watched, it is told
                _log.exception("the GPUs could not be read; trying again")
            with self._state:
                self._looking_since = None
                self._state.notify_all()
                self._state.wait_for(lambda: self._wanted or self._stopped, self._interval)

    def _look(self) -> None:
        begun = self._clock()
        inventory = self._read(self._latest)
        self._reporter.inventory_read(self._clock() - begun)
        if self._stopped:
            return
        self._latest = inventory  # before it is passed on: the receiver may ask for it
        if inventory == self._passed_on:
            return
        self._reporter.inventory_seen(inventory)
        for change in changes(self._passed_on, inventory):
            self._reporter.inventory_changed(change)
        self._changed(inventory)
        self._passed_on = inventory  # last: what could not be passed on is passed on next time

    def _guard(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._looking_since is not None or self._stopped)
                if self._stopped or self._looking_since is None:
                    return
                look, since = self._looks, self._looking_since
            self._guard_look(look, since)

    def _guard_look(self, look: int, since: float) -> None:
        """Waits until a look is over, and tells if that takes long."""

        def over() -> bool:
            return self._stopped or self._looks != look or self._looking_since is None

        with self._state:
            if self._state.wait_for(over, self._patience):
                return
        self._reporter.inventory_read_stalled(self._clock() - since)
        with self._state:
            self._state.wait_for(over)
            if self._stopped:
                return
        self._reporter.inventory_read_resumed(self._clock() - since)

"""Reads the node's GPUs periodically, and passes on changes.

A read may never return, because a driver call that hangs cannot be cancelled. One thread reads, and
another detects a read that takes too long, so that a hanging driver is reported and blocks nothing
else. Until the read returns, no GPU counts as readable. What is passed on is judged: what is read
now is not all that counts.
"""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from kubelet_plugin.inventory.change import InventoryChange, changes
from kubelet_plugin.inventory.hang import during_hang
from kubelet_plugin.inventory.health import NvmlHang
from kubelet_plugin.inventory.inventory import DriverReady, Inventory

_log = logging.getLogger(__name__)


class InventoryReporter(Protocol):
    """Reports reads of the GPUs to operators. Called from several threads."""

    def inventory_read(self, seconds: float) -> None:
        """Reports how long a read took."""

    def inventory_seen(self, inventory: Inventory) -> None:
        """Reports the first inventory, and each that differs from the previous one."""

    def inventory_changed(self, change: InventoryChange) -> None:
        """Reports a single change between two reads."""

    def inventory_read_stalled(self, seconds: float) -> None:
        """Reports that a read has not returned after that time, once per read."""

    def inventory_read_resumed(self, seconds: float) -> None:
        """Reports that a stalled read returned after that time."""


class InventoryPoller:
    """Reads the GPUs periodically, and on request."""

    def __init__(
        self,
        read: Callable[[Inventory | None], Inventory],
        *,
        changed: Callable[[Inventory], None],
        reporter: InventoryReporter,
        clock: Callable[[], float],
        interval: float,
        patience: float = 30.0,
        judged: Callable[[Inventory], Inventory] = lambda inventory: inventory,
        known: DriverReady | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`read` reads once, given the previous inventory; only the poller's thread calls it.

        `changed` receives the first inventory and each that differs from the previous one, and must
        return at once. If it or the reporter raises, both are called again after the next read. All
        times are in seconds: `interval` passes between the end of a read and the next one, and a
        read that takes longer than `patience` counts as stalled; `clock` is monotonic. `now` is the
        time of problems. `judged` returns what counts of a read (`NodeHealth.judged`). `known` are
        the GPUs of an earlier process, which the first read is given.
        """
        self._read = read
        self._changed = changed
        self._reporter = reporter
        self._clock = clock
        self._interval = interval
        self._patience = patience
        self._judged = judged
        self._known = known
        self._now = now
        self._latest: Inventory | None = None
        self._passed_on: Inventory | None = None
        self._passing_on = threading.Lock()
        """Held while an inventory is taken, by the thread that reads or the one that watches it."""
        self._returned_at = clock()
        self._state = threading.Condition()
        self._read_count = 0
        self._read_started: float | None = None
        self._wanted = False
        self._stopped = False

    @property
    def latest(self) -> Inventory | None:
        """The last inventory that was read; None before the first read has returned.

        While a read is stalled, no GPU in it is readable.
        """
        return self._latest

    @property
    def age(self) -> float:
        """Seconds since a read returned, or since the poller was created."""
        return self._clock() - self._returned_at

    def start(self) -> None:
        """Starts the threads; the first read begins at once."""
        for name, work in (
            ("inventory-poller", self._poll),
            ("inventory-watchdog", self._watch_reads),
        ):
            threading.Thread(target=work, name=name, daemon=True).start()

    def stop(self) -> None:
        """Stops reading. Does not wait for a read in progress, which may hang."""
        with self._state:
            self._stopped = True
            self._state.notify_all()

    def read_now(self) -> None:
        """Requests a read, or another one if one is in progress; returns before it starts."""
        with self._state:
            self._wanted = True
            self._state.notify_all()

    def _poll(self) -> None:
        while True:
            with self._state:
                if self._stopped:
                    return
                self._wanted = False
                self._read_count += 1
                self._read_started = self._clock()
                self._state.notify_all()
            try:
                self._read_once()
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
                _log.exception("the GPUs could not be read; retrying")
            with self._state:
                self._read_started = None
                self._state.notify_all()
                self._state.wait_for(lambda: self._wanted or self._stopped, self._interval)

    def _read_once(self) -> None:
        begun = self._clock()
        inventory = self._read(self._latest or self._known)
        self._reporter.inventory_read(self._clock() - begun)
        with self._passing_on:
            self._returned_at = self._clock()
            with self._state:
                self._read_started = None  # from here on, it is not stalled
                self._state.notify_all()
            self._take(inventory)

    def _take(self, inventory: Inventory) -> None:
        """Makes an inventory the latest, and passes it on if it differs. Requires the lock."""
        if self._stopped:
            return
        inventory = self._judged(inventory)
        self._latest = inventory  # first, since the receiver may read `latest`
        if inventory == self._passed_on:
            return
        self._reporter.inventory_seen(inventory)
        for change in changes(self._passed_on or self._known, inventory):
            self._reporter.inventory_changed(change)
        self._changed(inventory)
        self._passed_on = inventory  # last, so that a failure to pass it on is retried

    def _watch_reads(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._read_started is not None or self._stopped)
                if self._stopped or self._read_started is None:
                    return
                number, started = self._read_count, self._read_started
            self._watch_read(number, started)

    def _watch_read(self, number: int, started: float) -> None:
        """Waits until a read has returned. If it stalls, no GPU is readable."""

        def over() -> bool:
            return self._stopped or self._read_count != number or self._read_started is None

        with self._state:
            if self._state.wait_for(over, self._patience):
                return
        self._reporter.inventory_read_stalled(self._clock() - started)
        with self._passing_on:
            before = self._latest or self._known
            if not over() and before is not None:
                self._take(during_hang(before, NvmlHang(self._patience), self._now()))
        with self._state:
            self._state.wait_for(over)
            if self._stopped:
                return
        self._reporter.inventory_read_resumed(self._clock() - started)

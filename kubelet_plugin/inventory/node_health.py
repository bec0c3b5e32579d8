"""The health of the node's GPUs over time: what is reported, remembered and damped.

The thread that waits for events reports XIDs; the one that reads the GPUs has each read judged.
What has to outlast the process is given to a file, at once for a fault that was not known, so that
a plugin that is killed knows it afterwards. If a GPU has as many faults as are remembered, the next
read is soon enough.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from kubelet_plugin.inventory.change import ApplicationFailed, InventoryChange
from kubelet_plugin.inventory.damping import Damping, Troubles, counted, damped
from kubelet_plugin.inventory.diagnosis import HealthMemory, diagnosed
from kubelet_plugin.inventory.faults import NONE, Fault, matters, remembered
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.inventory import DriverReady, Inventory, known_gpus
from kubelet_plugin.inventory.mig import MigSite
from kubelet_plugin.inventory.xid import XidRules, text
from kubelet_plugin.inventory.xid_catalogue import XidSeverity

_SILENCE: Final = timedelta(minutes=10)
"""Between two Events about the same XID of an application on a GPU."""
_MOST_SPOKEN: Final = 256
_MOST_EARLY: Final = 256
"""XIDs that are kept of GPUs that have not been read yet."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _EarlyXid:
    """An XID of a GPU that has not been read yet, so that its severity and binding are unknown."""

    uuid: str
    number: int
    site: MigSite | None
    at: datetime


@dataclass(frozen=True, slots=True)
class RememberedHealth:
    """What outlasts the process."""

    memory: HealthMemory = field(default_factory=HealthMemory)
    troubles: Troubles = field(default_factory=dict)


class HealthStore(Protocol):
    """Keeps what outlasts the process. Raises OSError."""

    def save(self, remembered: RememberedHealth) -> None:
        """Replaces what is kept."""


class NodeHealth:
    """Judges what is read of the GPUs. Thread-safe."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        rules: XidRules = XidRules(),  # noqa: B008 - a value
        damping: Damping = Damping(),  # noqa: B008 - a value
        known: RememberedHealth = RememberedHealth(),
        store: HealthStore | None = None,
        reported: Callable[[InventoryChange], None] = lambda _: None,
        xid_seen: Callable[[str, int], None] = lambda _uuid, _xid: None,
    ) -> None:
        """`known` is what the store kept; `reported` gets the failures of applications.

        `xid_seen` gets each XID, with the UUID of its GPU.
        """
        self._now = now
        self._rules = rules
        self._damping = damping
        self._memory, self._troubles = known.memory, known.troubles
        self._store = store
        self._saved = known
        self._reported = reported
        self._xid_seen = xid_seen
        self._cleared: Mapping[str, datetime] = {}
        self._gpus: Mapping[str, ObservedGpu] = {}
        self._early: tuple[_EarlyXid, ...] = ()
        self._spoken: dict[tuple[str, int], datetime] = {}
        self._lock = threading.Lock()

    def clear(self, times: Mapping[str, datetime]) -> None:
        """Has faults no longer count whose last report is before the time of their GPU, by UUID.

        A time counts when it has come. What the driver says now counts all the same.
        """
        with self._lock:
            self._cleared = times

    def last(self, inventory: DriverReady) -> DriverReady:
        """Returns the GPUs with the problems that they last counted as having."""
        with self._lock:
            return counted(inventory, self._troubles)

    def xid(self, uuid: str, number: int, site: MigSite | None) -> bool:
        """Takes an XID; returns whether the GPU should be read because of it.

        `site` is that of the GPU instance that the driver names.
        """
        self._xid_seen(uuid, number)
        with self._lock:
            observed, now = self._gpus.get(uuid), self._now()
            if observed is None:  # its first read is not over
                early = _EarlyXid(uuid, number, site, now)
                self._early = (*self._early, early)[-_MOST_EARLY:]
                return True
            severity = self._rules.severity(number, observed.gpu)
            fault = Fault(number, site, now, now, 1, observed.state.binding)
            counts = matters(fault, severity)
            if counts:
                self._remember(observed, fault)
        if severity is XidSeverity.APPLICATION and self._is_news(uuid, number, now):
            self._reported(ApplicationFailed(observed.gpu, number, text(number)))
        return counts

    def judged(self, inventory: Inventory) -> Inventory:
        """Returns what was read with the problems that the GPUs count as having."""
        with self._lock:
            now = self._now()
            if isinstance(inventory, DriverReady):
                self._take_early(inventory)
                inventory, self._memory = diagnosed(
                    inventory, self._memory, self._rules, self._times(now), now
                )
            inventory, self._troubles = damped(
                inventory, self._troubles, now.timestamp(), self._damping
            )
            if isinstance(inventory, DriverReady):
                self._gpus = {observed.gpu.uuid: observed for observed in known_gpus(inventory)}
            self._save()
        return inventory

    def _times(self, now: datetime) -> Mapping[str, datetime]:
        """Returns the times that have come. Others would clear what is yet to be."""
        return {uuid: time for uuid, time in self._cleared.items() if time <= now}

    def _take_early(self, inventory: DriverReady) -> None:
        """Remembers the XIDs that were reported before the first read of their GPUs."""
        if not self._early:
            return
        gpus = {observed.gpu.uuid: observed for observed in inventory.gpus}
        early, self._early = self._early, ()
        for xid in early:
            observed = gpus.get(xid.uuid)
            if observed is None:
                self._early = (*self._early, xid)
                continue
            binding = observed.state.binding
            fault = Fault(xid.number, xid.site, xid.at, xid.at, 1, binding)
            if matters(fault, self._rules.severity(xid.number, observed.gpu)):
                self._remember(observed, fault)

    def _remember(self, observed: ObservedGpu, fault: Fault) -> None:
        uuid = observed.gpu.uuid
        before = self._memory.faults.get(uuid, NONE)
        after = remembered(before, fault, self._rules, observed.gpu)
        self._memory = HealthMemory({**self._memory.faults, uuid: after}, self._memory.problems)
        if len(after) > len(before):  # else it is known, or takes the place of another
            self._save()

    def _is_news(self, uuid: str, number: int, now: datetime) -> bool:
        with self._lock:
            last = self._spoken.get((uuid, number))
            if last is not None and timedelta() <= now - last < _SILENCE:
                return False
            self._spoken.pop((uuid, number), None)
            self._spoken[uuid, number] = now
            while len(self._spoken) > _MOST_SPOKEN:
                del self._spoken[next(iter(self._spoken))]
            return True

    def _save(self) -> None:
        """Keeps what has changed; what cannot be written is tried again after the next read."""
        current = RememberedHealth(self._memory, self._troubles)
        if self._store is None or current == self._saved:
            return
        try:
            self._store.save(current)
        except OSError as error:
            _log.warning("the faults of GPUs cannot be recorded", extra={"error": str(error)})
            return
        self._saved = current

"""The client of carina-sharing: tells it the shares of the node, and hears what they use.

It stands beside all else: that carina-sharing is not there is normal, and only a call for a claim
that needs an MPS daemon waits for it. The shares are read from the record of claims, the daemons
from theirs, and both are sent under the node's lock. So of two plugins during a rolling update each
sends what the records say at that moment, and the one that sends last is right; the generation,
which grows with the time under that lock, says which that is.
"""

import contextlib
import logging
import os
import selectors
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Protocol

from carina_dra.kube.backoff import Backoff
from carina_dra.sharing.message import SharingReport, WantedDaemon, WantedShares
from kubelet_plugin.claims.checkpoint import Checkpoint
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.sharing.claim_pods import ClaimPods
from kubelet_plugin.sharing.connection import (
    SharingAbsentError,
    SharingConnection,
    SharingGoneError,
)
from kubelet_plugin.sharing.guards import ShareGuards
from kubelet_plugin.sharing.standing import Standings, standings
from kubelet_plugin.sharing.supervision import Supervision
from kubelet_plugin.sharing.wanted import PodsOfClaims, shares_of

_SILENCE: Final = 30.0
"""Seconds without a report after which the connection counts as broken: one comes every ten."""
_PATIENCE: Final = 5.0
"""Seconds for which the first message waits until the pods of all claims are known, and what
carina-sharing was told last: the generation has to be higher, also after the clock was set back."""
_AGAIN: Final = 1.0
"""Seconds after which what could not be told is tried again."""
_LOOK: Final = 10.0
"""Seconds after which it is looked whether the shares are others, such as those of a new GPU."""
_FORGET: Final = 60.0
"""Seconds without carina-sharing after which nothing is said of the shares any more, and nothing
offered: its own restart changes nothing."""
_MICROSECONDS: Final = 10**6

_log = logging.getLogger(__name__)


class SharingReporter(Protocol):
    """Reports to operators. Called by the client's thread."""

    def sharing_connected(self, connected: bool) -> None:  # noqa: FBT001 - the value of a metric
        """Reports whether there is a connection."""


class SharingClient:
    """What is known of carina-sharing and by it."""

    def __init__(
        self,
        socket: Path,
        *,
        record: Callable[[], contextlib.AbstractContextManager[Checkpoint]],
        claims: Callable[[], Collection[NodeClaim]],
        gpus: Callable[[], Mapping[str, str] | None],
        pods: ClaimPods,
        daemons: Callable[[], tuple[WantedDaemon, ...]],
        guards: ShareGuards,
        supervision: Supervision,
        seen: Callable[[Standings], None],
        reporter: SharingReporter,
        clock: Callable[[], float],
        now: Callable[[], float],
        backoff: Backoff | None = None,
    ) -> None:
        """`record` holds the node's lock and gives the recorded claims; it raises ClaimError.

        `claims` returns them as they were last seen, without a lock; `gpus`, the UUIDs of the GPUs
        by name, or None before they were read. `daemons` returns those that are recorded; it raises
        ClaimError. `guards` and `supervision` are told what carina-sharing says. `seen` receives
        how it is with the shares whenever that changes. `clock` is monotonic, in seconds; `now` is
        the time in Unix seconds.
        """
        self._path = socket
        self._record = record
        self._claims = claims
        self._gpus = gpus
        self._pods = pods
        self._daemons = daemons
        self._guards = guards
        self._supervision = supervision
        self._seen = seen
        self._reporter = reporter
        self._clock = clock
        self._now = now
        self._backoff = backoff or Backoff(initial=0.5, cap=10.0)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopped = threading.Event()
        self._generation = 0
        self._settled = False
        """Whether carina-sharing knows the shares as this process knows them."""
        self._standings: Standings | None = None
        """None before it is known whether carina-sharing is there."""
        self._heard_at = clock()
        """When the last connection with a report ended; at first, now."""
        self._problem = ""
        self._report: SharingReport | None = None
        supervision.attend(self.look)

    @property
    def report(self) -> SharingReport | None:
        """The last report; None while there is no connection."""
        return self._report

    @property
    def pods(self) -> PodsOfClaims:
        """The pods of claims with shares, as far as they are known."""
        return self._pods.known

    def start(self) -> None:
        """Starts its threads."""
        self._pods.start(self.look)
        threading.Thread(target=self._run, name="sharing", daemon=True).start()

    def look(self) -> None:
        """Says that claims, GPUs or pods may have changed. Returns at once."""
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Ends its threads."""
        self._stopped.set()
        self._pods.stop()
        self.look()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with contextlib.closing(SharingConnection.open(self._path)) as connection:
                    self._talk(connection)
            except SharingGoneError as error:
                self._note(error)
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
                _log.exception("carina-sharing cannot be talked to; retrying")
            self._disconnected()
            self._stopped.wait(self._backoff.next())

    def _talk(self, connection: SharingConnection) -> None:
        """Tells and hears until the connection ends.

        Raises:
            SharingGoneError: it has ended.
        """
        self._reporter.sharing_connected(True)  # noqa: FBT003 - the value of a metric
        if self._problem:
            _log.info("carina-sharing is there")
        self._problem = ""
        told: WantedShares | None = None
        self._settled = False
        opened = heard = looked = self._clock()
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._stopped.is_set():
                if not self._settled or self._clock() - looked > _LOOK:
                    looked = self._clock()
                    patient = told is None and self._clock() - opened < _PATIENCE
                    told = self._tell(connection, told, patient=patient)
                ready = {key.fileobj for key, _ in selector.select(_AGAIN)}
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                    self._settled = False
                if connection in ready:
                    for report in connection.reports():
                        self._hear(report, told)
                        heard = self._clock()
                if self._clock() - heard > _SILENCE:
                    raise SharingGoneError(f"it has been silent for {_SILENCE:g} s")

    def _tell(
        self, connection: SharingConnection, told: WantedShares | None, *, patient: bool
    ) -> WantedShares | None:
        """Sends what is wanted, if it is not what was told; returns what it is told now."""
        changes = self._supervision.changes
        claims, gpus = self._claims(), self._gpus()
        self._pods.follow(claims)
        pods = self._pods.known
        knows_all = self._report is not None and self._pods.complete
        if gpus is None or (patient and not knows_all):
            return told
        try:
            wanted = shares_of(claims, gpus, pods), self._daemons()
            if told is None or wanted != (told.shares, told.daemons):
                with self._record() as checkpoint:
                    told = self._send(connection, checkpoint, gpus, pods)
        except ClaimError as error:
            _log.warning(
                "carina-sharing cannot be told the shares; retrying", extra={"reason": str(error)}
            )
            return told
        self._settled = True
        self._supervision.told(changes, told.generation)
        return told

    def _send(
        self,
        connection: SharingConnection,
        checkpoint: Checkpoint,
        gpus: Mapping[str, str],
        pods: PodsOfClaims,
    ) -> WantedShares:
        """Sends the shares and daemons of the records. The caller holds the node's lock."""
        self._generation = max(int(self._now() * _MICROSECONDS), self._generation + 1)
        wanted = WantedShares(
            generation=self._generation,
            shares=shares_of(checkpoint.claims.values(), gpus, pods),
            daemons=self._daemons(),
        )
        connection.send(wanted)
        return wanted

    def _hear(self, report: SharingReport, told: WantedShares | None) -> None:
        self._backoff.reset()
        self._report = report
        self._guards.hear(report)
        self._supervision.heard(report)
        self._generation = max(self._generation, report.generation)  # the clock was set back
        if told is not None:
            self._pods.see_strangers(report.strangers, told.shares)
            self._set(standings(self._standings or {}, told.shares, report))

    def _disconnected(self) -> None:
        """Nothing is known of the shares any more, except for a while what was seen last."""
        if self._report is not None:
            self._heard_at = self._clock()
        self._report = None
        self._supervision.heard(None)
        self._reporter.sharing_connected(False)  # noqa: FBT003 - the value of a metric
        if self._clock() - self._heard_at >= _FORGET:
            self._guards.forget()
            self._set({})

    def _set(self, found: Standings) -> None:
        changed = found != self._standings
        self._standings = found
        if changed:
            self._seen(found)

    def _note(self, error: SharingGoneError) -> None:
        """Logs why there is no connection, once for each reason."""
        if str(error) == self._problem:
            return
        self._problem = str(error)
        if isinstance(error, SharingAbsentError):
            _log.info(
                "carina-sharing does not run on this node, so what shares use is not watched",
                extra={"reason": str(error)},
            )
        else:
            _log.warning("no connection to carina-sharing; retrying", extra={"reason": str(error)})

"""All MPS daemons of a node: those that are wanted run, and others are ended.

Nothing is ended before it is known what is wanted: a damaged file of it must not end daemons that
containers use. What an earlier process has started is known by the folders of daemons.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from carina_dra.sharing.files import MPS, MPS_LOCK
from carina_dra.sharing.message import MpsDaemon, WantedDaemon
from sharing.mps import folder
from sharing.mps.control_daemon import ControlDaemon, DaemonTurns
from sharing.mps.installation import MpsSearch
from sharing.mps.keeper import Keeper

_STARTS: Final = 4
"""Daemons that start at once for the first time, and as many again that were started before."""
_RETRY_LOCK: Final = 0.5
_OTHER_PROCESS: Final = "another process of carina-sharing still supervises the daemons"

_log = logging.getLogger(__name__)


class MpsSupervisor:
    """The supervisor of a process. Any thread may call it."""

    def __init__(
        self, plugin_directory: Path, *, search: MpsSearch, cgroup_root: Path, driver_name: str
    ) -> None:
        self._lock_file = plugin_directory / MPS_LOCK
        self._top = plugin_directory / MPS
        self._search = search
        self._cgroup_root = cgroup_root
        self._driver_name = driver_name
        self._turns = DaemonTurns(_STARTS)
        self._state = threading.Lock()
        self._wanted: dict[str, WantedDaemon] | None = None
        self._keepers: dict[str, Keeper] = {}
        self._refused: dict[str, MpsDaemon] = {}
        self._is_alone = False
        self._tell: Callable[[], None] = lambda: None

    def run(self, tell: Callable[[], None], stop: threading.Event) -> None:
        """Begins to supervise once no other process does; returns then, or when `stop` is set.

        `tell` is called whenever there is a report to be sent. Raises OSError.
        """
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not _locked(descriptor):
            if stop.wait(_RETRY_LOCK):
                return
        with self._state:
            self._tell = tell
            self._is_alone = True
            self._apply()
        tell()

    def want(self, daemons: Collection[WantedDaemon]) -> None:
        """Sets which daemons are wanted from now on."""
        with self._state:
            self._wanted = {daemon.claim.uid: daemon for daemon in daemons}
            self._apply()

    def report(self) -> tuple[MpsDaemon, ...]:
        """Returns how all are, in the order of the UIDs of their claims."""
        with self._state:
            wanted, keepers = dict(self._wanted or {}), list(self._keepers.values())
            refused = self._refused
        reports = {
            uid: MpsDaemon(wanted=daemon, state="starting", reason=_OTHER_PROCESS)
            for uid, daemon in wanted.items()
        }
        reports |= refused
        reports |= {
            keeper.uid: report for keeper in keepers if (report := keeper.report()) is not None
        }
        return tuple(report for _, report in sorted(reports.items()))

    def _apply(self) -> None:
        """Has a keeper for each daemon that is wanted, or that is left. Holds the lock."""
        if self._wanted is None or not self._is_alone:
            return
        names = {uid for uid in self._wanted if folder.is_name(uid)}
        self._refused = {
            uid: MpsDaemon(
                wanted=daemon, state="failed", reason=f"{uid!r} cannot be the name of a folder"
            )
            for uid, daemon in self._wanted.items()
            if uid not in names
        }
        try:
            left = set(folder.names(self._top))
        except OSError as error:
            _log.error("folders of MPS daemons cannot be read", extra={"error": str(error)})
            left = set()
        for uid in sorted(names | left | set(self._keepers)):
            wanted = self._wanted.get(uid)
            keeper = self._keepers.get(uid)
            if keeper is None or not keeper.want(wanted):
                self._keep(uid, wanted)

    def _keep(self, uid: str, wanted: WantedDaemon | None) -> None:
        daemon = ControlDaemon(
            self._top,
            uid,
            search=self._search,
            cgroup_root=self._cgroup_root,
            driver_name=self._driver_name,
            turns=self._turns,
        )
        keeper = Keeper(uid, daemon, wanted=wanted, tell=self._tell, removed=self._forget)
        self._keepers[uid] = keeper
        keeper.start()

    def _forget(self, keeper: Keeper) -> None:
        with self._state:
            if self._keepers.get(keeper.uid) is keeper:
                del self._keepers[keeper.uid]


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

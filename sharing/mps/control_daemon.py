"""The MPS control daemon of a claim: started with its limits, adopted, probed and ended.

No client may come to a server without limits. So a daemon starts with pipes that root alone can
reach. They are opened when its limits have been set and read back, and if it has started no server
meanwhile: a client that is root in its container reaches closed pipes, too, and its server has the
limits of the time when it started.
"""

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from carina_dra.sharing.message import WantedDaemon
from sharing.mps.cgroups import DaemonCgroup, Hierarchies, NoHierarchyError, has_ended
from sharing.mps.control import Control, ControlError
from sharing.mps.folder import DaemonFolder
from sharing.mps.installation import MpsInstallation, MpsSearch, NoMpsError
from sharing.mps.launcher import order
from sharing.mps.setting import settings

_START_SECONDS: Final = 10.0
"""For a daemon to answer, when it starts or is adopted: many may do so at once."""
_TURN_SECONDS: Final = 5.0
"""After which a daemon starts beside those that have not ended to."""
_QUIT_SECONDS: Final = 2.0
"""For a daemon that was told to quit."""
_KILLED_SECONDS: Final = 2.0
"""For processes to end that were killed, unless the kernel keeps them."""
_SERVERS: Final = "get_server_list"
_POLL: Final = 0.05

_log = logging.getLogger(__name__)


class DaemonError(Exception):
    """A daemon cannot be started, does not answer or does not end: says why."""


class DaemonTurns:
    """How many daemons start at once, of all of a node.

    They come together after a boot, and if all started at once, none would answer in time. A
    container can have its daemon fail, and so those that start again have turns of their own.
    """

    def __init__(self, number: int) -> None:
        self.first = threading.Semaphore(number)
        self.later = threading.Semaphore(number)


class ControlDaemon:
    """The daemon. For one thread."""

    def __init__(
        self,
        top: Path,
        uid: str,
        *,
        search: MpsSearch,
        cgroup_root: Path,
        driver_name: str,
        turns: DaemonTurns,
    ) -> None:
        """`top` is the folder with those of all daemons; `turns` are those of all daemons."""
        self._folder = DaemonFolder(top, uid)
        self._uid = uid
        self._search = search
        self._cgroup_root = cgroup_root
        self._driver_name = driver_name
        self._turns = turns
        self._was_started = False
        self._launched: subprocess.Popen[bytes] | None = None
        self._leader: int | None = None
        """A descriptor of the process of the daemon."""

    @property
    def leader(self) -> int | None:
        """A descriptor that can be read when the daemon has ended; None without a daemon."""
        return self._leader

    def recorded(self) -> WantedDaemon | None:
        """Returns what the daemon was started for; None if that is not known."""
        return self._folder.recorded()

    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._leader is None or has_ended(self._leader)

    def start(self, wanted: WantedDaemon) -> None:
        """Starts it, and returns when its clients have the limits that are wanted.

        Raises:
            DaemonError: it cannot be started, or its limits do not hold. It may have processes.
        """
        turns = self._turns.later if self._was_started else self._turns.first
        self._was_started = True
        with _turn(turns), _said():
            if (problem := self._folder.problem()) is not None:
                raise DaemonError(problem)
            installed = self._search.installation()
            self._folder.make(wanted)
            self._launch(wanted, installed)
            control = self._control(installed)
            self._await(control)
            for setting in settings(wanted):
                control.ask(setting.set_command, _START_SECONDS)
            self._check(wanted, control)
            self._open(control)

    def adopt(self, wanted: WantedDaemon) -> bool:
        """Takes over what an earlier process has started, and returns whether it is what is wanted.

        If not, it has to be ended.

        Raises:
            DaemonError: that cannot be told.
        """
        self._forget()
        with _turn(self._turns.later), _said():
            leader = self._cgroup().leader()
            if leader is None or self.recorded() != wanted:
                return False
            control = self._control(self._search.installation())
            try:
                self._leader = os.pidfd_open(leader)
                self._check(wanted, control)
                if not self._folder.is_open():
                    self._open(control)
            except (ControlError, DaemonError, ProcessLookupError) as error:
                _log.warning(
                    "an MPS daemon is not adopted",
                    extra={"claim": self._uid, "reason": str(error)},
                )
                return False
        return True

    def probe(self) -> None:
        """Returns if it answers; raises DaemonError if not.

        While the driver's files are being replaced, a daemon cannot be asked: it has not failed.
        """
        try:
            installed = self._search.installation()
        except NoMpsError:
            return
        with _said():
            self._control(installed).ask(_SERVERS)
            if (lost := self._folder.unmounted()) is not None:
                raise DaemonError(f"{lost} is not mounted any more")

    def end(self) -> None:
        """Ends it with its servers, also if an earlier process has started it.

        Raises:
            DaemonError: processes are left.
        """
        with _said():
            cgroup = self._cgroup()
            if cgroup.leader() is not None:
                with suppress(ControlError, NoMpsError):  # then it is killed
                    self._control(self._search.installation()).ask("quit", _QUIT_SECONDS)
                    cgroup.emptied(_QUIT_SECONDS)
            deadline = time.monotonic() + _KILLED_SECONDS
            while not cgroup.emptied(_POLL):
                if time.monotonic() > deadline:
                    left = ", ".join(map(str, sorted(cgroup.pids())))
                    raise DaemonError(f"processes do not end although they were killed: {left}")
                cgroup.kill()
            cgroup.remove()
            self._forget()

    def remove(self) -> None:
        """Removes its folder; raises DaemonError."""
        with _said():
            self._folder.remove()

    def _cgroup(self) -> DaemonCgroup:
        return DaemonCgroup(Hierarchies.find(self._cgroup_root), self._driver_name, self._uid)

    def _control(self, installed: MpsInstallation) -> Control:
        return Control(installed.control, installed.environment, self._folder.pipes)

    def _launch(self, wanted: WantedDaemon, installed: MpsInstallation) -> None:
        cgroup = DaemonCgroup(installed.hierarchies, self._driver_name, self._uid)
        cgroup.make()
        environment = {
            **installed.environment,
            "CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in wanted.devices),
            "CUDA_MPS_PIPE_DIRECTORY": str(self._folder.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder.logs),
        }
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as words, (self._folder.logs / "output").open("wb") as output:
            try:
                what = order(
                    installed.control,
                    environment,
                    entrances=cgroup.entrances,
                    shm=self._folder.shm,
                    parent=os.getpid(),
                    words=writing,
                )
                self._launched = subprocess.Popen(  # noqa: S603 - this package's module
                    [sys.executable, "-m", "sharing.mps.launcher", what],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[writing],
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            self._leader = os.pidfd_open(self._launched.pid)
            problem = words.read().decode(errors="replace")
        if problem:
            raise DaemonError(f"the daemon cannot be launched: {problem}")

    def _await(self, control: Control) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                control.ask(_SERVERS)
            except ControlError as error:
                if self.has_ended():
                    words = self._folder.last_words()
                    raise DaemonError(f"the daemon ended at its start: {words}") from error
                if time.monotonic() > deadline:
                    raise DaemonError(
                        f"the daemon did not answer in {_START_SECONDS:g} s: {error}"
                    ) from error
            else:
                return
            self._wait(_POLL)

    def _wait(self, seconds: float) -> None:
        if self._leader is not None:
            poll = select.poll()
            poll.register(self._leader, select.POLLIN)
            poll.poll(seconds * 1000)

    def _check(self, wanted: WantedDaemon, control: Control) -> None:
        for setting in settings(wanted):
            problem = setting.problem(control.ask(setting.get_command, _START_SECONDS))
            if problem is not None:
                raise DaemonError(problem)

    def _open(self, control: Control) -> None:
        if control.ask(_SERVERS, _START_SECONDS).split():
            raise DaemonError("a client came before the limits were set, and is ended")
        self._folder.open()

    def _forget(self) -> None:
        if self._leader is not None:
            with suppress(ChildProcessError):  # it was started before this process
                os.waitid(os.P_PIDFD, self._leader, os.WEXITED | os.WNOHANG)
            os.close(self._leader)
            self._leader = None
        if self._launched is not None:
            self._launched.poll()
            self._launched = None


@contextmanager
def _turn(turns: threading.Semaphore) -> Iterator[None]:
    has_turn = turns.acquire(timeout=_TURN_SECONDS)
    try:
        yield
    finally:
        if has_turn:
            turns.release()


@contextmanager
def _said() -> Iterator[None]:
    """Raises DaemonError for what fails."""
    try:
        yield
    except (ControlError, NoHierarchyError, NoMpsError, OSError) as error:
        raise DaemonError(str(error)) from error

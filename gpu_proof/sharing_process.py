"""carina-sharing as the kubelet plugin uses it: over its socket, with the product's messages."""

import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from carina_dra.process.node_settings import plugin_directory
from carina_dra.sharing.files import SOCKET
from carina_dra.sharing.message import SharingReport, WantedDaemon, WantedShare, WantedShares

_START: Final = 30.0
"""Seconds."""
_STOP: Final = 20.0
_POLL: Final = 0.02


class SharingError(Exception):
    """carina-sharing does not do what was waited for."""


class SharingProcess:
    """A process that has started, and a connection to it."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", folder: Path, connection: socket.socket
    ) -> None:
        self._process = process
        self.folder = folder
        self._connection = connection
        self._pending = b""
        self._generation = 0

    def want(
        self, *, shares: Sequence[WantedShare] = (), daemons: Sequence[WantedDaemon] = ()
    ) -> None:
        """Says what is wanted from now on."""
        self._generation += 1
        message = WantedShares(
            generation=self._generation, shares=tuple(shares), daemons=tuple(daemons)
        )
        self._connection.sendall(message.line())

    def report(
        self, holds: Callable[[SharingReport], object], *, within: float, what: str
    ) -> SharingReport:
        """Returns the next report on what is wanted for which something holds.

        Raises:
            SharingError: there is none within these seconds.
        """
        deadline = time.monotonic() + within
        last = "it sends no report"
        while (rest := deadline - time.monotonic()) > 0:
            line = self._line(rest)
            if line is None:
                break
            report = SharingReport.parse(line)
            if report.generation == self._generation and holds(report):
                return report
            last = "; ".join(_reasons(report)) or "it says no reason"
        raise SharingError(f"carina-sharing does not report {what} within {within:g} s: {last}")

    def _line(self, within: float) -> bytes | None:
        deadline = time.monotonic() + within
        while b"\n" not in self._pending:
            rest = max(deadline - time.monotonic(), 0)
            if not select.select([self._connection], [], [], rest)[0]:
                return None
            part = self._connection.recv(65536)
            if not part:
                raise SharingError(f"carina-sharing has ended: {self._process.poll()}")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line


def _reasons(report: SharingReport) -> Iterator[str]:
    """What a report says is wrong."""
    yield from (f"{daemon.wanted.claim.name}: {daemon.reason}" for daemon in report.daemons)
    yield from (f"{gpu.gpu}: {gpu.reason}" for gpu in report.unwatched)


@contextmanager
def running(
    module: Sequence[str], folder: Path, driver: str, settings: Mapping[str, object]
) -> Iterator[SharingProcess]:
    """Runs it with a folder of the kubelet of its own, and ends it and its daemons after the block.

    Raises:
        SharingError: it does not start.
    """
    flags = {"kubelet-root": folder, "driver-name": driver, "http-address": "off", **settings}
    command = [*module, "sharing", *(f"--{name}={value}" for name, value in flags.items())]
    plugin = plugin_directory(folder, driver)
    with (folder / "carina-sharing.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            _connect(connection, plugin / SOCKET, process, folder / "carina-sharing.log")
            sharing = SharingProcess(process, plugin, connection)
            try:
                yield sharing
            finally:
                _end_daemons(sharing)
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_daemons(sharing: SharingProcess) -> None:
    try:
        sharing.want()
        sharing.report(lambda report: not report.daemons, within=_STOP, what="that daemons ended")
    except (OSError, SharingError):
        pass  # what is left is ended with its cgroup


def _connect(
    connection: socket.socket, path: Path, process: "subprocess.Popen[bytes]", log: Path
) -> None:
    deadline = time.monotonic() + _START
    while True:
        try:
            connection.connect(str(path))
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text()[-500:]
                raise SharingError(f"carina-sharing does not start: {error}: {said}") from error
            time.sleep(_POLL)
        else:
            return

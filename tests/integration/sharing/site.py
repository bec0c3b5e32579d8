"""A node with carina-sharing, whose GPUs are simulated, and the plugin's side of its socket."""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from carina_dra.sharing.files import MPS, SOCKET, WANTED
from carina_dra.sharing.message import (
    MpsDaemon,
    MpsDevice,
    Reference,
    ShareUse,
    SharingReport,
    WantedDaemon,
    WantedShare,
    WantedShares,
)
from sharing.mps import folder
from sharing.mps.cgroups import DaemonCgroup, Hierarchies
from sharing.mps.folder import DaemonFolder
from simulation.nvml import SimulatedNode
from tests.eventually import eventually

MIB = 2**20
_TOP = "/tmp"
"""Paths of sockets have limits, and MPS daemons have another /dev/shm than other processes."""
_REPORTED_S = 120.0
"""A report comes every ten seconds at least."""
_numbers = itertools.count()


def uid(name: str) -> str:
    """The UID of a pod or claim, which is like a real one."""
    return f"0a1b2c3d-0000-0000-0000-{name.encode().hex():0>12}"


def reference(name: str) -> Reference:
    return Reference(namespace="default", name=name, uid=uid(name))


@dataclass
class Site:
    folder: Path
    gpus: SimulatedNode
    kubepods: str
    driver: str
    """Its name is in that of the cgroup of MPS daemons, which all sites of the machine share."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    generation: int = 0

    @property
    def plugin_folder(self) -> Path:
        return self.folder / "k/plugins" / self.driver

    @property
    def wanted_file(self) -> Path:
        return self.plugin_folder / WANTED

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self, *flags: str) -> subprocess.Popen[bytes]:
        """Starts the process, and waits until it serves the socket."""
        process = self.launch(*flags)
        eventually(lambda: process.poll() is not None or self._serves())
        assert process.poll() is None, self.log
        return process

    def launch(
        self, *flags: str, changed: Callable[[list[str]], list[str]] = list
    ) -> subprocess.Popen[bytes]:
        """Starts the process, by a command that may be changed."""
        command = self.gpus.sharing_command(
            {
                "kubelet-root": self.folder / "k",
                "driver-name": self.driver,
                "http-address": "off",
                "kubepods": self.kubepods,
            }
        )
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(changed([*command, *flags]), stderr=log)
        self.processes.append(process)
        return process

    def _serves(self) -> bool:
        with socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(str(self.plugin_folder / SOCKET))
            except OSError:
                return False
        return True

    @contextmanager
    def connected(self) -> Iterator["Plugin"]:
        """The plugin's side of a connection."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.plugin_folder / SOCKET))
            with connection.makefile("rb") as lines:
                yield Plugin(self, connection, lines)

    def uuid(self, minor: int) -> str:
        return self.gpus.state.gpus[minor].uuid

    def share(self, claim: str, *pods: str, minor: int = 0, memory_mib: int = 1000) -> WantedShare:
        return WantedShare(
            claim=reference(claim),
            gpu=self.uuid(minor),
            memory_mib=memory_mib,
            cores=10,
            pods=tuple(reference(pod) for pod in pods),
        )

    def daemon(
        self, claim: str, *minors: int, memory_mib: int | None = 1000, cores: int | None = 10
    ) -> WantedDaemon:
        """The MPS daemon that a claim of these GPUs wants."""
        devices = (MpsDevice(uuid=self.uuid(m), memory_mib=memory_mib) for m in minors or (0,))
        return WantedDaemon(claim=reference(claim), devices=tuple(devices), thread_percentage=cores)

    def cgroup(self, claim: str) -> DaemonCgroup:
        """That of the MPS daemon of a claim."""
        hierarchies = Hierarchies.find(Path("/sys/fs/cgroup"))
        return DaemonCgroup(hierarchies, self.driver, uid(claim))

    def mps_folder(self, claim: str) -> Path:
        return self.plugin_folder / MPS / uid(claim)

    def commands(self, claim: str) -> list[str]:
        """What the MPS daemons of a claim were told, in this order."""
        return [line["command"] for line in self.gpus.mps_commands() if line["of"] == uid(claim)]

    def sleeper(self) -> int:
        """Starts a process that does nothing, which ends with the test; its PID."""
        process = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.DEVNULL
        )
        self.processes.append(process)
        return process.pid


@dataclass
class Plugin:
    site: Site
    connection: socket.socket
    lines: BinaryIO

    def want(self, *shares: WantedShare, daemons: Collection[WantedDaemon] = ()) -> None:
        self.site.generation += 1
        message = WantedShares(
            generation=self.site.generation, shares=shares, daemons=tuple(daemons)
        )
        self.connection.sendall(message.line())

    def report(self, holds: Callable[[SharingReport], object]) -> SharingReport:
        """The next report of the last generation for which something holds."""
        seen: list[SharingReport] = []
        deadline = time.monotonic() + _REPORTED_S
        for line in self.lines:
            seen.append(SharingReport.parse(line))
            if seen[-1].generation == self.site.generation and holds(seen[-1]):
                return seen[-1]
            assert time.monotonic() < deadline, f"it does not come to hold: {seen[-1]}"
        raise AssertionError(f"the connection was closed after {seen[-1:]}: {self.site.log}")

    def daemon(self, claim: str, holds: Callable[[MpsDaemon], object]) -> MpsDaemon:
        """The MPS daemon of a claim once something holds for it."""
        found: list[MpsDaemon] = []

        def look(report: SharingReport) -> bool:
            found[:] = [
                daemon
                for daemon in report.daemons
                if daemon.wanted.claim.uid == uid(claim) and holds(daemon)
            ]
            return bool(found)

        self.report(look)
        return found[0]

    def ready(self, wanted: WantedDaemon) -> MpsDaemon:
        """A daemon once it is ready as it is wanted."""
        claim = wanted.claim.name
        return self.daemon(claim, lambda seen: seen.state == "ready" and seen.wanted == wanted)

    def use(self, claim: str, holds: Callable[[ShareUse], object]) -> ShareUse:
        """The use of a claim once something holds for it."""
        found: list[ShareUse] = []

        def look(report: SharingReport) -> bool:
            found[:] = [use for use in report.uses if uid(claim) in use.claims and holds(use)]
            return bool(found)

        self.report(look)
        return found[0]


def remove_daemons(top: Path, driver: str) -> None:
    """Ends all MPS daemons with a folder in `top`, and removes what they leave."""
    for name in folder.names(top):
        cgroup = DaemonCgroup(Hierarchies.find(Path("/sys/fs/cgroup")), driver, name)
        cgroup.kill()
        assert cgroup.emptied(30)
        cgroup.remove()
        DaemonFolder(top, name).remove()


@contextmanager
def site(kubepods: str) -> Iterator[Site]:
    """Makes one, and ends all that runs on it."""
    with tempfile.TemporaryDirectory(prefix="c", dir=_TOP) as name:
        place = Path(name)
        gpus = SimulatedNode.create(place / "node", "dgx-h100", name="node-1")
        made = Site(place, gpus, kubepods, f"t{os.getpid()}-{next(_numbers)}.dev")
        try:
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()
            remove_daemons(made.plugin_folder / MPS, made.driver)

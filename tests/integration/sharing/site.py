"""A node with carina-sharing, whose GPUs are simulated, and the plugin's side of its socket."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from carina_dra.sharing.files import SOCKET, WANTED
from carina_dra.sharing.message import (
    Reference,
    ShareUse,
    SharingReport,
    WantedShare,
    WantedShares,
)
from simulation.nvml import SimulatedNode
from tests.eventually import eventually

MIB = 2**20
DRIVER = "gpu.carina.dev"


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
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    generation: int = 0

    @property
    def plugin_folder(self) -> Path:
        return self.folder / "k/plugins" / DRIVER

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

    def launch(self, *flags: str) -> subprocess.Popen[bytes]:
        """Starts the process."""
        command = self.gpus.sharing_command(
            {
                "kubelet-root": self.folder / "k",
                "http-address": "off",
                "kubepods": self.kubepods,
            }
        )
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen([*command, *flags], stderr=log)
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

    def want(self, *shares: WantedShare) -> None:
        self.site.generation += 1
        message = WantedShares(generation=self.site.generation, shares=shares)
        self.connection.sendall(message.line())

    def report(self, holds: Callable[[SharingReport], object]) -> SharingReport:
        """The next report of the last generation for which something holds."""
        seen: list[SharingReport] = []
        for line in self.lines:
            seen.append(SharingReport.parse(line))
            if seen[-1].generation == self.site.generation and holds(seen[-1]):
                return seen[-1]
            assert len(seen) < 60, f"it does not come to hold: {seen[-1]}"
        raise AssertionError(f"the connection was closed after {seen[-1:]}: {self.site.log}")

    def use(self, claim: str, holds: Callable[[ShareUse], object]) -> ShareUse:
        """The use of a claim once something holds for it."""
        found: list[ShareUse] = []

        def look(report: SharingReport) -> bool:
            found[:] = [use for use in report.uses if uid(claim) in use.claims and holds(use)]
            return bool(found)

        self.report(look)
        return found[0]


@contextmanager
def site(kubepods: str) -> Iterator[Site]:
    """Makes one, and ends all that runs on it."""
    with tempfile.TemporaryDirectory(prefix="c") as name:  # paths of sockets have limits
        folder = Path(name)
        gpus = SimulatedNode.create(folder / "node", "dgx-h100", name="node-1")
        made = Site(folder, gpus, kubepods)
        try:
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()

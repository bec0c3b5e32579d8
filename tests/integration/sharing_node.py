"""A node with whole processes of the plugin and of carina-sharing, each of a tree of its own."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

import pytest

from carina_dra.kube.api_resource import DEVICE_CLASSES, PODS
from carina_dra.sharing.files import MPS, SOCKET
from carina_dra.sharing.message import MpsDaemon, SharingReport
from sharing.mps.cgroups import DaemonCgroup, Hierarchies
from simulation.demo import manifests
from tests.eventually import eventually
from tests.integration.killed import killed_before
from tests.integration.plugin_host import DRIVER, Host, running_host
from tests.integration.sharing.cgroups import Kubepods, Version, kubepods, mount, move
from tests.integration.sharing.site import remove_daemons
from tests.integration.test_shares import Sharing

WITHIN: Final = 30.0
"""Seconds in which a process ends, or has seen what changed."""
DEMANDS_MPS: Final = {
    "apiVersion": "resource.carina.dev/v1alpha1",
    "kind": "ShareConfig",
    "enforcement": {"memory": "mps"},
}
_MIB: Final = 2**20
_VERSIONS: Final[tuple[Version, ...]] = ("v2", "v1")
Part: TypeAlias = Literal["plugin", "sharing"]


@dataclass
class SharingNode:
    """The node. A tree is a folder with packages; None for those that are tested."""

    host: Host
    pods: Kubepods
    running: dict[Part, subprocess.Popen[bytes]] = field(default_factory=dict)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def claims(self) -> Sharing:
        """Makes pods with claims, and calls the plugin for them."""
        return Sharing(self.host)

    def update(self, part: Part, tree: Path | None = None) -> None:
        """Ends a process as the kubelet does, and starts the one of a tree."""
        if part in self.running:
            self.running[part].send_signal(signal.SIGTERM)
            assert self.running.pop(part).wait(WITHIN) == 0
        self.start(part, tree)

    def kill(self, part: Part) -> None:
        """Ends a process with SIGKILL, if it has not ended."""
        process = self.running.pop(part)
        process.kill()
        process.wait()

    def start(self, part: Part, tree: Path | None = None) -> None:
        """Starts a process, and waits until it does its work."""
        match part:
            case "plugin":
                self.running[part] = self.host.start(tree=tree)
                eventually(self.host.has_whole_pool)
            case "sharing":
                self.running[part] = self._launch_sharing(tree)
                eventually(lambda: self.report() is not None, within=WITHIN)
            case _:
                assert_never(part)

    def start_killed(self, number: int, words: Sequence[str]) -> None:
        """Starts a plugin that is killed before its n-th step about one of the words."""
        before = self.host.registered()
        process = self.host.launch(changed=partial(killed_before, number, words))
        self.running["plugin"] = process
        eventually(lambda: process.poll() is not None or self.host.registered() - before)

    def _launch_sharing(self, tree: Path | None) -> subprocess.Popen[bytes]:
        command = self.host.gpus.sharing_command(
            {
                "kubelet-root": self.host.kubelet,
                "http-address": "off",
                "kubepods": self.pods.path,
            }
        )
        with (self.host.folder / "sharing.log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log, cwd=tree)
        self.host.processes.append(process)
        return process

    def work(self, pod: str, mib: int) -> None:
        """Starts a process of a pod, which uses memory of the first GPU."""
        uid = self.host.client.get(PODS, pod, namespace="default")["metadata"]["uid"]
        idle = "import signal; signal.pause()"
        worker = subprocess.Popen([sys.executable, "-c", idle], stdin=subprocess.DEVNULL)
        self.workers.append(worker)
        move(worker.pid, self.pods.container(uid))
        self.host.gpus.run_process(0, worker.pid, memory=mib * _MIB)

    def prepared(self) -> dict[str, tuple[bytes, int, int]]:
        """What is prepared: the files, by name, as they were written last."""
        files = (self.host.folder / "cdi").glob(f"{DRIVER}-claim_*.json")
        return {
            file.name: (file.read_bytes(), file.stat().st_ino, file.stat().st_mtime_ns)
            for file in files
        }

    def report(self) -> SharingReport | None:
        """What carina-sharing says; None while it cannot be asked."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WITHIN)
            try:
                connection.connect(str(self.host.plugin / SOCKET))
                with connection.makefile("rb") as lines:
                    return SharingReport.parse(lines.readline())
            except (OSError, ValueError):
                return None

    def watches(self, claim: str) -> bool:
        """Whether carina-sharing watches the share of a claim."""
        uid = self.claims.claim(claim)["metadata"]["uid"]
        report = self.report()
        return report is not None and any(uid in use.claims for use in report.uses)

    def daemons(self) -> dict[str, MpsDaemon]:
        """The MPS daemons that carina-sharing tells of, by the names of their claims."""
        report = self.report()
        daemons = report.daemons if report is not None else ()
        return {daemon.wanted.claim.name: daemon for daemon in daemons}

    def leader(self, claim: str) -> int | None:
        """The process of the MPS daemon of a claim; None if there is none."""
        uid = self.claims.claim(claim)["metadata"]["uid"]
        return DaemonCgroup(Hierarchies.find(Path("/sys/fs/cgroup")), DRIVER, uid).leader()

    def used(self) -> dict[str, int]:
        """What carina-sharing sees that pods use, in MiB."""
        report = self.report()
        uses = report.uses if report is not None else ()
        return {pod.pod.name: pod.memory_mib for use in uses for pod in use.pods}


@contextmanager
def sharing_node() -> Iterator[SharingNode]:
    """Makes one, and ends all that runs on it; skips the test where cgroups cannot be made."""
    hierarchy = next((at for at in map(mount, _VERSIONS) if isinstance(at, Path)), None)
    if hierarchy is None:
        pytest.skip("no cgroup hierarchy is mounted writable on this machine")
    with ExitStack() as cleanup:
        host = cleanup.enter_context(running_host(top=Path("/tmp")))  # daemons have a /dev/shm
        made = SharingNode(host, cleanup.enter_context(kubepods(hierarchy, systemd=False)))
        cleanup.callback(remove_daemons, host.plugin / MPS, DRIVER)
        cleanup.callback(_end, host.processes)
        cleanup.callback(_end, made.workers)
        for device_class in manifests.load(manifests.DEPLOY / "deviceclass.yaml"):
            host.client.create(DEVICE_CLASSES, device_class)
        yield made


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()

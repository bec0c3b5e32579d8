"""Plugin and carina-sharing are updated one after the other, in either order, and back.

Both are the real processes of two commits. Shares that one version has prepared stay prepared, the
processes of their pods go on and are seen, and nothing of them is written anew.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import pytest

from carina_dra.kube.api_resource import DEVICE_CLASSES, PODS
from carina_dra.sharing.files import SOCKET
from carina_dra.sharing.message import SharingReport
from simulation.demo import manifests
from tests.eventually import eventually
from tests.integration.old_tree import tree_of
from tests.integration.plugin_host import DRIVER, Host, running_host
from tests.integration.sharing.cgroups import Kubepods, Version, kubepods, mount, move
from tests.integration.test_shares import Sharing, amounts

_OLD: Final = "77fd880f"
"""The commit before MPS daemons and processes that are ended."""
_MIB: Final = 2**20
_SHARES: Final = {"train": 1000, "serve": 2000}
"""The pods with shares of a GPU, and the MiB that their processes use of it."""
_WITHIN: Final = 30.0
_VERSIONS: Final[tuple[Version, ...]] = ("v2", "v1")
Part: TypeAlias = Literal["plugin", "sharing"]


@dataclass
class Node:
    """A node with both processes, each of a tree: None is this one."""

    host: Host
    pods: Kubepods
    running: dict[Part, subprocess.Popen[bytes]] = field(default_factory=dict)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def update(self, part: Part, tree: Path | None) -> None:
        """Ends a process as the kubelet does, and starts the one of a tree."""
        if old := self.running.pop(part, None):
            old.send_signal(signal.SIGTERM)
            assert old.wait(_WITHIN) == 0
        match part:
            case "plugin":
                self.running[part] = self.host.start(tree=tree)
                eventually(self.host.has_whole_pool)
            case "sharing":
                self.running[part] = self._start_sharing(tree)

    def _start_sharing(self, tree: Path | None) -> subprocess.Popen[bytes]:
        command = self.host.gpus.sharing_command(
            {
                "kubelet-root": self.host.kubelet_root,
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

    def used(self) -> dict[str, int]:
        """What carina-sharing sees that pods use, in MiB; nothing while it cannot be asked."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_WITHIN)
            try:
                connection.connect(str(self.host.plugin / SOCKET))
                with connection.makefile("rb") as lines:
                    report = SharingReport.parse(lines.readline())
            except (OSError, ValueError):
                return {}
        return {pod.pod.name: pod.memory_mib for use in report.uses for pod in use.pods}


@pytest.fixture
def node() -> Iterator[Node]:
    hierarchy = next((at for at in map(mount, _VERSIONS) if isinstance(at, Path)), None)
    if hierarchy is None:
        pytest.skip("no cgroup hierarchy is mounted writable on this machine")
    with ExitStack() as cleanup:
        host = cleanup.enter_context(running_host())
        made = Node(host, cleanup.enter_context(kubepods(hierarchy, systemd=False)))
        cleanup.callback(_end, made.workers)
        for device_class in manifests.load(manifests.DEPLOY / "deviceclass.yaml"):
            host.client.create(DEVICE_CLASSES, device_class)
        yield made


def _end(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.kill()
        worker.wait()


@pytest.fixture(scope="module")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of(_OLD, tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize("order", [("plugin", "sharing"), ("sharing", "plugin")], ids=" first".join)
def test_shares_outlast_updates_in_any_order_and_back(
    node: Node, old_tree: Path, order: tuple[Part, Part]
) -> None:
    for part in order:
        node.update(part, old_tree)
    sharing = Sharing(node.host)
    for pod, mib in _SHARES.items():
        sharing.add_pod(pod, capacity=amounts("30Gi", 40))
        assert not sharing.prepare(pod).error
        node.work(pod, mib)
    eventually(lambda: node.used() == _SHARES, within=_WITHIN)
    before = node.prepared()
    assert len(before) == len(_SHARES)

    for tree in (None, old_tree, None):
        for part in order:
            node.update(part, tree)
            eventually(lambda: node.used() == _SHARES, within=_WITHIN)
            assert not any(sharing.prepare(pod).error for pod in _SHARES)
            assert node.prepared() == before
            assert all(worker.poll() is None for worker in node.workers)

    for pod in _SHARES:
        assert not sharing.unprepare(pod).error
    assert node.prepared() == {}
    eventually(lambda: node.used() == {}, within=_WITHIN)

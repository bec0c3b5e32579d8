"""A node for whole plugin processes: simulated GPUs, a kubelet's folders, an in-memory API."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from carina_dra.kube.api_resource import EVENTS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.sharing.files import SOCKET
from simulation.api_server.api import Api
from simulation.api_server.server import ApiServer
from simulation.nvml import SimulatedNode
from tests.eventually import eventually

DRIVER = "gpu.carina.dev"
NODE = "node-1"
START_PATIENCE = 30.0
"""Seconds after which a plugin that has not registered is a failure."""


@dataclass
class Host:
    """A node with the folders of a kubelet, and an API server that knows it."""

    folder: Path
    gpus: SimulatedNode
    client: Client
    kubeconfig: Path
    server: ApiServer
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def kubelet(self) -> Path:
        """The kubelet's folder, with a short name: paths of sockets have limits."""
        return self.folder / "k"

    @property
    def registry(self) -> Path:
        return self.kubelet / "plugins_registry"

    @property
    def plugin(self) -> Path:
        return self.kubelet / "plugins" / DRIVER

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, *flags: str, tree: Path | None = None) -> subprocess.Popen[bytes]:
        """Starts a plugin and waits until its registration socket is there."""
        before = self.registered()
        process = self.launch(*flags, tree=tree)
        eventually(lambda: self._serves(process, before), within=START_PATIENCE)
        return process

    def launch(
        self,
        *flags: str,
        tree: Path | None = None,
        changed: Callable[[list[str]], list[str]] = list,
    ) -> subprocess.Popen[bytes]:
        """Starts a plugin, whose packages are in a folder, or those that are tested.

        Its command may be changed.
        """
        command = self.gpus.plugin_command(
            {
                "node-name": NODE,
                "kubelet-root": self.kubelet,
                "cdi-directory": self.folder / "cdi",
                "http-address": "off",
                "device-kinds": "gpu,mig,share,monitor",
                "kubeconfig": self.kubeconfig,
            }
        )
        with self.log.open("ab") as log:
            process = subprocess.Popen(changed([*command, *flags]), stderr=log, cwd=tree)
        self.processes.append(process)
        return process

    def start_sharing(self, driver: str) -> subprocess.Popen[bytes]:
        """Starts carina-sharing, and waits until it serves the plugin of the driver."""
        command = self.gpus.sharing_command(
            {
                "kubelet-root": self.kubelet,
                "driver-name": driver,
                "http-address": "off",
                "kubepods": "/kubepods",
            }
        )
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stderr=log)
        self.processes.append(process)
        path = self.kubelet / "plugins" / driver / SOCKET
        eventually(lambda: process.poll() is not None or path.is_socket(), within=START_PATIENCE)
        assert process.poll() is None, self.log.read_text()
        return process

    def _serves(self, process: subprocess.Popen[bytes], before: set[tuple[Path, int]]) -> bool:
        assert process.poll() is None, self.log.read_text()
        return bool(self.registered() - before)

    def registered(self) -> set[tuple[Path, int]]:
        """The registration sockets: one that is made anew is another, under the same name too."""
        found = set()
        for path in self.registry.glob("*.sock"):
            with suppress(FileNotFoundError):
                found.add((path, path.stat().st_ctime_ns))
        return found

    def sockets(self) -> list[Path]:
        return [*self.plugin.glob("*.sock"), *self.registry.glob("*.sock")]

    def slices(self) -> list[Body]:
        return self.client.list(RESOURCE_SLICES).items

    def has_whole_pool(self) -> bool:
        """Whether all slices of the pool are there."""
        slices = self.slices()
        wanted = [body["spec"]["pool"]["resourceSliceCount"] for body in slices]
        return bool(slices) and all(number == len(slices) for number in wanted)

    def events(self) -> list[Body]:
        return self.client.list(EVENTS).items

    def allocated_claim(self, name: str, device: str, **more: object) -> Body:
        """Makes a claim that has a device; `more` are fields of the allocation's result."""
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        claim = self.client.create(
            RESOURCE_CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, **more}
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
        return self.client.replace_status(RESOURCE_CLAIMS, claim)

    def reserve(self, claim: Body, pod: str) -> Body:
        """Reserves a claim for the pod with a UID."""
        consumer = {"resource": "pods", "name": "pod", "uid": pod}
        status = {**claim["status"], "reservedFor": [consumer]}
        return self.client.replace_status(RESOURCE_CLAIMS, {**claim, "status": status})


@contextmanager
def running_host(*, driver_version: str | None = None, top: Path | None = None) -> Iterator[Host]:
    """Makes one, and ends all that runs on it; with another driver than that of the profile.

    Its folder is in `top`, by default with other temporary files.
    """
    # Not pytest's own folder: the paths of sockets have 107 bytes at most.
    with (
        tempfile.TemporaryDirectory(prefix="c", dir=top) as name,
        ApiServer(Api()) as server,
    ):  # short: sockets' paths have limits
        folder = Path(name)
        kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        gpus = SimulatedNode.create(
            folder / "node", "dgx-h100", name=NODE, driver_version=driver_version
        )
        with Client(server.connection) as client:
            client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            made = Host(folder, gpus, client, kubeconfig, server)
            try:
                yield made
            finally:
                for process in made.processes:
                    process.kill()
                    process.wait()

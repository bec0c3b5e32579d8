"""The real kubelet plugin on a real node, whose GPUs alone are simulated.

It runs as a process on the host, with the token that its pod would have, and every setting that
the DaemonSet of deploy/ would give it.
"""

import json
import os
import signal
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kubelet_plugin.publish.other_drivers import BesideOtherDrivers
from simulation.kubernetes import process
from simulation.kubernetes.cluster import ServiceAccountCredentials
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import Process
from simulation.nvml.node import SimulatedNode

DRIVER = "gpu.carina.dev"
LIMITS_MEMORY = "615.71.01"
"""A version of the driver that limits the memory of cgroups."""
_REPOSITORY = Path(__file__).parents[2]


def cgroup_hierarchy() -> Path:
    """The root of a hierarchy with the cgroups of pods: of cgroup v2, or of v1's memory."""
    root = Path("/sys/fs/cgroup")
    return root if (root / "cgroup.controllers").exists() else root / "memory"


@dataclass(frozen=True, slots=True)
class Call:
    """One claim of a call of the kubelet, as the plugin logs it."""

    operation: Literal["prepare", "unprepare"]
    claim: str
    failed: bool


@dataclass(slots=True)
class Plugin:
    """A plugin that a test can end in every way, and start again.

    `pod_uid` names its sockets, so that several can run side by side; each has an `http_port`.
    `driver` is its name as a driver.
    """

    gpus: SimulatedNode
    node: Node
    credentials: ServiceAccountCredentials
    pod_uid: str
    http_port: int
    driver: str = DRIVER
    beside_other_drivers: BesideOtherDrivers = "withhold"
    cgroup_root: Path = Path("/sys/fs/cgroup")
    _process: Process | None = field(default=None)
    _log_begins: int = field(default=0)

    def __post_init__(self) -> None:
        """What earlier plugins logged is not this one's."""
        self.begin_log()

    def begin_log(self) -> None:
        """Forgets what has been logged, and the calls in it."""
        self._log_begins = self._log.stat().st_size if self._log.exists() else 0

    @property
    def registration_socket(self) -> Path:
        """Where the kubelet finds it."""
        return self.node.kubelet.plugins_registry / f"{self.driver}-{self.pod_uid}-reg.sock"

    @property
    def process(self) -> Process:
        """The running process.

        Raises:
            RuntimeError: it is stopped.
        """
        if self._process is None:
            raise RuntimeError(f"{self._name} is stopped")
        return self._process

    def be_ready(self) -> None:
        """Starts it, unless it runs; waits until it is ready."""
        if self._process is None:
            self.launch()
        self.wait_until_ready()

    def start(self) -> None:
        """Starts it; waits until its slices are published and the kubelet has registered it."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts it, for a kubelet that will find it later; waits for its socket."""
        self.begin()
        process.wait_for(
            f"{self._name} to listen", self.registration_socket.exists, alive=(self.process,)
        )

    def begin(self) -> None:
        """Starts its process."""
        self._process = process.start(
            self.node.cluster.state, self._name, self._command(), self._environment()
        )

    def wait_until_ready(self) -> None:
        """Waits until it says so itself."""
        process.wait_for(f"{self._name} to be ready", self.is_ready, alive=(self.process,))

    def stop(self) -> None:
        """Ends it with SIGTERM, unless it has ended."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Ends it with SIGKILL: it leaves its sockets behind, and all that it was doing."""
        self.process.stop(signal.SIGKILL)
        self._process = None

    def freeze(self) -> None:
        """Lets it do nothing any more, while its sockets stay open."""
        self.process.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen one go on."""
        self.process.popen.send_signal(signal.SIGCONT)

    def calls(self) -> list[Call]:
        """The kubelet's calls that have been answered, oldest first; restarts do not forget."""
        with self._log.open("rb") as log:
            log.seek(self._log_begins)
            lines = [json.loads(line) for line in log if line.startswith(b"{")]
        return [
            Call(line["operation"], line["claim"], line["event"] == "claim call failed")
            for line in lines
            if line["event"] in {"claim call finished", "claim call failed"}
        ]

    def prepared_claims(self) -> set[str]:
        """The UIDs of the claims that have a CDI spec."""
        prefix = f"{self.driver}-claim_"
        return {
            file.stem.removeprefix(prefix) for file in self.node.cdi_folder.glob(f"{prefix}*.json")
        }

    @property
    def state_folder(self) -> Path:
        """Where it keeps its checkpoint and its records."""
        return self.node.kubelet.plugins / self.driver

    def log(self) -> str:
        """What it has logged, in all its processes."""
        with self._log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read().decode()

    @property
    def _name(self) -> str:
        return f"plugin-{self.pod_uid}"

    @property
    def _log(self) -> Path:
        return self.node.cluster.state.logs / f"{self._name}.log"

    def _command(self) -> list[str]:
        return self.gpus.plugin_command(
            {
                "node-name": self.node.name,
                "driver-name": self.driver,
                "device-kinds": "gpu,mig,share,monitor",
                "pod-uid": self.pod_uid,
                "kubelet-root": self.node.kubelet.root,
                "cdi-directory": self.node.cdi_folder,
                "service-account": self.credentials.folder,
                "http-address": f"127.0.0.1:{self.http_port}",
                "poll-seconds": "0.5",
                "recovery-seconds": "0",
                "beside-other-drivers": self.beside_other_drivers,
                "cgroup-root": self.cgroup_root,
            }
        )

    def _environment(self) -> dict[str, str]:
        host, _, port = self.node.cluster.server.removeprefix("https://").partition(":")
        path = os.pathsep.join((str(_REPOSITORY), os.environ.get("PYTHONPATH", "")))
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "PYTHONPATH": path.rstrip(os.pathsep),
        }

    def metrics(self) -> str:
        """Its metrics, as Prometheus reads them."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.http_port}/metrics", timeout=5
        ) as answer:
            text: str = answer.read().decode()
            return text

    def is_ready(self) -> bool:
        """Whether it says so itself."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}/readyz", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

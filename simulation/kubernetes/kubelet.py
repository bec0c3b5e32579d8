"""A kubelet that tests can stop and restart."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulation.kubernetes import pki, process, reaper
from simulation.kubernetes.control_plane import ControlPlane
from simulation.kubernetes.mount_namespace import MountNamespace
from simulation.kubernetes.process import Process
from simulation.kubernetes.state import StateDirectory

_CGROUPS = Path("/sys/fs/cgroup")
_START_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Kubelet:
    """The kubelet of a node; each start uses the same command.

    `root` is its --root-dir, which contains the plugin folders.
    """

    root: Path
    log: Path
    _state: StateDirectory
    _name: str
    _command: tuple[str | Path, ...]
    _port: int
    _tls: ssl.SSLContext
    _process: Process | None = field(default=None)

    @property
    def plugins(self) -> Path:
        """The folder in which each driver has a folder with its socket."""
        return self.root / "plugins"

    @property
    def plugins_registry(self) -> Path:
        """The folder of registration sockets."""
        return self.root / "plugins_registry"

    @property
    def process(self) -> Process:
        """The running process.

        Raises:
            RuntimeError: the kubelet is stopped.
        """
        if self._process is None:
            raise RuntimeError(f"{self._name} is stopped")
        return self._process

    def start(self) -> None:
        """Starts the kubelet and waits until it is healthy.

        Raises:
            ComponentDiedError: it exited during its start.
            NotReachedError: it did not become healthy.
        """
        if self._process is not None:
            raise RuntimeError(f"{self._name} is already running")
        self._process = process.start(self._state, self._name, self._command)
        process.wait_for(
            f"{self._name} to be healthy",
            self._is_healthy,
            timeout=_START_TIMEOUT_S,
            alive=(self._process,),
            retry_on=(OSError, http.client.HTTPException),
        )

    def stop(self) -> None:
        """Stops the kubelet with SIGTERM; containers keep running."""
        self.process.stop()
        self._process = None

    def restart(self) -> None:
        """Restarts the kubelet; containers keep running."""
        self.stop()
        self.start()

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._tls, timeout=5
        )
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()


def configure(
    state: StateDirectory,
    control_plane: ControlPlane,
    *,
    program: Path,
    folder: Path,
    root: Path,
    node: str,
    port: int,
    runtime_socket: Path,
    namespace: MountNamespace,
    feature_gates: Mapping[str, bool],
    sync_period: str,
) -> Kubelet:
    """Writes a kubelet's configuration, and returns the kubelet, which is not started.

    It will run in the mount namespace of its container runtime.
    """
    authority = control_plane.authority
    identity = authority.issue(f"kubelet-{node}", user=f"system:node:{node}", group="system:nodes")
    kubeconfig = pki.write_kubeconfig(
        folder / "kubelet.kubeconfig",
        server=control_plane.server,
        ca=authority.ca.certificate,
        user=pki.client_certificate(identity),
    )
    # Each kubelet has its own cgroup, because it kills unknown pods below its root.
    cgroup = f"{reaper.cgroup_name(state.path)}/{node}"
    _make_cgroup(cgroup)
    config = folder / "kubelet.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": "127.0.0.1",
                "port": port,
                "healthzPort": 0,
                "readOnlyPort": 0,
                "tlsCertFile": str(identity.certificate),
                "tlsPrivateKeyFile": str(identity.key),
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": False},
                    "x509": {"clientCAFile": str(authority.ca.certificate)},
                },
                "authorization": {"mode": "AlwaysAllow"},
                "containerRuntimeEndpoint": f"unix://{runtime_socket}",
                "podLogsDir": str(folder / "pods"),
                "volumePluginDir": str(folder / "volume-plugins"),
                # There is no DNS, but without this setting every pod gets a warning.
                "clusterDNS": [str(state.service_subnet[10])],
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{cgroup}",
                "enforceNodeAllocatable": [],
                "failCgroupV1": False,
                "failSwapOn": False,
                "makeIPTablesUtilChains": False,
                # The disk may be nearly full, and removed images cannot be pulled again.
                "evictionHard": {
                    "memory.available": "50Mi",
                    "nodefs.available": "0%",
                    "imagefs.available": "0%",
                },
                "imageGCHighThresholdPercent": 100,
                "syncFrequency": sync_period,
                "featureGates": dict(feature_gates),
            },
            indent=2,
        )
    )
    tls = ssl.create_default_context(cafile=str(authority.ca.certificate))
    admin = authority.issue("admin", user="carina-tests", group="system:masters")
    tls.load_cert_chain(admin.certificate, admin.key)
    name = f"kubelet-{node}"
    command = (
        *namespace.entered_by([program]),
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={root}",
        f"--cert-dir={folder / 'pki'}",
        f"--hostname-override={node}",
        # Otherwise the kubelet looks for an address, and rejects a loopback one.
        "--cloud-provider=external",
    )
    return Kubelet(root, state.logs / f"{name}.log", state, name, command, port, tls)


def _make_cgroup(path: str) -> None:
    """Creates the cgroup of all pods, which must exist when the kubelet starts."""
    if (_CGROUPS / "cgroup.controllers").exists():
        folder = _CGROUPS
        for name in path.split("/"):
            enabled = (folder / "cgroup.controllers").read_text().split()
            wanted = " ".join(f"+{controller}" for controller in enabled)
            (folder / "cgroup.subtree_control").write_text(wanted)
            folder /= name
            folder.mkdir(exist_ok=True)
        return
    for hierarchy in _CGROUPS.iterdir():
        if hierarchy.is_dir() and not hierarchy.is_symlink():
            (hierarchy / path).mkdir(parents=True, exist_ok=True)

"""Pods whose claims demand MPS: kubelet, containerd, plugin and carina-sharing are the real ones.

Only the GPUs are simulated, and a program is in place of NVIDIA's control daemon. It speaks the
daemon's commands over real sockets, and its `connect` stands for the first call of CUDA.
"""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharing.mps.cgroups import DaemonCgroup, Hierarchies
from sharing.mps.folder import DaemonFolder, names
from simulation.kubernetes import process, reaper
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import Process, wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, Plugin
from tests.e2e.test_sharing import pid_of
from tests.e2e.workloads import RETRY_S, Object, Workloads, container, request

_PIPES = "/run/carina-mps/pipe"
_TRAIN, _SERVE = 4_200_001, 4_200_002
"""Seconds of the containers' sleeps."""
_BY_MPS = {
    "opaque": {
        "driver": DRIVER,
        "parameters": {
            "apiVersion": "resource.carina.dev/v1alpha1",
            "kind": "ShareConfig",
            "enforcement": {"memory": "mps", "cores": "mps"},
        },
    }
}


class Daemons:
    """carina-sharing beside the plugin, on the host, and the daemons that it runs."""

    def __init__(self, node: Node, gpus: SimulatedNode, plugin: Plugin) -> None:
        self._node = node
        self._gpus = gpus
        self._top = plugin.state_folder / "mps"
        self._hierarchies = Hierarchies.find(Path("/sys/fs/cgroup"))
        self.sharing = self.start()

    def start(self) -> Process:
        node = self._node
        kubepods = f"/{reaper.cgroup_name(node.cluster.state.path)}/{node.name}/kubepods"
        command = self._gpus.sharing_command(
            {"kubelet-root": "/var/lib/kubelet", "http-address": "off", "kubepods": kubepods}
        )
        # What it mounts has to reach the runtime, as with mountPropagation: Bidirectional.
        entered = node.runtime.namespace.entered_by(command)
        self.sharing = process.start(node.cluster.state, "sharing", entered, {})
        return self.sharing

    def leader(self, claim: str) -> int | None:
        """The process of the control daemon of a claim, by its UID."""
        return self._cgroup(claim).leader()

    def kill(self, claim: str) -> None:
        """Ends the control daemon of a claim as the kernel does for want of memory."""
        leader = self.leader(claim)
        assert leader is not None
        os.kill(leader, signal.SIGKILL)

    def is_gone(self, claim: str) -> bool:
        """Whether nothing of the daemon of a claim is left: processes, folder, mounts."""
        mounts = Path(f"/proc/{self._node.runtime.namespace.pid}/mountinfo").read_text()
        folder = self._top / claim
        return not (self._cgroup(claim).pids() or folder.exists() or claim in mounts)

    def end(self) -> None:
        """Ends carina-sharing, and what daemons are left."""
        self.sharing.stop()
        for claim in names(self._top):
            cgroup = self._cgroup(claim)
            cgroup.kill()
            assert cgroup.emptied(30)
            cgroup.remove()
            DaemonFolder(self._top, claim).remove()

    def _cgroup(self, claim: str) -> DaemonCgroup:
        return DaemonCgroup(self._hierarchies, DRIVER, claim)


@pytest.fixture
def daemons(node: Node, gpus: SimulatedNode, plugin: Plugin) -> Iterator[Daemons]:
    running = Daemons(node, gpus, plugin)
    wait_for(
        "the plugin to be connected", lambda: "carina_sharing_connected 1.0" in plugin.metrics()
    )
    yield running
    running.end()


@pytest.fixture
def pods(daemons: Daemons, workloads: Workloads, gpus: SimulatedNode) -> Workloads:
    """A namespace with the claims `own` and `other`, for shares of one GPU by MPS."""
    same = f"device.attributes['{DRIVER}'].uuid == '{gpus.state.gpus[0].uuid}'"
    offered = f"device.attributes['{DRIVER}'].memoryEnforcementMPS"
    for claim, mib, cores in (("own", 20000, 30), ("other", 15000, 10)):
        amounts = {"memory": f"{mib}Mi", "cores": str(cores)}
        share = request(
            deviceClassName=f"share.{DRIVER}",
            capacity={"requests": amounts},
            selectors=[{"cel": {"expression": expression}} for expression in (same, offered)],
        )
        workloads.claim(claim, share, config=[_BY_MPS])
    return workloads


def test_each_pod_computes_in_the_server_of_its_own_daemon(
    pods: Workloads, plugin: Plugin, daemons: Daemons
) -> None:
    pods.pod("train", "own", _sleeping(_TRAIN))
    pods.pod("serve", "other", _sleeping(_SERVE))
    pods.wait_running("train", "serve")
    own, other = (pods.get("resourceclaim", name)["metadata"]["uid"] for name in ("own", "other"))

    assert _levels(pods, "train") == {"mps"}
    assert pods.environment("train")["CUDA_MPS_PIPE_DIRECTORY"] == _PIPES
    assert (_limits(_TRAIN), _limits(_SERVE)) == (
        ["0=20000M", "30.0"],
        ["0=15000M", "10.0"],
    )
    pods.run("train", "touch /dev/shm/of-train")
    assert pods.run("train", "ls /dev/shm").split() == ["of-train"]
    assert pods.run("serve", "ls /dev/shm").split() == []
    assert _data(pods, "own") == {"memoryEnforcement": "mps", "coreEnforcement": "mps"}
    before = daemons.leader(own), daemons.leader(other)

    daemons.kill(own)
    wait_for("its daemon to be started again", lambda: _metric(plugin, "restarts_total") == 1)
    wait_for("it to be ready", lambda: _metric(plugin, "ready") == 1)
    assert daemons.leader(own) not in (None, before[0])
    assert _limits(_TRAIN) == ["0=20000M", "30.0"]
    assert daemons.leader(other) == before[1]

    pods.delete("train")
    wait_for("its daemon to be gone", lambda: daemons.is_gone(own))
    assert daemons.leader(other) == before[1]
    assert _limits(_SERVE) == ["0=15000M", "10.0"]


def test_no_container_starts_before_its_daemon_has_its_limits(
    pods: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    gpus.fail_mps(answers={"get_default_active_thread_percentage": "100.0"})
    pods.pod("train", "own", _sleeping(_TRAIN))
    wait_for("Prepare to fail", lambda: "claim call is being retried" in plugin.log())
    assert "the MPS daemon of the claim" in plugin.log()
    (status,) = pods.get("pod", "train")["status"]["containerStatuses"]
    assert status["state"].keys() == {"waiting"}

    gpus.fail_mps()
    pods.wait_running("train", timeout=RETRY_S)
    assert _limits(_TRAIN) == ["0=20000M", "30.0"]


def test_a_restart_of_carina_sharing_and_of_the_plugin_ends_no_daemon(
    pods: Workloads, plugin: Plugin, daemons: Daemons
) -> None:
    pods.pod("train", "own", _sleeping(_TRAIN))
    pods.wait_running("train")
    uid = pods.get("resourceclaim", "own")["metadata"]["uid"]
    before = daemons.leader(uid)
    server = _ask(_TRAIN)[0]

    plugin.kill()
    daemons.sharing.stop(signal.SIGKILL)
    daemons.start()
    plugin.start()
    wait_for("both to be there", lambda: "carina_mps_daemon_ready{" in plugin.metrics())

    assert daemons.leader(uid) == before
    assert _ask(_TRAIN)[0] == server
    pods.delete("train")
    wait_for("its daemon to be gone", lambda: daemons.is_gone(uid))


def _ask(seconds: int) -> list[str]:
    """What the daemon says to the first call of CUDA in a container: its server and limits.

    Its socket is that which the container has at this path, whatever is mounted there.
    """
    path = f"/proc/{_pid(seconds)}/root{_PIPES}/control"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        connection.sendall(b"connect\n")
        return connection.recv(4096).decode().rstrip("\0").split()


def _limits(seconds: int) -> list[str]:
    return _ask(seconds)[1:]


def _metric(plugin: Plugin, name: str) -> float | None:
    """The value of a metric of the daemon of the claim `own`."""
    for line in plugin.metrics().splitlines():
        if line.startswith(f'carina_mps_daemon_{name}{{dra_claim_name="own",'):
            return float(line.rpartition(" ")[2])
    return None


def _pid(seconds: int) -> int:
    return wait_for("the process of a container", lambda: pid_of(seconds))


def _sleeping(seconds: int) -> Object:
    """A container with a process that its command line tells from all others on this machine."""
    return container("main", "gpu", command=f"trap 'exit 0' TERM; sleep {seconds} & wait")


def _levels(pods: Workloads, pod: str) -> set[str]:
    """What containers are told that enforces memory and cores."""
    variables = pods.environment(pod)
    return {value for name, value in variables.items() if name.endswith("_ENFORCEMENT")}


def _data(pods: Workloads, claim: str) -> Object:
    """What the status of a claim says of enforcement."""
    devices = wait_for(
        "its status", lambda: pods.get("resourceclaim", claim)["status"].get("devices")
    )
    data = devices[0]["data"]
    return {name: data[name] for name in ("memoryEnforcement", "coreEnforcement")}

"""Carina on a node as deploy/ installs it: the DaemonSet, and the image of the Containerfile.

An overlay of deploy/ gives the pod the simulated GPUs: the simulation of libnvidia-ml below pynvml,
and the root of the simulated host. Everything else is what is shipped. The files of the driver are
where the container of NVIDIA's GPU Operator has them, for the plugin to find.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carina_dra.sharing.files import SOCKET
from simulation.kubernetes.cluster import DEPLOY, Cluster, KubectlError
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, cgroup_hierarchy

Pod = dict[str, Any]
_REPOSITORY = Path(__file__).parents[2]
_NAMESPACE, _NAME = "carina-system", "carina-kubelet-plugin"
_SHARING = ("carina-sharing", "sharing")
"""The DaemonSet and its container."""
_DRIVER_ROOT = Path("/run/nvidia/driver")
_PODS = "--selector=app.kubernetes.io/component=kubelet-plugin"
_ROLLOUT_S = 120.0
_SIMULATION = "/simulation"
# Python runs a module of this name at every start.
_SITECUSTOMIZE = """\
import os
from pathlib import Path

from simulation.nvml import install

install(Path(os.environ["SIMULATED_NODE"]))
"""


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """The installed DaemonSet, and its pods on the only node."""

    node: Node
    gpus: SimulatedNode

    @property
    def cluster(self) -> Cluster:
        """The cluster that it is in."""
        return self.node.cluster

    def kubectl(self, *arguments: str) -> str:
        """What a kubectl command prints in the plugin's namespace."""
        return self.cluster.kubectl("--namespace", _NAMESPACE, *arguments)

    def start_driver(self) -> None:
        """Mounts the driver where its container does, as seen by the node."""
        _DRIVER_ROOT.mkdir(parents=True, exist_ok=True)
        self._on_node("mount", "--bind", self.gpus.root, _DRIVER_ROOT)

    def stop_driver(self) -> None:
        """Unmounts the driver, as at the end of its container."""
        self._on_node("umount", "--lazy", _DRIVER_ROOT)

    def _on_node(self, *command: str | Path) -> None:
        entered = self.node.runtime.namespace.entered_by(command)
        subprocess.run(entered, check=True)

    def install(self, folder: Path) -> None:
        """Applies deploy/ with the overlay, which is written to a folder; waits for the pod."""
        self.start_driver()
        self.cluster.install_carina(_write_overlay(folder, self.gpus))
        self.wait_rolled_out()

    @property
    def sharing_socket(self) -> Path:
        """The socket of carina-sharing, once it is ready."""
        daemonset, _ = _SHARING
        self.kubectl("rollout", "status", f"daemonset/{daemonset}", f"--timeout={_ROLLOUT_S:.0f}s")
        return self.node.kubelet.plugins / DRIVER / SOCKET

    def wait_rolled_out(self) -> None:
        """Waits until the only pod is a Ready one of the latest template."""
        timeout = f"--timeout={_ROLLOUT_S:.0f}s"
        try:
            self.kubectl("rollout", "status", f"daemonset/{_NAME}", timeout)
        except KubectlError as error:
            seen = [f"kubectl {command}:\n{self._try(command)}" for command in _SYMPTOMS]
            raise AssertionError("\n".join([str(error), *seen])) from error
        wait_for("the old pod to go", lambda: len(self.pods()) == 1)

    def pods(self) -> list[Pod]:
        """Its pods, the oldest first."""
        found = json.loads(
            self.kubectl(
                "get", "pods", _PODS, "--sort-by=.metadata.creationTimestamp", "-o", "json"
            )
        )
        items: list[Pod] = found["items"]
        return items

    @property
    def pod(self) -> Pod:
        """Its only pod."""
        (pod,) = self.pods()
        return pod

    def run(self, *command: str) -> str:
        """What a command prints in the plugin's container."""
        return self.kubectl("exec", self.pod["metadata"]["name"], "--", *command)

    def log(self) -> list[dict[str, Any]]:
        """What the plugin has logged since it started."""
        lines = self.kubectl("logs", self.pod["metadata"]["name"]).splitlines()
        return [json.loads(line) for line in lines]

    def slices(self) -> dict[str, dict[str, Any]]:
        """The node's ResourceSlices, by UID."""
        selector = f"--field-selector=spec.nodeName={self.node.name},spec.driver={DRIVER}"
        found = json.loads(self.cluster.kubectl("get", "resourceslices", selector, "-o", "json"))
        return {item["metadata"]["uid"]: item["spec"] for item in found["items"]}

    def prepared_claims(self) -> set[str]:
        """The UIDs of the claims that have a CDI spec."""
        prefix = f"{DRIVER}-claim_"
        specs = self.node.cdi_folder.glob(f"{prefix}*.json")
        return {spec.stem.removeprefix(prefix) for spec in specs}

    def leader(self) -> str:
        """The name of the controller's pod that leads."""
        return self.kubectl(
            "get", "lease", "carina-controller", "-o", "jsonpath={.spec.holderIdentity}"
        )

    def sockets(self) -> list[Path]:
        """The sockets of plugins, running or not."""
        folders = (self.node.kubelet.plugins / DRIVER, self.node.kubelet.plugins_registry)
        found = {path for folder in folders for path in folder.glob("*.sock")}
        return sorted(path for path in found if path.name != SOCKET)

    def _try(self, command: str) -> str:
        try:
            return self.kubectl(*command.split())
        except KubectlError as error:
            return str(error)


_SYMPTOMS = (
    "get pods -o wide",
    "get events --sort-by=.lastTimestamp",
    f"logs daemonset/{_NAME} --tail=40",
)


def write_simulation(folder: Path) -> Path:
    """Writes the simulation of libnvidia-ml below a folder; gives the path for PYTHONPATH."""
    code = folder / "pythonpath"
    simulation = _REPOSITORY / "simulation"
    no_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(simulation / "nvml", code / "simulation" / "nvml", ignore=no_bytecode)
    shutil.copy(simulation / "__init__.py", code / "simulation")
    (code / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    return code


def _write_overlay(folder: Path, gpus: SimulatedNode) -> Path:
    code = write_simulation(folder)
    overlay = folder / "overlay"
    overlay.mkdir()
    patches = (_patch(code, gpus, *named) for named in ((_NAME, "kubelet-plugin"), _SHARING))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(DEPLOY, overlay)],
        "components": [os.path.relpath(DEPLOY / "sharing", overlay)],
        "patches": [{"patch": json.dumps(patch)} for patch in patches],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))  # JSON is YAML
    return overlay


def _patch(
    code: Path, gpus: SimulatedNode, daemonset: str, container_name: str
) -> Mapping[str, object]:
    environment = {
        "PYTHONPATH": _SIMULATION,
        "SIMULATED_NODE": str(gpus.directory),
        "CARINA_HOST_ROOT": str(gpus.root),
        "CARINA_DEVICE_KINDS": "gpu,mig,share,monitor",
        "CARINA_CGROUP_ROOT": str(cgroup_hierarchy()),
    }
    container = {
        "name": container_name,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [
            {"name": "simulation", "mountPath": _SIMULATION, "readOnly": True},
            {"name": "simulated-node", "mountPath": str(gpus.directory)},
        ],
    }
    folders = {"simulation": code, "simulated-node": gpus.directory}
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": daemonset, "namespace": _NAMESPACE},
        "spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}},
    }

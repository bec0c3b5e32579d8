"""The Helm chart on a cluster with a node: a release, as a user has it.

Values give the plugin's pod the simulated GPUs. Everything else is what is shipped: the packed
chart, and the image of the Containerfile for every process and every hook.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.manifests import CHART, NAMESPACE, RELEASE
from simulation.kubernetes.node import Node
from simulation.nvml.node import SimulatedNode
from tests.e2e.daemonset import write_simulation

EARLIER_CHART = Path(__file__).parent / "charts" / "carina-0.0.1.tgz"
"""A fixed earlier version of the chart, from which one can upgrade."""
_SIMULATION = "/simulation"
_TIMEOUT = "--timeout=120s"


class HelmError(RuntimeError):
    """Helm failed; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The packed chart, and the values of the simulated node."""

    helm: Path
    node: Node
    packed: Path
    values: Path
    earlier_values: Path
    """Those that every chart knows."""
    home: Path

    def run(self, *arguments: str | Path) -> str:
        """What a command of Helm prints, in the chart's namespace. Raises HelmError."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.node.cluster.kubeconfig),
            **{f"HELM_{kind}_HOME": str(self.home) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        done = subprocess.run(
            [self.helm, *arguments], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, *flags: str | Path, chart: Path | None = None) -> None:
        """Installs or upgrades the release, also to an earlier chart, and waits for its pods."""
        values = self.values if chart is None else self.earlier_values
        self.run(
            *("upgrade", "--install", RELEASE, chart or self.packed, "--values", values),
            *("--namespace", NAMESPACE, "--create-namespace", "--wait", _TIMEOUT, *flags),
        )

    def release(self, command: str, *flags: str) -> str:
        """What a command for the release prints: uninstall, test, rollback."""
        return self.run(command, RELEASE, "--namespace", NAMESPACE, *flags)

    def status(self) -> str:
        """The status of the release, such as `deployed`; empty if there is none."""
        try:
            status: str = json.loads(self.release("status", "--output=json"))["info"]["status"]
        except HelmError:
            return ""
        return status

    def take_back(self) -> None:
        """Takes a refused uninstallation back, after which the release can be upgraded again."""
        history = json.loads(self.release("history", "--output=json"))
        revision = str(history[-1]["revision"])
        self.run("rollback", RELEASE, revision, "--namespace", NAMESPACE, "--wait", _TIMEOUT)

    def objects(self) -> list[dict[str, Any]]:
        """The objects of the release, by its own record."""
        return [
            body
            for body in yaml.safe_load_all(
                self.run("get", "manifest", RELEASE, "--namespace", NAMESPACE)
            )
            if body
        ]


def pack(helm: Path, node: Node, gpus: SimulatedNode, folder: Path) -> Chart:
    """Packs the chart into a folder, beside the values for a node with simulated GPUs."""
    code = write_simulation(folder)
    values = _values(code, gpus)
    files = {
        "values.yaml": values,
        "earlier-values.yaml": {"kubeletPlugin": values["kubeletPlugin"]},
    }
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content))
    own, earlier = (folder / name for name in files)
    chart = Chart(helm, node, folder / "carina-0.1.0.tgz", own, earlier, folder / "helm")
    chart.run("package", CHART, "--version=0.1.0", "--destination", folder)
    return chart


def _values(code: Path, gpus: SimulatedNode) -> Mapping[str, object]:
    environment = {
        "PYTHONPATH": _SIMULATION,
        "SIMULATED_NODE": str(gpus.directory),
        "CARINA_HOST_ROOT": str(gpus.root),
    }
    folders = {"simulation": code, "simulated-node": gpus.directory}
    simulated = {
        "extraEnv": [{"name": name, "value": value} for name, value in environment.items()],
        "extraVolumes": [
            {"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()
        ],
        "extraVolumeMounts": [
            {"name": "simulation", "mountPath": _SIMULATION, "readOnly": True},
            {"name": "simulated-node", "mountPath": str(gpus.directory)},
        ],
    }
    return {
        "kubeletPlugin": {
            "driverRoot": str(gpus.root),
            "settings": {"device_kinds": "gpu,mig,share,monitor"},
            **simulated,
        },
        "sharing": simulated,
    }

"""A simulated GPU node, and the real kubelet plugin's process on it."""

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from simulation.demo.console import DemoError
from simulation.demo.manifests import REPOSITORY
from simulation.nvml.node import SimulatedNode

DRIVER = "gpu.carina.dev"
_STOP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class PluginPaths:
    """Directories of the kubelet and the container runtime, and the plugin's log file."""

    kubelet_root: Path
    cdi_directory: Path
    log: Path

    @property
    def registry(self) -> Path:
        """The directory where the kubelet looks for plugins."""
        return self.kubelet_root / "plugins_registry"

    @property
    def plugin_directory(self) -> Path:
        """The directory of the plugin's socket and checkpoint."""
        return self.kubelet_root / "plugins" / DRIVER


@dataclass(slots=True)
class GpuNode:
    """A node with GPUs. The plugin runs between `start` and `stop`."""

    name: str
    gpus: SimulatedNode
    paths: PluginPaths
    _process: subprocess.Popen[bytes] | None = field(default=None)

    @classmethod
    def create(cls, directory: Path, name: str, profile: str) -> "GpuNode":
        """Creates a node, all of whose files are below a directory."""
        gpus = SimulatedNode.create(directory, profile, name=name)
        paths = PluginPaths(directory / "kubelet", gpus.root / "run/cdi", directory / "plugin.log")
        return cls(name, gpus, paths)

    def start(self, kubeconfig: Path) -> None:
        """Starts the real plugin on the simulated libnvidia-ml."""
        command = self.gpus.plugin_command(
            {
                "node-name": self.name,
                "kubelet-root": self.paths.kubelet_root,
                "cdi-directory": self.paths.cdi_directory,
                "kubeconfig": kubeconfig,
                "http-address": "off",
            }
        )
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("CARINA_")
        }
        with self.paths.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=inherited,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to the demo, which stops the plugin in order
            )

    def check_alive(self) -> None:
        """Raises DemoError with the last lines of the log if the plugin has exited."""
        if self._process is not None and self._process.poll() is not None:
            end = "\n".join(self.paths.log.read_text().splitlines()[-5:])
            raise DemoError(f"the plugin of {self.name} has exited:\n{end}")

    def stop(self) -> int | None:
        """Stops the plugin with SIGTERM, as the kubelet does.

        Gives its exit status; None if it was not running.
        """
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

"""A simulated GPU node, and the real kubelet plugin's process on it."""

from dataclasses import dataclass, field
from pathlib import Path

from simulation.demo.carina_process import CarinaProcess
from simulation.nvml.node import SimulatedNode

DRIVER = "gpu.carina.dev"


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
    _process: CarinaProcess | None = field(default=None)

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
                "device-kinds": "gpu,mig,share,monitor",
            }
        )
        self._process = CarinaProcess.start(f"the plugin of {self.name}", command, self.paths.log)

    def check_alive(self) -> None:
        """Raises DemoError with the last lines of the log if the plugin has exited."""
        if self._process is not None:
            self._process.check_alive()

    def stop(self) -> int | None:
        """Stops the plugin with SIGTERM, as the kubelet does.

        Gives its exit status; None if it was not running.
        """
        if self._process is None:
            return None
        process, self._process = self._process, None
        return process.stop()

"""A node's NVIDIA driver, simulated below the real `pynvml`.

`SimulatedNode` is a directory: its GPUs and their state in two JSON files, and a file tree that
looks like the host's (/dev, /proc, /sys, driver files). `install` puts a `SimulatedLibrary` for
that directory where pynvml keeps the loaded libnvidia-ml, so that pynvml and everything above it
runs as on a GPU node. Several processes may use one node; its state outlives them.
"""

from simulation.nvml.installation import install, installed, uninstall
from simulation.nvml.library import SimulatedLibrary
from simulation.nvml.node import DeviceNodes, SimulatedNode

__all__ = [
    "DeviceNodes",
    "SimulatedLibrary",
    "SimulatedNode",
    "install",
    "installed",
    "uninstall",
]

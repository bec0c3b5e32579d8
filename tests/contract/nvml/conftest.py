"""Drivers to run the contract on: every simulated product, and a real one where there is one."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.nvidia.rooted_path import RootedPath
from kubelet_plugin.host import HostPaths
from kubelet_plugin.nvml.reader import NvmlReader
from simulation.nvml import DeviceNodes, SimulatedNode, install, uninstall
from simulation.nvml.hardware import profile_names

NodeMaker: TypeAlias = Callable[..., SimulatedNode]


def reader_below(
    root: Path,
    libraries: Sequence[RootedPath] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> NvmlReader:
    """A reader with a library of its own."""
    host = HostPaths(root)
    return NvmlReader(host, NvmlLibrary(host.gpu_addresses, lambda: libraries), now=now)


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[NodeMaker]:
    """Builds a simulated node, and puts pynvml of this process on it."""

    def make(
        profile: str, *, name: str = "node-1", unplugged: tuple[int, ...] = ()
    ) -> SimulatedNode:
        node = SimulatedNode.create(
            tmp_path / name,
            profile,
            name=name,
            device_nodes=DeviceNodes.REGULAR,
            unplugged=unplugged,
        )
        install(node.directory)
        return node

    yield make
    uninstall()


@pytest.fixture(params=[*profile_names(), pytest.param("real", marks=pytest.mark.gpu)])
def host(request: pytest.FixtureRequest) -> HostPaths:
    """A host with a driver that pynvml finds; NVML is not yet initialised."""
    if request.param == "real":
        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            pytest.skip(f"no NVIDIA driver on this machine: {error}")
        return HostPaths()
    make: NodeMaker = request.getfixturevalue("make_node")
    return HostPaths(make(request.param).root)


@pytest.fixture
def nvml(host: HostPaths) -> Iterator[HostPaths]:
    """The same with NVML initialised."""
    pynvml.nvmlInit()
    yield host
    pynvml.nvmlShutdown()

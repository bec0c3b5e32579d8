"""The files by which a simulated node shows its GPUs."""

import os
import subprocess
from pathlib import Path

import pytest

from kubelet_plugin.host import CharacterDevice, HostPaths, Permissions
from kubelet_plugin.prepare.device_nodes import NvidiaNodes
from simulation.nvml import DeviceNodes, SimulatedNode
from simulation.nvml.device_files import links_seen_as_nodes
from tests.samples.gpus import gpu

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return SimulatedNode.create(tmp_path, "dgx-h100", device_nodes=DeviceNodes.REGULAR)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_loaded_driver_has_its_device_nodes(node: SimulatedNode) -> None:
    control = {"nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps"}
    assert names(node.root / "dev") == control | {f"nvidia{minor}" for minor in range(8)}


@needs_root
def test_device_nodes_have_the_numbers_of_the_module(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path, "dgx-h100")
    found = HostPaths(node.root).character_device("/dev/nvidia3")
    assert found == CharacterDevice(195, 3, Permissions())


def test_without_the_right_to_make_device_nodes_links_are_seen_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", refused)
    host = HostPaths(SimulatedNode.create(tmp_path, "dgx-h100").root)
    with links_seen_as_nodes():
        paths = (*NvidiaNodes(host).ensure_control(), *NvidiaNodes(host).ensure_gpu(gpu(3)))
    assert {host.path(path).readlink() for path in paths} == {Path("/dev/null")}


def test_a_gpu_that_is_unplugged_leaves_no_trace(node: SimulatedNode) -> None:
    node.unplug(3)
    assert not list(node.root.rglob("*0000:61:00.0*"))
    assert "nvidia3" not in names(node.root / "dev")
    node.plug(3)
    assert (node.root / "sys/bus/pci/devices/0000:61:00.0/numa_node").read_text() == "0\n"
    assert "nvidia3" in names(node.root / "dev")


def test_a_lost_gpu_is_still_shown(node: SimulatedNode) -> None:
    before = sorted(node.root.rglob("*"))
    node.lose_gpu(3)
    assert sorted(node.root.rglob("*")) == before


def test_without_the_module_there_is_nothing_of_it(node: SimulatedNode) -> None:
    node.driver(available=False)
    assert names(node.root / "dev") == {"nvidia-caps"}
    assert not (node.root / "proc/driver/nvidia").exists()
    assert "nvidia" not in (node.root / "proc/devices").read_text()
    assert (node.root / "usr/bin/nvidia-smi").exists()


def test_without_a_driver_its_files_are_gone_and_come_back(node: SimulatedNode) -> None:
    library = node.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert library.resolve().name == "libcuda.so.550.163.01"
    node.uninstall_driver()
    assert not library.is_symlink()
    node.driver(available=True)
    assert library.resolve().name == "libcuda.so.550.163.01"


def test_a_reboot_empties_what_is_in_memory(node: SimulatedNode) -> None:
    spec = node.root / "var/run/cdi/spec.json"
    spec.parent.mkdir()
    spec.write_text("{}")
    boot_id = (node.root / "proc/sys/kernel/random/boot_id").read_text()
    node.reboot()
    assert names(node.root / "run") == set()
    assert (node.root / "proc/sys/kernel/random/boot_id").read_text() != boot_id


def test_nvidia_smi_is_a_program(node: SimulatedNode) -> None:
    subprocess.run([node.root / "usr/bin/nvidia-smi", "-L"], check=True, timeout=30)


def test_a_directory_holds_one_node(node: SimulatedNode) -> None:
    with pytest.raises(FileExistsError, match="holds a simulated node already"):
        SimulatedNode.create(node.directory, "t4")


def test_an_unknown_profile_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no profile 'v100'; there are b200, dgx-a100"):
        SimulatedNode.create(tmp_path, "v100")

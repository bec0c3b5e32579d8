"""`carina doctor node` on simulated nodes."""

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from carina_dra.cli.diagnosis import Diagnosis, Grade, diagnoses
from kubelet_plugin.commands.node_checks import NodeFiles, checks_of
from kubelet_plugin.commands.runtime_configuration import configurations
from kubelet_plugin.host import HostPaths
from simulation.nvml import SimulatedNode
from tests.integration.plugin_host import Host, running_host

CDI = Path("/var/run/cdi")


@pytest.fixture
def host() -> Iterator[Host]:
    with running_host() as host:
        yield host


def node_files(gpus: SimulatedNode, folder: Path, *, patience: float = 60.0) -> NodeFiles:
    return NodeFiles(
        host=HostPaths(gpus.root),
        filesystem=HostPaths(gpus.root),
        kubelet_root=folder / "k",
        driver="gpu.carina.dev",
        cdi_directory=CDI,
        inventory=(
            *(sys.executable, "-m", "simulation.nvml", "--node", str(gpus.directory)),
            *("-m", "carina_dra", "inventory", "--output=json", f"--host-root={gpus.root}"),
        ),
        patience=patience,
    )


def found(files: NodeFiles, check: str) -> list[Diagnosis]:
    chosen = [known for known in checks_of(files) if known.name == check]
    return [finding for _, finding in diagnoses(chosen, 90.0)]


def grades(files: NodeFiles, check: str) -> list[Grade]:
    return [finding.grade for finding in found(files, check)]


def test_a_node_with_gpus_and_a_plugin_is_well(host: Host) -> None:
    host.start()
    files = node_files(host.gpus, host.folder)

    assert [finding.text for finding in found(files, "NVML")] == ["it finds 8 GPUs"]
    for check in ("plugin", "checkpoint"):
        assert set(grades(files, check)) == {Grade.OK}, check


def test_a_call_of_the_driver_that_hangs_is_told_as_such(host: Host) -> None:
    host.gpus.hang("nvmlDeviceGetCount_v2")

    (hanging,) = found(node_files(host.gpus, host.folder, patience=3.0), "NVML")

    assert hanging.grade is Grade.BAD
    assert hanging.text == "a call of NVML has not returned for 3 s"
    host.gpus.release("nvmlDeviceGetCount_v2")


def test_a_driver_that_is_not_loaded_is_told(host: Host) -> None:
    host.gpus.driver(available=False)

    (missing,) = found(node_files(host.gpus, host.folder), "NVML")

    assert missing.grade is Grade.BAD
    assert "not loaded" in missing.text


def test_a_plugin_that_does_not_run_is_told(host: Host) -> None:
    (missing,) = found(node_files(host.gpus, host.folder), "plugin")

    assert missing.grade is Grade.BAD


def test_a_damaged_checkpoint_is_told(host: Host) -> None:
    host.plugin.mkdir(parents=True)
    (host.plugin / "checkpoint.jsonl").write_text("{")

    (damaged,) = found(node_files(host.gpus, host.folder), "checkpoint")

    assert damaged.grade is Grade.WARN


@pytest.mark.parametrize(
    ("files", "grade"),
    [
        ({}, Grade.WARN),
        ({"containerd/config.toml": "version = 2\n"}, Grade.WARN),
        ({"containerd/config.toml": "version = 3\n"}, Grade.OK),
        (
            {
                "containerd/config.toml": "version = 2\n"
                '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'
            },
            Grade.OK,
        ),
        (
            {
                "containerd/config.toml": "version = 2\n"
                '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n'
            },
            Grade.BAD,
        ),
        (
            {
                "containerd/config.toml": "version = 3\n"
                "[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/etc/cdi']\n"
            },
            Grade.BAD,
        ),
        (
            {
                "containerd/config.toml": "version = 3\nimports = ['/etc/containerd/conf.d/*']\n",
                "containerd/conf.d/99-cdi.toml": "[plugins.'io.containerd.cri.v1.runtime']\n"
                "cdi_spec_dirs = ['/run/cdi']\n",
            },
            Grade.OK,
        ),
        ({"containerd/config.toml": "version = \n"}, Grade.WARN),
        ({"crio/crio.conf": ""}, Grade.OK),
        (
            {
                "crio/crio.conf": "",
                "crio/crio.conf.d/10-cdi.conf": "[crio.runtime]\ncdi_spec_dirs = ['/opt/cdi']\n",
            },
            Grade.BAD,
        ),
    ],
)
def test_the_runtime_has_to_read_the_folder_of_the_specs(
    tmp_path: Path, files: dict[str, str], grade: Grade
) -> None:
    for name, content in files.items():
        file = tmp_path / "etc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    gpus = SimulatedNode.create(tmp_path / "gpus", "t4", name="node-1")
    node = replace(node_files(gpus, tmp_path), filesystem=HostPaths(tmp_path))

    assert grades(node, "container runtime") == [grade]


def test_a_node_may_have_both_runtimes(tmp_path: Path) -> None:
    for name in ("containerd/config.toml", "crio/crio.conf"):
        file = tmp_path / "etc" / name
        file.parent.mkdir(parents=True)
        file.write_text("")

    assert [c.runtime for c in configurations(HostPaths(tmp_path))] == ["containerd", "CRI-O"]


# Ways in which a node is broken ------------------------------------------------------------------


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def _no_library(node: SimulatedNode, _: Path) -> None:
    for library in node.root.rglob("libnvidia-ml.so*"):
        library.unlink()


def _no_module(node: SimulatedNode, _: Path) -> None:
    (node.root / "proc/driver/nvidia/version").unlink()


def _no_gpu_node(node: SimulatedNode, _: Path) -> None:
    (node.root / "dev/nvidia3").unlink()


def _node_of_another_driver(node: SimulatedNode, _: Path) -> None:
    path = node.root / "dev/nvidia3"
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def _node_of_another_gpu(node: SimulatedNode, _: Path) -> None:
    path = node.root / "dev/nvidia3"
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, 4))


def _file_instead_of_a_node(node: SimulatedNode, _: Path) -> None:
    path = node.root / "dev/nvidia-uvm"
    path.unlink()
    path.touch()


def _kubelet_is_down(_: SimulatedNode, folder: Path) -> None:
    (folder / "k/pod-resources").mkdir(parents=True)


def _other_kubelet_root(_: SimulatedNode, __: Path) -> None:
    """Nothing is below the root that is looked at."""


def _abandoned_socket(_: SimulatedNode, folder: Path) -> None:
    plugin = folder / "k/plugins/gpu.carina.dev"
    plugin.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(plugin / "dra-0.sock"))


def _checkpoint_is_a_folder(_: SimulatedNode, folder: Path) -> None:
    (folder / "k/plugins/gpu.carina.dev/checkpoint.jsonl").mkdir(parents=True)


def _checkpoint_of_the_future(_: SimulatedNode, folder: Path) -> None:
    plugin = folder / "k/plugins/gpu.carina.dev"
    plugin.mkdir(parents=True)
    (plugin / "checkpoint.jsonl").write_text('{"version": 99}\n')


@pytest.mark.parametrize(
    ("break_it", "check", "grade", "text", "remedy"),
    [
        (_no_library, "driver", "bad", "none is installed", "host_driver_root"),
        (_no_module, "driver", "bad", "kernel module is not loaded", "modprobe nvidia"),
        (_no_gpu_node, "device nodes", "warn", "/dev/nvidia3", "nvidia-modprobe"),
        (_node_of_another_driver, "device nodes", "warn", "/dev/nvidia3", "nvidia-modprobe"),
        (_node_of_another_gpu, "device nodes", "warn", "/dev/nvidia3", "nvidia-modprobe"),
        (_file_instead_of_a_node, "device nodes", "warn", "/dev/nvidia-uvm", "nvidia-modprobe"),
        (_kubelet_is_down, "kubelet", "bad", "does not run", "systemctl status kubelet"),
        (_other_kubelet_root, "kubelet", "warn", "cannot be reached", "--kubelet-root"),
        (_other_kubelet_root, "plugin", "bad", "does not listen", "kubectl get pods"),
        (_abandoned_socket, "plugin", "warn", "does not respond", "restart the plugin's pod"),
        (_checkpoint_is_a_folder, "checkpoint", "bad", "cannot be read", "disk"),
        (_checkpoint_of_the_future, "checkpoint", "bad", "version", "run the version"),
    ],
)
def test_each_way_in_which_a_node_is_broken_says_what_to_do(
    short_folder: Path,
    break_it: Callable[[SimulatedNode, Path], None],
    check: str,
    grade: str,
    text: str,
    remedy: str,
) -> None:
    gpus = SimulatedNode.create(short_folder / "gpus", "hgx-h200-sxm", name="node-1")
    break_it(gpus, short_folder)

    first = found(node_files(gpus, short_folder), check)[0]

    assert first.grade.value == grade
    assert text in first.text
    assert remedy in first.remedy


def test_two_plugins_of_one_name_are_told(host: Host) -> None:
    host.start()
    own = next((host.kubelet / "plugins_registry").glob("*reg.sock"))
    other = own.with_name("gpu.carina.dev-other-reg.sock")
    other.hardlink_to(own)

    last = found(node_files(host.gpus, host.folder), "plugin")[-1]

    assert (last.grade, last.text[:35]) == (Grade.WARN, "2 plugins are registered as gpu.car")
    assert "driver_name" in last.remedy

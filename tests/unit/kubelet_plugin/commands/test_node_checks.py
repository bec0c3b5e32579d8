"""`carina doctor node` on simulated nodes."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from carina_dra.cli.diagnosis import Diagnosis, Grade, diagnoses
from kubelet_plugin.commands.node_checks import NodeFiles, checks
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
        kubelet_root=folder / "kubelet",
        driver="gpu.carina.dev",
        cdi_directory=CDI,
        inventory=(
            *(sys.executable, "-m", "simulation.nvml", "--node", str(gpus.directory)),
            *("-m", "carina_dra", "inventory", "--output=json", f"--host-root={gpus.root}"),
        ),
        patience=patience,
    )


def found(files: NodeFiles, check: str) -> list[Diagnosis]:
    chosen = [known for known in checks(files) if known.name == check]
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

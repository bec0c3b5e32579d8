"""`python -m gpu_proof`: its report, its exit status, and that it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpu_proof import own_cgroups
from gpu_proof.parts.listed import PARTS
from simulation.cuda import set_faults
from simulation.nvml import SimulatedNode, installed
from tests.eventually import eventually
from tests.integration.gpu_proof.conftest import module


@pytest.fixture
def temporary(folder: Path) -> Path:
    """Where the command has its folder."""
    path = folder / "t"
    path.mkdir()
    return path


def start(temporary: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gpu_proof",
            "--report",
            str(temporary.parent / "report"),
            *arguments,
        ],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def on(node: SimulatedNode, *arguments: str) -> list[str]:
    run_module = " ".join(module(node))
    roots = ("--host-root", str(node.root), "--driver-root", str(node.root))
    return [*roots, "--run-module", run_module, *arguments]


def report(folder: Path) -> Any:
    return json.loads((folder / "report/gpu-proof.json").read_text())


def left(process: "subprocess.Popen[str]", temporary: Path) -> list[str]:
    """What a run has left behind."""
    root = own_cgroups.mount()
    cgroups = [] if root is None else [*root.glob(f"carina-*{process.pid}*")]
    return [str(path) for path in (*cgroups, *temporary.iterdir())]


@pytest.fixture
def no_driver(folder: Path) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        yield ["--driver-root", empty, "--host-root", empty]


def test_without_a_driver_nothing_is_tried(
    no_driver: list[str], folder: Path, temporary: Path
) -> None:
    process = start(temporary, *no_driver)
    said, _ = process.communicate()
    assert process.returncode == 0
    assert [line.split(":")[0] for line in said.splitlines()] == [*PARTS]
    outcomes = [
        verdict["outcome"] for part in report(folder)["parts"] for verdict in part["verdicts"]
    ]
    assert {outcome["result"] for outcome in outcomes} == {"not tried"}
    assert all("no NVIDIA driver is installed" in outcome["reason"] for outcome in outcomes)
    assert left(process, temporary) == []


def test_the_report_says_what_was_proven_on_which_machine(
    node: SimulatedNode, folder: Path, temporary: Path
) -> None:
    process = start(temporary, *on(node, "--part", "kernel-limits"))
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert said == "kernel-limits: **proven**: 6 of 6 statements\n"
    machine = {fact["name"]: fact["value"] for fact in report(folder)["machine"]}
    assert machine["driver"] == node.state.driver_version
    assert node.state.gpus[0].uuid in machine["gpu"]
    text = (folder / "report/gpu-proof.md").read_text()
    assert "`kernel-together` | Two processes of the pod together get no more" in text
    assert left(process, temporary) == []


def test_it_fails_if_something_is_disproven(
    node: SimulatedNode, folder: Path, temporary: Path
) -> None:
    set_faults(node.directory, "cuMemCreate is not limited")
    process = start(temporary, *on(node, "--part", "kernel-limits"))
    said, _ = process.communicate()
    assert process.returncode == 1
    assert said.startswith("kernel-limits: **disproven**: 5120 MiB, with a limit of 4096 MiB")
    assert left(process, temporary) == []


def test_a_gpu_in_mig_mode_is_left_as_it_is(
    node: SimulatedNode, folder: Path, temporary: Path
) -> None:
    with_mig(node)
    process = start(temporary, *on(node))
    process.communicate()
    assert process.returncode == 0
    reasons = {
        verdict["outcome"]["reason"]
        for part in report(folder)["parts"]
        for verdict in part["verdicts"]
    }
    uuid = node.state.gpus[0].uuid
    assert reasons == {f"{uuid} is in MIG mode, which is left as it is"}
    assert node.state.gpus[0].mig_enabled


def with_mig(node: SimulatedNode) -> None:
    with installed(node.directory):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceSetMigMode(handle, 1)
        pynvml.nvmlShutdown()


def test_a_part_that_hangs_is_ended_and_fails(
    node: SimulatedNode, folder: Path, temporary: Path
) -> None:
    node.hang("nvmlDeviceGetComputeRunningProcesses_v3")
    process = start(temporary, *on(node, "--part", "nvml", "--seconds", "4"))
    said, _ = process.communicate()
    assert process.returncode == 3
    assert said == "nvml: broke off, it did not end within 4 s\n"
    [part] = report(folder)["parts"]
    by_name = {verdict["statement"]["name"]: verdict["outcome"] for verdict in part["verdicts"]}
    assert by_name["nvml-memory"]["result"] == "proven"
    assert by_name["nvml-lists-process"]["reason"].startswith("the part broke off")
    assert left(process, temporary) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_nothing_is_left(
    number: signal.Signals, node: SimulatedNode, temporary: Path
) -> None:
    node.hang("nvmlDeviceGetComputeRunningProcesses_v3")
    process = start(temporary, *on(node, "--part", "watchdog"))
    root = own_cgroups.mount()
    if root is None:
        pytest.skip("no cgroup v2 is mounted writable on this machine")
    pods = root / f"carina-gpu-proof-{process.pid}/kubepods"
    eventually(lambda: [pid for pod in pods.glob("pod*") for pid in own_cgroups.pids(pod)])
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number
    assert left(process, temporary) == []

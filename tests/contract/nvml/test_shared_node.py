"""A simulated node is one node for every process that uses it, and outlives them."""

import signal
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from simulation.nvml import DeviceNodes, SimulatedNode, install
from tests.contract.nvml.conftest import NodeMaker

REPOSITORY = Path(__file__).parents[3]


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation.nvml", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_another_process_sees_the_same_gpus(make_node: NodeMaker) -> None:
    node = make_node("dgx-h100")
    ran = python("--node", node.directory, "-m", "tests.contract.nvml.print_uuids")
    assert ran.stdout.split() == [gpu.uuid for gpu in node.state.gpus.values()]


def test_the_program_gets_its_arguments(make_node: NodeMaker) -> None:
    node = make_node("t4")
    node.lose_gpu(0)
    ran = python("--node", node.directory, "-m", "tests.contract.nvml.print_uuids", "--as", "seen")
    assert ran.stdout.splitlines()[0] == "lost --as seen"


def test_what_a_killed_process_has_done_stays_done(make_node: NodeMaker) -> None:
    node = make_node("dgx-h100")
    ran = python("--node", node.directory, "-m", "tests.contract.nvml.mig_and_die")
    assert ran.returncode == -signal.SIGKILL
    assert [instance.profile for instance in node.state.gpus[0].instances] == [0]
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19) == 6


def test_processes_that_change_a_node_at_once_lose_nothing(make_node: NodeMaker) -> None:
    node = make_node("t4")
    command = [sys.executable, "-m", "simulation.nvml", "xid", str(node.directory), "0"]
    processes = [
        subprocess.Popen([*command, str(number)], cwd=REPOSITORY) for number in range(1, 5)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0, 0]
    assert sorted(event.data for event in node.state.events) == [1, 2, 3, 4]
    assert [event.number for event in node.state.events] == [1, 2, 3, 4]


def test_a_node_is_made_and_changed_by_commands(tmp_path: Path) -> None:
    made = python("create", "--profile", "l40s", "--name", "lab", tmp_path / "lab")
    assert "server with four L40S" in made.stdout
    for command in (
        ("lose-gpu", 1),
        ("unplug", 2),
        ("fail", "nvmlDeviceGetName", "NVML_ERROR_UNKNOWN", "--times", 3),
        ("driver", "unload"),
    ):
        python(command[0], tmp_path / "lab", *command[1:])
    state = SimulatedNode(tmp_path / "lab").state
    assert [gpu.presence for gpu in state.gpus.values()] == [
        "attached",
        "lost",
        "unplugged",
        "attached",
    ]
    assert [(fault.symbol, fault.remaining) for fault in state.faults] == [("nvmlDeviceGetName", 3)]
    assert state.driver == "unloaded"


def test_a_wrong_command_says_what_is_wrong(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "n", "t4", device_nodes=DeviceNodes.REGULAR)
    refused = python("lose-gpu", node.directory, 9)
    assert refused.returncode == 1
    assert "no GPU with minor number 9" in refused.stderr
    refused = python("lose-gpu", tmp_path / "elsewhere", 0)
    assert "elsewhere" in refused.stderr


def test_a_new_library_forgets_the_last_one(make_node: NodeMaker) -> None:
    make_node("dgx-h100")
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 8
    install(make_node("t4", name="other").directory)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 4


def test_handles_end_with_their_session(make_node: NodeMaker) -> None:
    make_node("dgx-h100")
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetUUID(gpu)


def test_gpus_follow_from_the_name_of_the_node(make_node: NodeMaker) -> None:
    one, other = make_node("t4", name="one"), make_node("t4", name="other")
    uuids = {gpu.uuid for node in (one, other) for gpu in node.state.gpus.values()}
    serials = {gpu.serial for node in (one, other) for gpu in node.state.gpus.values()}
    assert len(uuids) == len(serials) == 8

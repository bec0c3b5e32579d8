"""What NVML says of simulated products, and what can be set on them."""

from typing import Any

import pynvml
import pytest

from tests.contract.nvml.conftest import NodeMaker


def gpu(index: int) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


@pytest.mark.parametrize(
    ("profile", "other", "ancestor"),
    [
        ("dgx-a100", 1, pynvml.NVML_TOPOLOGY_MULTIPLE),
        ("dgx-a100", 2, pynvml.NVML_TOPOLOGY_SYSTEM),
        ("dgx-h100", 1, pynvml.NVML_TOPOLOGY_NODE),
        ("t4", 1, pynvml.NVML_TOPOLOGY_HOSTBRIDGE),
        ("t4", 0, pynvml.NVML_TOPOLOGY_INTERNAL),
    ],
)
def test_the_common_ancestor_of_two_gpus_is_where_their_paths_part(
    make_node: NodeMaker, profile: str, other: int, ancestor: int
) -> None:
    make_node(profile)
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(other)) == ancestor


def test_the_nearest_gpus_are_those_of_that_ancestor(make_node: NodeMaker) -> None:
    make_node("dgx-a100")
    pynvml.nvmlInit()
    near = pynvml.nvmlDeviceGetTopologyNearestGpus(gpu(0), pynvml.NVML_TOPOLOGY_MULTIPLE)
    assert [pynvml.nvmlDeviceGetMinorNumber(handle) for handle in near] == [1]


def test_indexes_follow_addresses_and_minor_numbers_need_not(make_node: NodeMaker) -> None:
    make_node("mixed")
    pynvml.nvmlInit()
    assert [pynvml.nvmlDeviceGetMinorNumber(gpu(index)) for index in range(4)] == [3, 1, 0, 5]
    assert [pynvml.nvmlDeviceGetIndex(gpu(index)) for index in range(4)] == [0, 1, 2, 3]


def test_a_compute_mode_stays_set(make_node: NodeMaker) -> None:
    make_node("dgx-h100")
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetComputeMode(gpu(0), pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    modes = [pynvml.nvmlDeviceGetComputeMode(gpu(index)) for index in (0, 1)]
    assert modes == [pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, pynvml.NVML_COMPUTEMODE_DEFAULT]
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetComputeMode(gpu(0), 7)


def test_processes_that_use_a_gpu_are_listed(make_node: NodeMaker) -> None:
    node = make_node("dgx-h100")
    pynvml.nvmlInit()
    node.run_process(2, 4711)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu(2))
    assert [process.pid for process in listed] == [4711]
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu(1)) == []
    assert pynvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu(2)) == []


def test_a_serial_number_finds_its_gpu(make_node: NodeMaker) -> None:
    make_node("dgx-h100")
    pynvml.nvmlInit()
    found = pynvml.nvmlDeviceGetHandleBySerial(pynvml.nvmlDeviceGetSerial(gpu(4)))
    assert pynvml.nvmlDeviceGetUUID(found) == pynvml.nvmlDeviceGetUUID(gpu(4))


def test_reserved_memory_is_part_of_the_total(make_node: NodeMaker) -> None:
    make_node("dgx-h100")
    pynvml.nvmlInit()
    memory = pynvml.nvmlDeviceGetMemoryInfo(gpu(0), version=pynvml.nvmlMemory_v2)
    assert memory.total == 81559 * 2**20
    assert memory.total == memory.free + memory.used + memory.reserved

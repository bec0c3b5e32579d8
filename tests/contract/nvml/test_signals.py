"""What NVML says of a GPU's health, as the reader has it. On the simulation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.inventory import DriverReady, Inventory
from kubelet_plugin.inventory.signals import Fabric, Signals, Slowdown
from kubelet_plugin.nvml.links import fabric_health
from kubelet_plugin.nvml.reader import NvmlReader
from simulation.nvml import SimulatedNode, installed
from tests.fakes.nvml_calls import nvml_calls

OLD, R565, NEWEST = "550.163.01", "565.57.01", "590.48.01"
WELL = Signals(recovery_action=0, fabric=Fabric.HEALTHY)
LATER_S = 61.0
"""After which what is asked for seldom is asked for again."""


class Reader:
    """Reads a node; the time passes between its reads."""

    def __init__(self, node: SimulatedNode) -> None:
        host = HostPaths(node.root)
        self.now = 0.0
        self._reader = NvmlReader(host, NvmlLibrary(host.gpu_addresses), clock=lambda: self.now)
        self._inventory: Inventory | None = None

    def read(self, minor: int = 0) -> Signals:
        self.now += LATER_S
        self._inventory = self._reader.read(self._inventory)
        assert isinstance(self._inventory, DriverReady)
        by_minor = {observed.gpu.minor: observed for observed in self._inventory.gpus}
        return by_minor[minor].state.signals


def node_with(tmp_path: Path, driver: str) -> SimulatedNode:
    return SimulatedNode.create(tmp_path / driver, "dgx-h100", driver_version=driver)


@pytest.mark.parametrize("driver", [OLD, R565, NEWEST])
def test_a_gpu_that_is_well_says_nothing(tmp_path: Path, driver: str) -> None:
    node = node_with(tmp_path, driver)
    with installed(node.directory):
        action = None if driver == OLD else 0
        assert Reader(node).read() == Signals(recovery_action=action, fabric=Fabric.HEALTHY)


@pytest.mark.parametrize(
    ("said", "signals"),
    [
        ({"recovery_action": 4}, {"recovery_action": 4}),
        ({"rows_pending": True}, {"rows_pending": True}),
        ({"rows_failed": True}, {"rows_failed": True}),
        ({"repair_pending": True}, {"repair_pending": True}),
        ({"memory_unrepairable": True}, {"memory_unrepairable": True}),
        ({"sram_threshold_exceeded": True}, {"sram_threshold_exceeded": True}),
        (
            {"clocks_event_reasons": pynvml.nvmlClocksEventReasonHwThermalSlowdown},
            {"slowdowns": frozenset({Slowdown.HARDWARE_THERMAL})},
        ),
        ({"clocks_event_reasons": pynvml.nvmlClocksEventReasonGpuIdle}, {}),
        ({"fabric_state": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED}, {"fabric": Fabric.HEALTHY}),
        ({"fabric_state": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS}, {"fabric": Fabric.JOINING}),
        ({"fabric_state": pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED}, {"fabric": Fabric.JOINING}),
        ({"fabric_state": pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED}, {"fabric": Fabric.ABSENT}),
        (
            {
                "fabric_state": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED,
                "fabric_status": pynvml.NVML_ERROR_UNKNOWN,
            },
            {"fabric": Fabric.REFUSED},
        ),
    ],
    ids=str,
)
def test_what_a_driver_says_of_one_gpu_is_read_and_of_no_other(
    tmp_path: Path, said: dict[str, Any], signals: dict[str, Any]
) -> None:
    node = node_with(tmp_path, NEWEST)
    with installed(node.directory):
        reader = Reader(node)
        reader.read()
        node.set_health(0, **said)
        assert reader.read() == replace(WELL, **signals)
        assert reader.read(1) == WELL


@pytest.mark.parametrize(
    ("mask", "fabric"),
    [
        (0x0, Fabric.HEALTHY),
        (0b10_10_10_10, Fabric.HEALTHY),
        (0b01, Fabric.LIMITED),
        (0b01_00, Fabric.LIMITED),
        (0b01_00_00, Fabric.UNHEALTHY),
        (0b01_00_00_00, Fabric.LIMITED),
        (1 << 8, Fabric.HEALTHY),
        (2 << 8, Fabric.UNHEALTHY),
        (7 << 8, Fabric.UNHEALTHY),
        (2 << 8 | 1, Fabric.UNHEALTHY),
    ],
)
def test_the_health_mask_of_a_fabric(mask: int, fabric: Fabric) -> None:
    assert fabric_health(mask) is fabric


def test_while_there_are_instances_the_remapped_rows_are_as_they_were(tmp_path: Path) -> None:
    node = node_with(tmp_path, NEWEST)
    with installed(node.directory):
        reader = Reader(node)
        node.set_health(0, rows_failed=True)
        assert reader.read().rows_failed
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceSetMigMode(gpu, 1)
        pynvml.nvmlDeviceCreateGpuInstance(gpu, 19)
        node.set_health(0, rows_pending=True)

        assert reader.read() == replace(WELL, rows_failed=True)
        pynvml.nvmlShutdown()


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetGpuFabricInfoV",
    ],
)
@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_NO_PERMISSION,
    ],
)
def test_a_call_that_fails_costs_its_signal_and_no_gpu(
    tmp_path: Path, symbol: str, code: int
) -> None:
    node = node_with(tmp_path, NEWEST)
    node.fail(symbol, code, minor=0)
    with installed(node.directory):
        reader = Reader(node)
        assert replace(reader.read(), recovery_action=0, fabric=Fabric.HEALTHY) == WELL
        assert reader.read(1) == WELL


def test_an_action_that_cannot_be_read_is_as_it_was(tmp_path: Path) -> None:
    node = node_with(tmp_path, NEWEST)
    with installed(node.directory):
        reader = Reader(node)
        node.recovery_action(0, 1)
        reader.read()
        node.fail("nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_UNKNOWN, minor=0)
        assert reader.read().recovery_action == 1


def test_all_fields_are_read_with_one_call_a_gpu(tmp_path: Path) -> None:
    node = node_with(tmp_path, NEWEST)
    with nvml_calls(node.directory) as calls:
        reader = Reader(node)
        reader.read()
        calls.symbols.clear()
        reader.read()
    assert calls.symbols.count("nvmlDeviceGetFieldValues") == 8


def test_the_binding_is_another_after_a_boot_and_after_the_driver_was_bound_again(
    tmp_path: Path,
) -> None:
    node = node_with(tmp_path, NEWEST)
    host, address = HostPaths(node.root), node.hardware.slot(0).pci
    first = host.binding(address)
    assert host.binding(address) == first
    node.rebind(0)
    second = host.binding(address)
    node.reboot()
    assert len({first, second, host.binding(address)}) == 3

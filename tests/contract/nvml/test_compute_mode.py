"""Compute modes that an administrator sets: which devices are not allocated, and what is told."""

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.change import changes
from kubelet_plugin.inventory.inventory import Inventory
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.report.node import notice
from tests.contract.nvml.conftest import NodeMaker

DRIVER = "gpu.carina.dev"


class Plugin:
    """The plugin's looks at GPU 0 of a node, whose compute mode an administrator sets."""

    def __init__(self, make_node: NodeMaker) -> None:
        host = HostPaths(make_node("dgx-h100", unplugged=tuple(range(1, 8))).root)
        self._now = 0.0
        self._reader = NvmlReader(host, NvmlLibrary(host.gpu_addresses), clock=lambda: self._now)
        self._before: Inventory | None = None
        self.inventory = self._reader.read()

    def switch(self, mode: int) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceSetComputeMode(handle, mode)
        self._now += 60
        self._before, self.inventory = self.inventory, self._reader.read(self.inventory)

    def tainted(self) -> dict[str, set[str]]:
        """The kinds of the devices with a taint, by the taint."""
        found: dict[str, set[str]] = {}
        for device in devices(self.inventory):
            for taint in device.published(PublishSettings(DRIVER)).taints:
                found.setdefault(f"{taint.key}={taint.value}", set()).add(device.kind.value)
        return found

    def told(self) -> list[str]:
        return [notice(change).reason for change in changes(self._before, self.inventory)]


@pytest.fixture
def plugin(make_node: NodeMaker) -> Plugin:
    return Plugin(make_node)


def test_shares_of_an_exclusive_gpu_are_tainted(plugin: Plugin) -> None:
    plugin.switch(pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)

    assert plugin.tainted() == {f"{DRIVER}/compute-mode=exclusive-process": {"share"}}
    assert plugin.told() == ["ComputeModeRestricted"]


def test_all_devices_but_monitors_of_a_prohibited_gpu_are_tainted(plugin: Plugin) -> None:
    plugin.switch(pynvml.NVML_COMPUTEMODE_PROHIBITED)

    assert plugin.tainted() == {f"{DRIVER}/compute-mode=prohibited": {"gpu", "mig", "share"}}


def test_the_taint_goes_with_the_mode(plugin: Plugin) -> None:
    plugin.switch(pynvml.NVML_COMPUTEMODE_PROHIBITED)

    plugin.switch(pynvml.NVML_COMPUTEMODE_DEFAULT)

    assert plugin.tainted() == {}
    assert plugin.told() == ["ComputeModeDefault"]


def test_a_mode_that_was_set_before_the_start_is_told(plugin: Plugin) -> None:
    plugin.switch(pynvml.NVML_COMPUTEMODE_PROHIBITED)

    assert [notice(c).reason for c in changes(None, plugin.inventory)] == ["ComputeModeRestricted"]

"""Each class of fault on each kind of device, before, during and after a restart of the plugin.

The driver is the simulation, the GPUs are read as the plugin reads them, and what is remembered
goes through its file. An event during the restart is lost: what the driver still says is found.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Final, Literal, TypeAlias

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary, call
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health_file import HealthFile
from kubelet_plugin.inventory.inventory import Inventory
from kubelet_plugin.inventory.node_health import NodeHealth
from kubelet_plugin.nvml.reader import NvmlReader
from simulation.nvml import SimulatedNode, installed

OLD, NEW = "550.163.01", "590.48.01"
SETTINGS = PublishSettings("gpu.carina.dev")
BAD, WELL = 2, 5
Layout: TypeAlias = Literal["whole", "1 instance", "7 instances"]
When: TypeAlias = Literal["before", "during", "after"]
LAYOUTS: Final[tuple[Layout, ...]] = ("whole", "1 instance", "7 instances")
WHENS: Final[tuple[When, ...]] = ("before", "during", "after")


@dataclass(frozen=True)
class Case:
    """A fault, and the taint that it is expected to be."""

    xid: int | None
    action: int
    driver: str
    taint: str
    """State, reason and effect; empty for none."""
    lost: str
    """The same if the event is lost."""


CASES: Final = (
    Case(31, 0, OLD, "", ""),
    Case(31, 0, NEW, "", ""),
    Case(43, 0, OLD, "", ""),
    Case(63, 0, OLD, "", ""),
    Case(94, 0, OLD, "", ""),
    Case(78, 0, OLD, "degraded=xid-78:None", ""),
    Case(54, 0, OLD, "drain=xid-54:NoSchedule", ""),
    Case(48, 0, OLD, "needs-reset=xid-48:NoExecute", ""),
    Case(95, 0, OLD, "needs-reset=xid-95:NoExecute", ""),
    Case(95, 0, NEW, "", ""),
    Case(109, 0, OLD, "needs-reset=xid-109:NoExecute", ""),
    Case(79, 0, OLD, "needs-reboot=xid-79:NoSchedule", ""),
    Case(79, 0, NEW, "needs-reboot=xid-79:NoSchedule", ""),
    Case(185, 0, OLD, "drain=xid-185:NoSchedule", ""),
    *(
        Case(xid, action, NEW, taint, taint)
        for xid, action, taint in (
            (95, 1, "needs-reset=recovery-action-1:NoExecute"),
            (94, 4, "drain=recovery-action-4:NoSchedule"),
            (None, 3, "drain=recovery-action-3:NoSchedule"),
            (None, 5, "degraded=recovery-action-5:None"),
            (146, 1, "needs-reset=recovery-action-1:NoExecute"),
            (None, 6, "needs-reset=recovery-action-6:NoExecute"),
            (None, 9, "needs-reset=recovery-action-9:NoExecute"),
        )
    ),
)
CELLS: Final = tuple(product(CASES, LAYOUTS, WHENS))


class Plugin:
    """The half of the plugin that judges the GPUs, which may be restarted."""

    def __init__(self, node: SimulatedNode, folder: Path) -> None:
        self._node, self._folder = node, folder
        self.now = datetime(2026, 11, 20, tzinfo=UTC)
        self._host = HostPaths(node.root)
        self.library = NvmlLibrary(self._host.gpu_addresses)
        self.start()

    def start(self) -> None:
        file = HealthFile(self._folder)
        self._inventory: Inventory | None = None
        self._reader = NvmlReader(self._host, self.library)
        self._health = NodeHealth(now=lambda: self.now, known=file.load(), store=file)

    def xid(self, number: int) -> None:
        self._health.xid(self._node.state.gpus[BAD].uuid, number, None)

    def taints(self) -> dict[int, dict[DeviceKind, set[str]]]:
        """Reads the GPUs; returns the taints by GPU and kind of device."""
        self.now += timedelta(seconds=5)
        self._inventory = self._health.judged(self._reader.read(self._inventory))
        found: dict[int, dict[DeviceKind, set[str]]] = {}
        for device in devices(self._inventory):
            words = {
                f"{taint.key.partition('/')[2]}={taint.value}:{taint.effect}"
                for taint in device.published(SETTINGS).taints
            }
            of_kind = found.setdefault(device.gpu.minor, {}).setdefault(device.kind, words)
            assert of_kind == words
        return found


@contextmanager
def plugin_on(folder: Path, driver: str, layout: Layout) -> Iterator[tuple[SimulatedNode, Plugin]]:
    node = SimulatedNode.create(folder / "node", "dgx-h100", driver_version=driver)
    with installed(node.directory):
        plugin = Plugin(node, folder)
        with plugin.library.lease():
            gpu = call(pynvml.nvmlDeviceGetHandleByIndex, BAD)
            if layout != "whole":
                call(pynvml.nvmlDeviceSetMigMode, gpu, 1)
            for _ in range({"whole": 0, "1 instance": 1, "7 instances": 7}[layout]):
                instance = call(pynvml.nvmlDeviceCreateGpuInstance, gpu, 19)
                call(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, 0)
        yield node, plugin


@pytest.mark.parametrize(
    ("case", "layout", "when"),
    CELLS,
    ids=[
        f"XID {case.xid}, action {case.action}, r{case.driver[:3]}, {layout}, {when}"
        for case, layout, when in CELLS
    ],
)
def test_the_taints_of_a_fault(tmp_path: Path, case: Case, layout: Layout, when: When) -> None:
    with plugin_on(tmp_path, case.driver, layout) as (node, plugin):
        assert not any(any(kinds.values()) for kinds in plugin.taints().values())
        if when == "during":
            node.set_health(BAD, recovery_action=case.action)
            plugin.start()
        elif when == "after":
            plugin.start()
            plugin.taints()
        if when != "during":
            node.set_health(BAD, recovery_action=case.action)
            if case.xid is not None:
                plugin.xid(case.xid)
        found = plugin.taints()
        if when == "before":
            plugin.start()
            assert plugin.taints() == found

    taint = case.lost if when == "during" else case.taint
    expected = {taint} if taint else set()
    kinds = {DeviceKind.MIG} if layout != "whole" else set(found[WELL]) - {DeviceKind.MONITOR}
    for kind, words in found[BAD].items():
        assert words == (set() if kind is DeviceKind.MONITOR else expected), kind
    assert set(found[BAD]) - {DeviceKind.MONITOR} == kinds
    assert not any(found[WELL].values())


def test_the_matrix_has_all_its_cells() -> None:
    print(f"cells: {len(CELLS)}")
    assert len(CELLS) == len(set(CELLS)) == 189

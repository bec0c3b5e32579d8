"""From the GPUs of a simulated node to slices, Events and metrics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from carina_dra.kube.api_resource import EVENTS, NODES
from carina_dra.kube.client import Client
from carina_dra.kube.event import ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.damping import Damping
from kubelet_plugin.inventory.inventory import Inventory
from kubelet_plugin.inventory.node_health import NodeHealth
from kubelet_plugin.inventory.poller import InventoryPoller
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.publish.ordering import Ordering
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch
from kubelet_plugin.publish.publisher import Publisher
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.node import NodeReport
from simulation.api_server.server import ApiServer
from simulation.nvml import SimulatedNode, installed
from tests.eventually import eventually
from tests.integration.published_slices import DRIVER, NodeInApi

NODE = "node-1"
ALL = {"gpu-0", "gpu-1", "gpu-3", "gpu-5"}
SECONDS = 5.0
"""Time within which devices appear and disappear; the poller reads ten times a second here."""


@dataclass(frozen=True)
class Machine:
    """A node with GPUs, and what its plugin publishes."""

    hardware: SimulatedNode
    in_api: NodeInApi
    metrics: PluginMetrics

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.in_api.admin.list(EVENTS).items
        assert all(event["regarding"]["name"] == NODE for event in found)
        return sorted(found, key=lambda event: str(event["eventTime"]))

    def await_event(self, reason: str) -> str:
        """Gives the note of an Event once the Event exists."""
        return eventually(
            lambda: [str(event["note"]) for event in self.events() if event["reason"] == reason],
            within=SECONDS,
        )[0]

    def has_published(self, *gpus: str) -> bool:
        """Whether these GPUs are published, to be used, shared and monitored."""
        return set(self.in_api.devices()) == {
            gpu + kind for gpu in gpus for kind in ("", "-share", "-monitor")
        }

    def tainted(self) -> set[str]:
        """The GPUs whose devices to be used have a NoSchedule taint as unreadable."""
        unreadable = {"key": f"{DRIVER}/unreadable", "effect": "NoSchedule"}
        return {
            name
            for name, device in self.in_api.devices().items()
            if any(unreadable.items() <= taint.items() for taint in device.get("taints", ()))
            if "-" not in name.removeprefix("gpu-")
        }

    def await_devices(self, *gpus: str) -> None:
        eventually(lambda: self.has_published(*gpus), within=SECONDS)


@pytest.fixture
def hardware(tmp_path: Path) -> SimulatedNode:
    return SimulatedNode.create(tmp_path / "node", "mixed", name=NODE)


@pytest.fixture
def start(hardware: SimulatedNode) -> Iterator[Callable[[], Machine]]:
    """Starts the publishing half of the plugin, wired as in main.py."""
    stops: list[Callable[[], object]] = []
    metrics = PluginMetrics()
    with (
        ApiServer() as server,
        Client(server.connection) as admin,
        Client(server.connection) as client,
        EventRecorder(client, ReportingController(DRIVER, NODE)) as events,
        installed(hardware.directory),
    ):
        admin.create(NODES, {"metadata": {"name": NODE}})

        def begin() -> Machine:
            host = HostPaths(hardware.root)
            report = NodeReport(events=events, node=NODE, metrics=metrics)
            publisher = Publisher(
                client,
                settings=PublishSettings(DRIVER),
                node=NODE,
                reporter=report,
                clock=monotonic,
                other_drivers=OtherDriverWatch(
                    read_node=lambda: client.get(NODES, NODE),
                    same_name_plugin=lambda: None,
                    pod_devices=tuple,
                    clock=monotonic,
                ),
                beside_other_drivers="withhold",
                ordering=Ordering(DeviceOrder.NONE, seconds=10),
            )

            def publish(inventory: Inventory) -> None:
                publisher.publish(devices(inventory))

            poller = InventoryPoller(
                NvmlReader(host, NvmlLibrary(host.gpu_addresses)).read,
                changed=publish,
                reporter=report,
                clock=monotonic,
                interval=0.1,
                patience=0.5,
                judged=NodeHealth(now=lambda: datetime.now(UTC), damping=Damping(first=0.3)).judged,
            )
            publisher.start()
            poller.start()
            stops.extend((poller.stop, publisher.stop))
            return Machine(hardware, NodeInApi(NODE, admin, client), metrics)

        try:
            yield begin
        finally:
            hardware.heal()
            for stop in stops:
                stop()


def test_gpus_are_published_without_an_event(start: Callable[[], Machine]) -> None:
    machine = start()

    machine.await_devices(*ALL)
    assert machine.events() == []
    assert b'carina_devices{state="ready",type="gpu"} 4.0' in machine.metrics.exposition()


def test_a_driver_that_is_loaded_late_is_found(
    hardware: SimulatedNode, start: Callable[[], Machine]
) -> None:
    hardware.driver(available=False)
    machine = start()
    note = machine.await_event("GPUDriverMissing")
    assert "kernel module is not loaded" in note
    assert machine.in_api.slices() == []

    hardware.driver(available=True)

    machine.await_devices(*ALL)
    assert machine.await_event("GPUDriverReady") == "The NVIDIA driver is ready; GPUs: 4"


def test_a_gpu_that_falls_off_the_bus_is_tainted_and_comes_back(
    hardware: SimulatedNode, start: Callable[[], Machine]
) -> None:
    machine = start()
    machine.await_devices(*ALL)

    hardware.lose_gpu(3)

    note = machine.await_event("GPULost")
    assert "GPU 3" in note
    assert "NVML_ERROR_GPU_IS_LOST" in note
    eventually(lambda: machine.in_api.devices().get("gpu-3", {}).get("taints"), within=SECONDS)
    machine.await_devices(*ALL)
    assert b'carina_devices{state="lost",type="gpu"} 1.0' in machine.metrics.exposition()

    hardware.reset_gpu(3)

    machine.await_event("GPURecovered")
    eventually(
        lambda: "taints" not in machine.in_api.devices().get("gpu-3", {"taints": []}),
        within=SECONDS,
    )


def test_a_gpu_that_is_unplugged_disappears_and_one_plugged_in_appears(
    hardware: SimulatedNode, start: Callable[[], Machine]
) -> None:
    machine = start()
    machine.await_devices(*ALL)

    hardware.unplug(5)
    machine.await_devices("gpu-0", "gpu-1", "gpu-3")
    assert "GPU 5" in machine.await_event("GPUVanished")

    hardware.plug(5, replacement="another card")
    machine.await_devices(*ALL)
    assert "GPU 5" in machine.await_event("GPUAppeared")


def test_a_lost_gpu_that_is_unplugged_disappears(
    hardware: SimulatedNode, start: Callable[[], Machine]
) -> None:
    machine = start()
    machine.await_devices(*ALL)

    hardware.lose_gpu(0)
    machine.await_event("GPULost")
    hardware.unplug(0)

    machine.await_devices("gpu-1", "gpu-3", "gpu-5")


def test_a_driver_call_that_hangs_is_reported_and_taints_what_cannot_be_read(
    hardware: SimulatedNode, start: Callable[[], Machine]
) -> None:
    machine = start()
    machine.await_devices(*ALL)

    hardware.hang("nvmlDeviceGetMinorNumber")

    machine.await_event("GPUDriverHangs")
    eventually(lambda: machine.tainted() == {"gpu-0", "gpu-1", "gpu-3", "gpu-5"}, within=SECONDS)
    assert "a call to the NVIDIA driver has not returned" in machine.await_event("GPUUnreadable")
    assert machine.has_published(*ALL)
    assert b"carina_inventory_read_stalls_total 1.0" in machine.metrics.exposition()

    hardware.release("nvmlDeviceGetMinorNumber")

    machine.await_event("GPUDriverResumed")
    eventually(lambda: machine.tainted() == set(), within=SECONDS)


def test_without_its_driver_a_node_has_no_devices(
    hardware: SimulatedNode, start: Callable[[], Machine]
) -> None:
    machine = start()
    machine.await_devices(*ALL)

    hardware.driver(available=False)

    machine.await_event("GPUDriverMissing")
    eventually(lambda: machine.in_api.slices() == [])

"""A GPU that answers now and then: what it costs the API server, and the time of its taint."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

import pynvml
import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.client import Client
from carina_dra.kube.event import ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.damping import Damping, Troubles, damped
from kubelet_plugin.inventory.health import FOUND_BY_DRIVER, DriverVerdict, GpuProblem
from kubelet_plugin.inventory.inventory import DriverReady, Inventory
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.publish.ordering import Ordering
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch
from kubelet_plugin.publish.publisher import Publisher
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.node import NodeReport
from simulation.api_server.server import ApiServer
from simulation.nvml import SimulatedNode, installed
from tests.integration.published_slices import DRIVER, NodeInApi
from tests.samples.gpus import NOTICED

NODE = "node-1"
FLAKY = 3
LOOK_S = 5.0


class Plugin:
    """The publishing half of a plugin whose GPUs are looked at when a test says so."""

    def __init__(
        self,
        hardware: SimulatedNode,
        publisher: Publisher,
        in_api: NodeInApi,
        report: NodeReport,
        clock: list[float],
    ) -> None:
        self.hardware, self.publisher, self.in_api = hardware, publisher, in_api
        host = HostPaths(hardware.root)
        self._reader = NvmlReader(host, NvmlLibrary(host.gpu_addresses))
        self._inventory: Inventory | None = None
        self._well: DriverReady | None = None
        self._troubles: Troubles = {}
        self._clock = clock

    @property
    def now(self) -> float:
        return self._clock[0]

    def look(self, *, answers: bool) -> None:
        """Looks at the GPUs, of which one may not answer, and publishes what is seen."""
        self.hardware.heal()
        if not answers:
            self.hardware.fail("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_TIMEOUT, minor=FLAKY)
        self._see(self._reader.read(self._inventory))

    def see(self, problems: Mapping[int, GpuProblem]) -> None:
        """Publishes a look at which GPUs have these problems, by minor number."""
        if self._well is None:
            read = self._reader.read(None)
            assert isinstance(read, DriverReady)
            self._well = read
        gpus = tuple(
            replace(
                seen,
                state=replace(
                    seen.state,
                    problems=frozenset(
                        problem for minor, problem in problems.items() if minor == seen.gpu.minor
                    ),
                ),
            )
            for seen in self._well.gpus
        )
        self._see(replace(self._well, gpus=gpus))

    def _see(self, read: Inventory) -> None:
        self._clock[0] += LOOK_S
        self._inventory, self._troubles = damped(read, self._troubles, self.now, Damping())
        self.publisher.publish(devices(self._inventory))
        assert self.publisher.wait_published(10)

    def writes(self, look: Callable[[], None]) -> int:
        """Returns how many slices a look has written."""
        before = self.versions()
        look()
        return sum(before.get(name) != version for name, version in self.versions().items())

    def versions(self) -> dict[str, str]:
        """The versions of the slices."""
        return {
            body["metadata"]["name"]: body["metadata"]["resourceVersion"]
            for body in self.in_api.slices()
        }

    def taints(self) -> set[tuple[str, str]]:
        """The taints of the GPU as a whole, with their times."""
        device = self.in_api.devices()[f"gpu-{FLAKY}"]
        return {(taint["key"], taint["timeAdded"]) for taint in device.get("taints", ())}

    def date_taints(self) -> None:
        """Gives each new taint a time of its own, as the API server does when it stores it."""
        for body in self.in_api.slices():
            for device in body["spec"].get("devices") or ():
                for taint in device.get("taints", ()):
                    taint.setdefault("timeAdded", f"2026-11-20T12:00:{self.now:02.0f}Z")
            self.in_api.admin.replace(RESOURCE_SLICES, body)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Plugin]:
    hardware = SimulatedNode.create(tmp_path / "node", "dgx-h100", name=NODE)
    with (
        ApiServer() as server,
        Client(server.connection) as admin,
        Client(server.connection) as client,
        EventRecorder(client, ReportingController(DRIVER, NODE)) as events,
        installed(hardware.directory),
    ):
        admin.create(NODES, {"metadata": {"name": NODE}})
        clock = [0.0]
        report = NodeReport(events=events, node=NODE, metrics=PluginMetrics())
        publisher = Publisher(
            client,
            settings=PublishSettings(DRIVER),
            node=NODE,
            reporter=report,
            clock=lambda: clock[0],
            other_drivers=OtherDriverWatch(
                read_node=lambda: client.get(NODES, NODE),
                same_name_plugin=lambda: None,
                pod_devices=tuple,
                clock=monotonic,
            ),
            beside_other_drivers="withhold",
            ordering=Ordering(DeviceOrder.NONE, seconds=10),
        )
        publisher.start()
        try:
            yield Plugin(hardware, publisher, NodeInApi(NODE, admin, client), report, clock)
        finally:
            publisher.stop()


def most_in_a_minute(writes: Sequence[int]) -> int:
    looks = int(60 / LOOK_S)
    return max(sum(writes[start : start + looks]) for start in range(len(writes)))


@pytest.mark.parametrize("period", [2, 5, 14], ids="every {} looks".format)
def test_it_costs_four_writes_a_minute_at_most(plugin: Plugin, period: int) -> None:
    plugin.look(answers=True)
    writes = [plugin.writes(partial(plugin.look, answers=n % period != 0)) for n in range(12 * 6)]
    print(f"writes in the busiest minute: {most_in_a_minute(writes)}, in all: {sum(writes)}")
    assert 0 < most_in_a_minute(writes) <= 4


STATES = [kind(DriverVerdict("test", "is odd"), NOTICED) for kind in FOUND_BY_DRIVER]


def test_gpus_that_take_turns_with_several_states_cost_no_more(plugin: Plugin) -> None:
    """A first fault is published at once, whatever it costs."""
    plugin.see({})
    writes = []
    for look in range(12 * 7):
        state = STATES[look // 16 % len(STATES)]
        bad = {} if look % 2 else {look // 2 % 8: state}
        writes.append(plugin.writes(partial(plugin.see, bad)))
    first, later = writes[: 12 * 3], writes[12 * 3 :]
    print(f"writes in the busiest minute: {most_in_a_minute(first)}, {most_in_a_minute(later)}")
    assert 0 < most_in_a_minute(later) <= 4


def test_its_taint_has_the_time_of_the_first_fault(plugin: Plugin) -> None:
    plugin.look(answers=True)
    assert plugin.taints() == set()

    plugin.look(answers=False)
    plugin.date_taints()
    (first,) = plugin.taints()
    for look in range(12):
        plugin.look(answers=look % 2 == 0)

    plugin.date_taints()
    assert plugin.taints() == {first}
    for _ in range(13):
        plugin.look(answers=True)
    assert plugin.taints() == set()

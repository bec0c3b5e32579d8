"""What is published while feature gates are off.

On a real API server with the gates off, and on the embedded API with a client that drops what such
an API server drops.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from carina_dra.cli.diagnosis import Grade
from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import TIMEOUT, Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.commands.installation import Installation
from controller.commands.slice_checks import feature_gates
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish import publisher as publisher_module
from kubelet_plugin.publish.feature_gate import FeatureGate
from simulation.api_server.server import ApiServer
from simulation.kubernetes.cluster import Cluster, running_cluster
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, DRIVER, NodeInApi, Report
from tests.real_kubernetes import require_real_kubernetes
from tests.samples.gpus import LOST, MIG, monitor, observed, share, whole

GATES_OFF = {
    "DRAConsumableCapacity": False,
    "DRAPartitionableDevices": False,
    "DRADeviceTaintRules": False,  # needs the next
    "DRADeviceTaints": False,
}
_numbers = count()


class GatelessClient(Client):
    """Drops what an API server without the gates drops."""

    def create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        return super().create(resource, _dropping(body), timeout=timeout)

    def replace(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        return super().replace(resource, _dropping(body), timeout=timeout)


class SwitchableClient(GatelessClient):
    """Drops it only while the gates are off."""

    gates_on = False

    def create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        create = Client.create if self.gates_on else GatelessClient.create
        return create(self, resource, body, timeout=timeout)

    def replace(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        replace = Client.replace if self.gates_on else GatelessClient.replace
        return replace(self, resource, body, timeout=timeout)


class WatchedClient(GatelessClient):
    """Drops it, and calls `after` after each write."""

    after: Callable[[], None]

    def create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        created = super().create(resource, body, timeout=timeout)
        self.after()
        return created

    def replace(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        replaced = super().replace(resource, body, timeout=timeout)
        self.after()
        return replaced


def _dropping(body: Body) -> Body:
    if body.get("kind") != "ResourceSlice":
        return body
    spec: dict[str, Any] = {**body["spec"]}
    spec.pop("sharedCounters", None)
    spec.pop("partitionTypeAttribute", None)
    if "devices" in spec:
        spec["devices"] = [_device(device) for device in spec["devices"]]
    return {**body, "spec": spec}


def _device(body: Body) -> Body:
    device = {name: value for name, value in body.items() if name not in _GATED}
    if "capacity" in device:
        device["capacity"] = {
            name: {"value": capacity["value"]} for name, capacity in device["capacity"].items()
        }
    return device


_GATED = frozenset(
    {"taints", "consumesCounters", "allowMultipleAllocations", "nodeAllocatableResources"}
)


@pytest.fixture(scope="module")
def gateless_cluster() -> Iterator[Cluster]:
    """A cluster whose feature gates are off."""
    require_real_kubernetes()
    with running_cluster(feature_gates=GATES_OFF) as cluster:
        yield cluster


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)]
)
def clients(request: pytest.FixtureRequest) -> Iterator[tuple[Client, Client]]:
    """An administrator and a plugin."""
    if request.param == "embedded":
        with (
            ApiServer() as server,
            Client(server.connection) as admin,
            GatelessClient(server.connection) as plugin,
        ):
            yield admin, plugin
    else:
        cluster: Cluster = request.getfixturevalue("gateless_cluster")
        connection = from_kubeconfig(cluster.kubeconfig)
        with Client(connection) as admin, Client(connection) as plugin:
            yield admin, plugin


@pytest.fixture
def node(clients: tuple[Client, Client]) -> NodeInApi:
    name = f"gates-{next(_numbers)}"
    clients[0].create(NODES, {"metadata": {"name": name}})
    return NodeInApi(name, *clients)


def test_gpus_are_published_without_counters_and_the_gate_is_reported_once(node: NodeInApi) -> None:
    report = Report()
    devices = [whole(0, mig=MIG), whole(1)]
    with node.publisher(report) as publisher:
        publisher.publish(devices)
        assert publisher.wait_published(DEADLINE)
        before = node.versions()
        for _ in range(3):
            publisher.republish()
        publisher.publish(devices)
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-0", "gpu-1"}
    assert not any("consumesCounters" in device for device in node.devices().values())
    assert node.versions() == before
    assert report.written == ["create", "update", "create"]
    assert report.gates_off == [FeatureGate.PARTITIONABLE_DEVICES]


def test_a_gpu_that_cannot_be_tainted_is_left_out(node: NodeInApi) -> None:
    report = Report()
    healthy, lost = whole(0), whole(1, LOST)
    with node.publisher(report) as publisher:
        publisher.publish([healthy, whole(1), share(2)])
        assert publisher.wait_published(DEADLINE)
        publisher.publish([healthy, lost, share(2)])
        assert publisher.wait_published(DEADLINE)
        before = node.versions()
        publisher.republish()
        publisher.publish([healthy, lost, share(2)])
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-0"}
    assert node.versions() == before
    needed = {
        FeatureGate.CONSUMABLE_CAPACITY,
        FeatureGate.DEVICE_TAINTS,
        FeatureGate.PARTITIONABLE_DEVICES,
    }
    assert set(report.gates_off) == needed
    assert len(report.gates_off) == len(needed)


def test_shares_are_not_published_since_the_scheduler_would_take_them_for_whole_gpus(
    node: NodeInApi,
) -> None:
    report = Report()
    devices: list[GpuDevice] = [
        whole(0),
        share(0),
        share(1),
        *(monitor(minor) for minor in (0, 1)),
    ]
    with node.publisher(report) as publisher:
        publisher.publish(devices)
        assert publisher.wait_published(DEADLINE)
        before = node.versions()
        publisher.republish()
        publisher.publish(devices)
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-0", "gpu-0-monitor", "gpu-1-monitor"}
    assert not any("allowMultipleAllocations" in device for device in node.devices().values())
    assert node.versions() == before
    assert report.gates_off.count(FeatureGate.CONSUMABLE_CAPACITY) == 1


def test_without_any_gate_the_fields_of_alpha_gates_are_left_out_too(node: NodeInApi) -> None:
    report = Report()
    settings = PublishSettings(DRIVER, host_memory_mib=512, partition_types=True)
    with node.publisher(report, settings=settings) as publisher:
        publisher.publish([whole(0), share(0), monitor(0)])
        assert publisher.wait_published(DEADLINE)
        before = node.versions()
        publisher.republish()
        publisher.publish([whole(0), share(0), monitor(0)])
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-0", "gpu-0-monitor"}
    assert not any("nodeAllocatableResources" in device for device in node.devices().values())
    assert not any("partitionTypeAttribute" in body["spec"] for body in node.slices())
    assert node.versions() == before
    assert len(report.gates_off) == len(set(report.gates_off))


def test_at_no_time_are_two_devices_of_a_gpu_published_without_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher_module, "_GATE_RETRY", 0.2)
    seen: list[set[str]] = []
    report = Report()
    of_one_gpu = devices(DriverReady((observed(0, mig=MIG),)))
    with ApiServer() as server, Client(server.connection) as admin:
        admin.create(NODES, {"metadata": {"name": "gates"}})
        with WatchedClient(server.connection) as plugin:
            node = NodeInApi("gates", admin, plugin)
            plugin.after = lambda: seen.append(set(node.devices()) - {"gpu-0-monitor"})
            with node.publisher(report) as publisher:
                publisher.publish(of_one_gpu)
                assert publisher.wait_published(DEADLINE)
                written = len(seen)

                def tried_again() -> bool:
                    publisher.republish()
                    return len(seen) >= 2 * written

                eventually(tried_again)

    assert {frozenset(names) for names in seen} == {frozenset(), frozenset({"gpu-0"})}


def test_slices_that_the_kubelet_deletes_are_created_again(node: NodeInApi) -> None:
    report = Report()
    with node.publisher(report) as publisher:
        publisher.publish([whole(0)])
        assert publisher.wait_published(DEADLINE)
        node.admin.delete_collection(RESOURCE_SLICES, node.selection)
        eventually(lambda: set(node.devices()) == {"gpu-0"}, within=2)
        eventually(lambda: len(report.published) == 2)

    assert len(report.written) == 5


def test_a_gate_that_is_switched_on_is_used_and_reported_if_it_is_off_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher_module, "_GATE_RETRY", 0.2)
    report = Report()
    with ApiServer() as server, Client(server.connection) as admin:
        admin.create(NODES, {"metadata": {"name": "gates"}})
        with SwitchableClient(server.connection) as plugin:
            node = NodeInApi("gates", admin, plugin)
            with node.publisher(report) as publisher:
                publisher.publish([whole(0)])
                eventually(lambda: report.gates_off == [FeatureGate.PARTITIONABLE_DEVICES])
                plugin.gates_on = True
                eventually(lambda: "consumesCounters" in node.devices().get("gpu-0", {}))
                plugin.gates_on = False
                publisher.publish([whole(0), whole(1)])
                eventually(lambda: report.gates_off == [FeatureGate.PARTITIONABLE_DEVICES] * 2)


@pytest.mark.kubernetes
def test_the_doctor_says_which_gate_is_off_and_what_that_means(gateless_cluster: Cluster) -> None:
    with Client(from_kubeconfig(gateless_cluster.kubeconfig)) as client:
        doctor = Installation(client, DRIVER, "carina-system", "plugin", "controller", TIMEOUT)
        found = list(feature_gates(doctor))

    assert [(finding.grade, finding.text.partition(" ")[0]) for finding in found] == [
        (Grade.WARN, "DRAPartitionableDevices"),
        (Grade.WARN, "DRAConsumableCapacity"),
        (Grade.WARN, "DRADeviceTaints"),
    ]
    assert all("in kube-apiserver, kube-scheduler and kubelets" in line.remedy for line in found)

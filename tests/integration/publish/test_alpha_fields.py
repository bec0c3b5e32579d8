"""What is published of fields whose feature gates are alpha, with the gates off and on.

By default they are off: on a real API server, and on the embedded API with a client that drops
what such an API server drops.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import TIMEOUT, Client, MergePatch
from carina_dra.kube.errors import ApiOperation, Forbidden
from carina_dra.kube.kubeconfig import from_kubeconfig
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish import publisher as publisher_module
from kubelet_plugin.publish.feature_gate import FeatureGate
from simulation.api_server.server import ApiServer
from simulation.kubernetes import releases
from simulation.kubernetes.cluster import Cluster, running_cluster
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, DRIVER, NodeInApi, Report
from tests.real_kubernetes import require_real_kubernetes
from tests.samples.gpus import MIG, observed

SETTINGS = PublishSettings(DRIVER, host_memory_mib=512, partition_types=True)
DEVICES = devices(DriverReady((observed(0, mig=MIG), observed(1))))
COMPUTING = {"gpu-0", "gpu-1", "gpu-0-mig-7g80gb-0-0", "gpu-0-share", "gpu-1-share"}
ALPHA = {FeatureGate.NODE_ALLOCATABLE_RESOURCES, FeatureGate.PARTITIONABLE_DEVICES_TYPE}
GATES_ON = {
    "DRANodeAllocatableResources": True,
    "DRAPartitionableDevicesType": True,
    "DRAResourcePoolStatus": True,  # the one before needs it
}
_FEATURE = "DRANodeAllocatableResources"
_numbers = count()


class AlphaDroppingClient(Client):
    """Drops what an API server without the gates drops, unless they are switched on."""

    gates_on = False

    def create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        return super().create(resource, self._stored(body), timeout=timeout)

    def replace(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        return super().replace(resource, self._stored(body), timeout=timeout)

    def _stored(self, body: Body) -> Body:
        if self.gates_on or body.get("kind") != "ResourceSlice":
            return body
        spec: dict[str, Any] = {**body["spec"]}
        spec.pop("partitionTypeAttribute", None)
        if "devices" in spec:
            spec["devices"] = [_without_host_memory(device) for device in spec["devices"]]
        return {**body, "spec": spec}


class RefusingClient(Client):
    """Refuses what an API server refuses for a node that does not declare the feature."""

    def create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        self._refuse(body)
        return super().create(resource, body, timeout=timeout)

    def replace(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        self._refuse(body)
        return super().replace(resource, body, timeout=timeout)

    def _refuse(self, body: Body) -> None:
        for device in body.get("spec", {}).get("devices", ()):
            if "nodeAllocatableResources" in device:
                operation = ApiOperation.on("write", RESOURCE_SLICES)
                raise Forbidden(operation, f'node "node-1" does not support {_FEATURE} feature')


def _without_host_memory(device: Body) -> Body:
    return {name: value for name, value in device.items() if name != "nodeAllocatableResources"}


@pytest.fixture
def without_gates(request: pytest.FixtureRequest, node: NodeInApi) -> Iterator[NodeInApi]:
    """A node in an API whose gates have their defaults."""
    if "real" in request.node.callspec.id:
        yield node
        return
    server: ApiServer = request.getfixturevalue("embedded")
    with AlphaDroppingClient(server.connection) as plugin:
        yield NodeInApi(node.name, node.admin, plugin)


@pytest.fixture(scope="module")
def cluster_with_gates() -> Iterator[Cluster]:
    require_real_kubernetes()
    if releases.kubernetes().version.startswith("1.36."):
        pytest.skip("the fields are those of Kubernetes 1.37")
    served = {"resource.k8s.io/v1alpha3": True}
    with running_cluster(feature_gates=GATES_ON, runtime_config=served) as cluster:
        yield cluster


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
def without_declared_feature(request: pytest.FixtureRequest) -> Iterator[NodeInApi]:
    """A node whose kubelet does not have the gates, in an API with the gates."""
    if request.param == "embedded":
        embedded: NodeInApi = request.getfixturevalue("embedded_node")
        server: ApiServer = request.getfixturevalue("embedded")
        with RefusingClient(server.connection) as plugin:
            yield NodeInApi(embedded.name, embedded.admin, plugin)
        return
    with _real_node(request.getfixturevalue("cluster_with_gates"), declares=[]) as node:
        yield node


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
def with_gates(request: pytest.FixtureRequest) -> Iterator[NodeInApi]:
    """A node in an API with the gates."""
    if request.param == "embedded":
        yield request.getfixturevalue("embedded_node")
        return
    with _real_node(request.getfixturevalue("cluster_with_gates"), declares=[_FEATURE]) as node:
        yield node


@contextmanager
def _real_node(cluster: Cluster, *, declares: Sequence[str]) -> Iterator[NodeInApi]:
    """A node of the cluster whose kubelet declares these features."""
    name = f"alpha-{next(_numbers)}"
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        client.create(NODES, {"metadata": {"name": name}})
        declared = MergePatch({"status": {"declaredFeatures": list(declares)}})
        client.patch(NODES, name, declared, subresource="status")
        yield NodeInApi(name, client, client)
        client.delete(NODES, name)


def test_without_gates_the_devices_stay_and_each_gate_is_reported_once(
    without_gates: NodeInApi,
) -> None:
    report = Report()
    with without_gates.publisher(report, settings=SETTINGS) as publisher:
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)
        before = without_gates.versions()
        publisher.republish()
        publisher.publish(list(DEVICES))
        assert publisher.wait_published(DEADLINE)

    assert list(without_gates.devices()) == [device.name for device in DEVICES]
    for device in without_gates.devices().values():
        assert "nodeAllocatableResources" not in device
    assert not _declaring(without_gates)
    assert all("consumesCounters" in without_gates.devices()[name] for name in COMPUTING)
    assert sorted(report.gates_off, key=str) == sorted(ALPHA, key=str)
    assert without_gates.versions() == before


def test_with_gates_the_fields_are_stored_and_nothing_is_written_again(
    with_gates: NodeInApi,
) -> None:
    report = Report()
    with with_gates.publisher(report, settings=SETTINGS) as publisher:
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)
        before = with_gates.versions()
        publisher.republish()
        publisher.publish(list(DEVICES))
        assert publisher.wait_published(DEADLINE)

    costs = {
        name: device["nodeAllocatableResources"]
        for name, device in with_gates.devices().items()
        if "nodeAllocatableResources" in device
    }
    assert costs == {name: {"memory": {"overhead": {"perPod": "512Mi"}}} for name in COMPUTING}
    assert _declaring(with_gates) == [f"{DRIVER}/partitionType"]
    assert report.gates_off == []
    assert with_gates.versions() == before


@pytest.mark.parametrize("with_gates", ["real"], indirect=True)
@pytest.mark.kubernetes
def test_partition_types_are_counted_for_a_resource_pool_status_request(
    with_gates: NodeInApi, cluster_with_gates: Cluster
) -> None:
    if not cluster_with_gates.controllers_run:
        pytest.skip("kube-controller-manager, which counts, does not run")
    with with_gates.publisher(Report(), settings=SETTINGS) as publisher:
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)

    def counted() -> list[Mapping[str, Any]]:
        """A request is answered once, so one that came before the slices did is made again."""
        return _counted_pools(cluster_with_gates, with_gates.name)

    (pool,) = eventually(counted, within=DEADLINE)
    assert "validationError" not in pool
    attribute = f"{DRIVER}/partitionType"
    assert pool["partitionSummary"] == [
        {"attribute": attribute, "type": "gpu-0", "total": 3, "allocatable": 1},
        {"attribute": attribute, "type": "gpu-1", "total": 2, "allocatable": 1},
    ]


def test_fields_that_the_node_does_not_declare_are_left_out_and_reported_once(
    without_declared_feature: NodeInApi,
) -> None:
    node, report = without_declared_feature, Report()
    with node.publisher(report, settings=SETTINGS) as publisher:
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)
        before = node.versions()
        publisher.republish()
        publisher.publish(list(DEVICES))
        assert publisher.wait_published(DEADLINE)

    assert list(node.devices()) == [device.name for device in DEVICES]
    assert not [each for each in node.devices().values() if "nodeAllocatableResources" in each]
    assert _declaring(node) == [f"{DRIVER}/partitionType"]
    assert report.gates_off == [FeatureGate.NODE_ALLOCATABLE_RESOURCES]
    assert report.failures == []
    assert node.versions() == before


def test_fields_are_published_after_their_gates_are_switched_on(
    embedded: ApiServer, embedded_node: NodeInApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_GATE_RETRY", 0.2)
    report = Report()
    with AlphaDroppingClient(embedded.connection) as plugin:
        node = NodeInApi(embedded_node.name, embedded_node.admin, plugin)
        with node.publisher(report, settings=SETTINGS) as publisher:
            publisher.publish(DEVICES)
            eventually(lambda: set(report.gates_off) == ALPHA)
            plugin.gates_on = True

            def stored() -> bool:
                publisher.republish()
                costs = [d for d in node.devices().values() if "nodeAllocatableResources" in d]
                return len(costs) == len(COMPUTING) and bool(_declaring(node))

            eventually(stored)


def _counted_pools(cluster: Cluster, pool: str) -> list[Mapping[str, Any]]:
    name = f"{pool}-{next(_numbers)}"
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": name},
            "spec": {"driver": DRIVER, "poolName": pool},
        }
    )

    def status() -> Mapping[str, Any]:
        found = cluster.kubectl("get", "resourcepoolstatusrequests", name, "-o", "json")
        answered: Mapping[str, Any] = json.loads(found).get("status", {})
        return answered

    pools: list[Mapping[str, Any]] = eventually(status, within=DEADLINE).get("pools", [])
    return pools


def _declaring(node: NodeInApi) -> list[str]:
    """The attributes that slices declare."""
    specs = [body["spec"] for body in node.slices()]
    return [spec["partitionTypeAttribute"] for spec in specs if "partitionTypeAttribute" in spec]

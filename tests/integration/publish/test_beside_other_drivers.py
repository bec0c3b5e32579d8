"""The node's ResourceSlices where other drivers, or another plugin under our name, publish too."""

import socket
from pathlib import Path

import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.client import MergePatch
from kubelet_plugin.publish.other_drivers import Contested, DevicePlugin, DraDriver
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, DRIVER, TWO_GPUS, NodeInApi, Report
from tests.samples.gpus import MIG, gpu


def offer_resource(node: NodeInApi, name: str, quantity: str) -> None:
    """Sets an extended resource of the Node, as the kubelet does for a device plugin."""
    resources = {name: quantity}
    node.admin.patch(
        NODES,
        node.name,
        MergePatch({"status": {"capacity": resources, "allocatable": resources}}),
        subresource="status",
    )


def offer_in_slice(node: NodeInApi, attribute: str, value: str) -> str:
    """Publishes a device of another driver; gives the name of its slice."""
    driver = "gpu.nvidia.com"
    device = {"name": "gpu-0", "attributes": {attribute: {"string": value}}}
    body = node.admin.create(
        RESOURCE_SLICES,
        {
            "metadata": {"generateName": f"{node.name}-{driver}-"},
            "spec": {
                "driver": driver,
                "nodeName": node.name,
                "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
                "devices": [device],
            },
        },
    )
    return str(body["metadata"]["name"])


def test_beside_a_device_plugin_no_gpu_is_published(node: NodeInApi, report: Report) -> None:
    offer_resource(node, "nvidia.com/gpu", "2")
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert node.slices() == []
    assert report.written == []
    gpus = (gpu(0, mig=MIG), gpu(1))
    assert report.contested == [(Contested(DevicePlugin(("nvidia.com/gpu",)), gpus),)]


def test_gpus_are_withheld_from_the_start_of_a_device_plugin_to_its_removal(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})

        offer_resource(node, "nvidia.com/gpu.shared", "8")
        eventually(lambda: node.slices() == [])

        offer_resource(node, "nvidia.com/gpu.shared", "0")
        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})

    assert [len(contested) for contested in report.contested] == [1, 0]
    assert report.repairs == []


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        pytest.param("uuid", gpu(0).uuid, id="UUID"),
        pytest.param("parentUUID", gpu(0).uuid, id="parent's UUID"),
        pytest.param("resource.kubernetes.io/pciBusID", gpu(0).pci_bus_id, id="PCI address"),
    ],
)
def test_a_gpu_in_slices_of_another_driver_is_withheld_until_they_are_deleted(
    node: NodeInApi, report: Report, attribute: str, value: str
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})

        theirs = offer_in_slice(node, attribute, value)
        eventually(lambda: set(node.devices()) == {"gpu-1"}, within=2)

        node.admin.delete(RESOURCE_SLICES, theirs)
        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})

    contested = (Contested(DraDriver("gpu.nvidia.com"), (gpu(0, mig=MIG),)),)
    assert report.contested == [contested, ()]
    assert report.repairs == []


def test_contested_gpus_that_vanish_are_not_reported_as_free(
    node: NodeInApi, report: Report
) -> None:
    offer_in_slice(node, "uuid", gpu(0).uuid)
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        publisher.publish(())
        assert publisher.wait_published(DEADLINE)

    assert node.slices() == []
    assert report.contested == [(Contested(DraDriver("gpu.nvidia.com"), (gpu(0, mig=MIG),)),)]


def test_slices_of_other_drivers_are_never_written(node: NodeInApi, report: Report) -> None:
    theirs = offer_in_slice(node, "model", "a network adapter")
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        assert set(node.devices()) == {"gpu-0", "gpu-1"}

        publisher.publish(())
        assert publisher.wait_published(DEADLINE)

    assert node.slices() == []
    assert node.admin.get(RESOURCE_SLICES, theirs)["metadata"]["generation"] == 1
    assert report.contested == []


def test_the_setting_publish_publishes_gpus_that_others_offer(
    node: NodeInApi, report: Report
) -> None:
    offer_resource(node, "nvidia.com/gpu", "2")
    offer_in_slice(node, "uuid", gpu(0).uuid)
    with node.publisher(report, beside_other_drivers="publish") as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-0", "gpu-1"}
    assert [len(contested) for contested in report.contested] == [2]


def test_slices_of_another_plugin_under_our_driver_name_stay(
    node: NodeInApi, report: Report, tmp_path: Path
) -> None:
    body = {
        "metadata": {"generateName": "theirs-"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 7, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-9"}],
        },
    }
    node.admin.create(RESOURCE_SLICES, body)
    (tmp_path / "checkpoint.json").touch()
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(tmp_path / "dra.sock"))
        theirs.listen()
        with node.publisher(report, plugin_directory=tmp_path) as publisher:
            publisher.publish(TWO_GPUS)
            assert publisher.wait_published(DEADLINE)
            publisher.publish(())
            assert publisher.wait_published(DEADLINE)
            assert set(node.devices()) == {"gpu-9"}
            assert report.written == []

            theirs.close()
            publisher.publish(TWO_GPUS)
            eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})

    assert node.generation() == 8


def test_nothing_is_published_before_the_node_was_read(
    embedded: ApiServer, embedded_node: NodeInApi, report: Report
) -> None:
    offer_resource(embedded_node, "nvidia.com/gpu", "2")
    overload = Failure(503, "ServiceUnavailable", "too busy")
    embedded.api.faults.fail(overload, verb="get", plural="nodes", times=4)
    with embedded_node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert report.failures
    assert report.written == []

"""The node's ResourceSlices, as a publisher creates, changes, restores and deletes them."""

import logging
from dataclasses import replace
from itertools import pairwise

import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.client import JsonPatch
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.gpu import NvLink
from kubelet_plugin.publish.pool import PublishedPool, pool
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, DRIVER, TWO_GPUS, NodeInApi, Report
from tests.samples.golden_slices import simulated_devices
from tests.samples.gpus import LOST, MIG, whole

PROFILES = ("b200", "dgx-a100", "dgx-h100", "hgx-h200-nvl", "hgx-h200-sxm", "l40s", "mixed", "t4")


def pool_of(node: NodeInApi, devices: tuple[GpuDevice, ...]) -> PublishedPool:
    return pool(devices, PublishSettings(DRIVER), node=node.name)


def leave_behind(node: NodeInApi, device: str) -> None:
    """Creates a slice as a publisher of an earlier time would have left it."""
    in_pool = {"name": node.name, "generation": 7, "resourceSliceCount": 1}
    node.admin.create(
        RESOURCE_SLICES,
        {
            "metadata": {"generateName": "left-behind-"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node.name,
                "pool": in_pool,
                "devices": [{"name": device}],
            },
        },
    )


def test_slices_are_published_and_belong_to_the_node(node: NodeInApi, report: Report) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    counters, devices = node.slices()
    assert [entry["name"] for entry in counters["spec"]["sharedCounters"]] == ["gpu-0", "gpu-1"]
    assert [entry["name"] for entry in devices["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    for index, body in enumerate((counters, devices)):
        assert body["metadata"]["name"].startswith(f"0000{index}-{DRIVER}-{node.name}-")
        assert body["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": node.name,
                "uid": node.uid(),
                "controller": True,
            }
        ]
        assert body["spec"]["pool"] == {
            "name": node.name,
            "generation": 1,
            "resourceSliceCount": 2,
        }
    assert report.written == ["create", "create"]
    assert report.published == [pool_of(node, TWO_GPUS)]
    assert not report.failures


def test_slices_that_match_are_not_written_again(node: NodeInApi, report: Report) -> None:
    with node.publisher(Report()) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        before = node.versions()

        with node.publisher(report) as successor:  # as in a rolling update
            successor.publish(TWO_GPUS)
            assert successor.wait_published(DEADLINE)
            publisher.republish()
            publisher.publish(TWO_GPUS)
            assert publisher.wait_published(DEADLINE)

    assert node.versions() == before
    assert report.written == []


def test_a_change_of_one_slice_is_one_write_in_the_same_generation(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        linked = NvLink(peers=(1,), domain="GPU-0")
        publisher.publish((whole(0, mig=MIG, nvlink=linked), whole(1)))
        assert publisher.wait_published(DEADLINE)

    assert node.devices()["gpu-0"]["attributes"]["nvlinkPeers"] == {"string": "1"}
    assert node.generation() == 1
    assert report.written == ["create", "create", "update"]


def test_a_gpu_that_vanishes_is_removed_with_its_counters(node: NodeInApi, report: Report) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        publisher.publish((whole(1),))
        assert publisher.wait_published(DEADLINE)
    assert set(node.devices()) == {"gpu-1"}
    assert node.generation() == 2


def test_a_node_without_gpus_counts_as_published_without_slices(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        assert not publisher.published
        publisher.publish(())
        assert publisher.wait_published(DEADLINE)

    assert node.slices() == []
    assert report.written == []
    assert report.published == [pool_of(node, ())]


def test_slices_are_deleted_with_the_last_gpu_and_created_with_the_next(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        publisher.publish(())
        assert publisher.wait_published(DEADLINE)
        assert node.slices() == []

        publisher.publish((whole(1),))
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-1"}
    assert report.written == ["create", "create", "delete", "delete", "create", "create"]


def test_slices_whose_counts_contradict_each_other_are_hidden_and_deleted(
    node: NodeInApi, report: Report, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("gpu-0", "gpu-1"):
        leave_behind(node, name)
    with node.publisher(report) as publisher:
        publisher.publish(())
        assert publisher.wait_published(DEADLINE)

    assert node.slices() == []
    assert report.written == ["update", "delete", "delete"]
    assert "changed during the update" not in caplog.text


def test_a_lost_gpu_is_tainted_and_the_taint_keeps_its_time(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        publisher.publish((whole(0, LOST, mig=MIG), whole(1)))
        assert publisher.wait_published(DEADLINE)
        (taint,) = node.devices()["gpu-0"]["taints"]
        before = node.versions()
        publisher.republish()
        publisher.publish((whole(0, LOST, mig=MIG), whole(1)))
        assert publisher.wait_published(DEADLINE)

    assert (taint["key"], taint["effect"]) == ("gpu.carina.dev/lost", "NoExecute")
    assert "taints" not in node.devices()["gpu-1"]
    assert node.versions() == before


def test_slices_that_the_kubelet_deletes_are_created_again_at_once(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

        node.admin.delete_collection(RESOURCE_SLICES, node.selection)

        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"}, within=2)
        eventually(lambda: len(report.published) == 2)
    assert len(report.repairs) == 1


def test_a_slice_that_another_client_deletes_is_created_again(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

        node.admin.delete(RESOURCE_SLICES, node.slices()[1]["metadata"]["name"])

        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"}, within=2)
        assert node.generation() == 2


def test_a_change_of_a_slice_by_another_client_is_reverted(node: NodeInApi, report: Report) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

        node.admin.patch(
            RESOURCE_SLICES,
            node.slices()[1]["metadata"]["name"],
            JsonPatch([{"op": "remove", "path": "/spec/devices/0"}]),
        )

        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"}, within=2)
        assert node.generation() == 1


def test_slices_left_behind_are_deleted(node: NodeInApi, report: Report) -> None:
    leave_behind(node, "gpu-9")
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert set(node.devices()) == {"gpu-0", "gpu-1"}
    assert node.generation() == 8


def test_new_slices_belong_to_the_recreated_node(node: NodeInApi, report: Report) -> None:
    with node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        before = node.uid()

        node.admin.delete(NODES, node.name)
        node.admin.create(NODES, {"metadata": {"name": node.name}})
        node.admin.delete_collection(RESOURCE_SLICES, node.selection)

        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})
        assert node.uid() != before
        owners = {body["metadata"]["ownerReferences"][0]["uid"] for body in node.slices()}
        assert owners == {node.uid()}


def test_two_publishers_that_agree_restore_deleted_slices(node: NodeInApi, report: Report) -> None:
    other = Report()
    with node.publisher(report) as publisher, node.publisher(other) as successor:
        publisher.publish(TWO_GPUS)
        successor.publish(TWO_GPUS)
        eventually(lambda: publisher.published and successor.published)
        eventually(lambda: set(node.devices()) == {"gpu-0", "gpu-1"})

        node.admin.delete_collection(RESOURCE_SLICES, node.selection)

        eventually(
            lambda: (
                len(node.slices()) == 2
                and set(node.devices()) == {"gpu-0", "gpu-1"}
                and publisher.published
                and successor.published
            )
        )
        assert len(report.written) + len(other.written) <= 24


def test_two_publishers_that_differ_write_with_increasing_delays(
    node: NodeInApi, report: Report
) -> None:
    other = Report()
    with node.publisher(report) as publisher, node.publisher(other) as successor:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)
        successor.publish((whole(0, mig=MIG),))
        eventually(lambda: min(len(report.repairs), len(other.repairs)) >= 4, within=60)

    for repairs in (report.repairs, other.repairs):
        delays = [later - earlier for earlier, later in pairwise(repairs)]
        least = [0.5 * 2**number for number in range(len(delays))]
        assert all(delay >= bound for delay, bound in zip(delays, least, strict=True)), delays
    attempts = 2 + len(report.repairs) + len(other.repairs)  # each had published once before
    written = len(report.written) + len(other.written)
    assert written <= 4 * attempts  # two slices each; one that meets a conflict is repeated


def test_the_longest_node_name_is_accepted(node: NodeInApi, report: Report) -> None:
    name = f"{node.name}.".ljust(253, "n")
    node.admin.create(NODES, {"metadata": {"name": name}})
    long_named = replace(node, name=name, plugin=node.admin)
    with long_named.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE), report.failures

        publisher.publish((whole(1),))
        assert publisher.wait_published(DEADLINE)

    assert set(long_named.devices()) == {"gpu-1"}
    assert report.written == ["create", "create", "update", "update"]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_slices_of_every_profile_are_accepted(
    node: NodeInApi, report: Report, profile: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = simulated_devices(profile, tmp_path_factory.mktemp(profile))
    with node.publisher(report) as publisher:
        publisher.publish(made)
        assert publisher.wait_published(DEADLINE), report.failures

    assert not report.gates_off
    assert len(node.slices()) == len(pool_of(node, made).slices)

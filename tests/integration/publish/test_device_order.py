"""The order of published devices, as a publisher writes it after claims change."""

from time import monotonic
from unittest.mock import patch

from carina_dra.kube.api_resource import RESOURCE_SLICES
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.room import DeviceUse
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish import publisher as publisher_module
from kubelet_plugin.publish.pool import pool
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, NodeInApi, Report
from tests.samples.mig_models import MODELS, observed_with

GPUS = 8
MODEL = MODELS["h100-sxm5-80gb"]
DEVICES: tuple[GpuDevice, ...] = devices(
    DriverReady(tuple(observed_with(MODEL, (), minor) for minor in range(GPUS)))
)
ON_5, ON_6 = DeviceUse("gpu-5-mig-1g10gb-19-6"), DeviceUse("gpu-6-mig-2g20gb-14-4")


def first(node: NodeInApi, part: str) -> str:
    """The first device with this part of its name, in the order in which the scheduler looks."""
    names = [device["name"] for body in node.slices() for device in body["spec"].get("devices", ())]
    return next((str(name) for name in names if part in name), "")


def test_partitions_of_a_size_are_in_one_slice(node: NodeInApi, report: Report) -> None:
    with node.publisher(report, order=DeviceOrder.BINPACK) as publisher:
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)

    contents = [
        {name.partition("-mig-")[2].rpartition("-")[0] for name in names if "-mig-" in name}
        for body in node.slices()
        if (names := [device["name"] for device in body["spec"].get("devices", ())])
    ]
    assert contents == [
        set(),  # whole GPUs and shares
        {"1g10gb-19"},
        {"1g10gb-me-20"},
        {"1g20gb-15", "2g20gb-14"},
        {"3g40gb-9", "4g40gb-5", "7g80gb-0"},  # and monitors
    ]


def test_a_new_order_is_written_slice_by_slice_and_the_pool_stays_complete(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report, order=DeviceOrder.BINPACK) as publisher:
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)
        before, devices_before = node.versions(), node.devices()

        publisher.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)

        changed = [one != other for one, other in zip(before, node.versions(), strict=True)]
        assert changed == [False, False, True, True, True, True]
        assert node.devices() == devices_before  # a complete pool of one generation
        assert node.generation() == 1
        assert not report.repairs


def test_nothing_is_written_if_the_order_of_free_devices_is_the_same(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report, order=DeviceOrder.BINPACK, reorder_seconds=0) as publisher:
        publisher.publish(DEVICES)
        publisher.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)
        assert publisher.wait_published(DEADLINE)
        before = node.versions()

        publisher.reorder([ON_5, DeviceUse("gpu-0")])
        publisher.republish()
        publisher.publish(DEVICES)
        assert publisher.wait_published(DEADLINE)

        assert node.versions() == before


def test_the_pool_is_composed_anew_only_for_other_devices(node: NodeInApi, report: Report) -> None:
    with (
        patch.object(publisher_module, "pool", wraps=pool) as composed,
        node.publisher(report, order=DeviceOrder.BINPACK, reorder_seconds=0) as publisher,
    ):
        publisher.publish(DEVICES)
        publisher.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)
        publisher.reorder([ON_6])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-6-"), within=DEADLINE)
        assert composed.call_count == 1

        publisher.publish(DEVICES[1:])
        eventually(lambda: len(node.devices()) == len(DEVICES) - 1, within=DEADLINE)
        assert composed.call_count == 2


def test_new_orders_are_written_at_a_bounded_rate(node: NodeInApi, report: Report) -> None:
    with node.publisher(report, order=DeviceOrder.BINPACK, reorder_seconds=1.5) as publisher:
        publisher.publish(DEVICES)
        since = monotonic()  # before the first of two writes, however late this thread sees it
        publisher.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)
        publisher.reorder([ON_6])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-6-"), within=DEADLINE)

        assert monotonic() - since > 1.5


def test_a_slice_that_another_client_deletes_comes_back_in_order(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(report, order=DeviceOrder.BINPACK) as publisher:
        publisher.publish(DEVICES)
        publisher.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)
        for body in node.slices():
            node.admin.delete(RESOURCE_SLICES, body["metadata"]["name"])

        eventually(lambda: len(node.devices()) == len(DEVICES), within=DEADLINE)
        assert first(node, "1g10gb-19").startswith("gpu-5-")
        assert report.repairs


def test_a_restart_writes_nothing_before_or_after_the_claims_are_known(
    node: NodeInApi, report: Report
) -> None:
    with node.publisher(Report(), order=DeviceOrder.BINPACK) as publisher:
        publisher.publish(DEVICES)
        publisher.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)
        assert publisher.wait_published(DEADLINE)
    before = node.versions()

    with node.publisher(report, order=DeviceOrder.BINPACK) as successor:
        successor.publish(DEVICES)
        assert successor.wait_published(DEADLINE)
        successor.reorder([ON_5])
        successor.publish(DEVICES)
        assert successor.wait_published(DEADLINE)

    assert node.versions() == before
    assert report.written == []


def test_of_two_plugins_side_by_side_only_the_one_that_has_the_claim_writes(
    node: NodeInApi, report: Report
) -> None:
    with (
        node.publisher(report, order=DeviceOrder.BINPACK) as old,
        node.publisher(Report(), order=DeviceOrder.BINPACK) as new,
    ):
        for publisher in (old, new):
            publisher.publish(DEVICES)
            publisher.reorder([])
            assert publisher.wait_published(DEADLINE)
        written = list(report.written)
        new.reorder([ON_5])
        eventually(lambda: first(node, "4g40gb").startswith("gpu-5-"), within=DEADLINE)
        after = node.versions()

        old.republish()  # it has seen the slices change, and hears of the claim later
        old.publish(DEVICES)
        assert old.wait_published(DEADLINE)
        old.reorder([ON_5])
        old.publish(DEVICES)
        assert old.wait_published(DEADLINE)

        assert node.versions() == after
        assert report.written == written


def test_plugins_with_different_policies_write_once_for_each_change_of_the_claims(
    node: NodeInApi,
) -> None:
    reports = old_report, new_report = Report(), Report()
    with (
        node.publisher(old_report, order=DeviceOrder.BINPACK, reorder_seconds=0) as old,
        node.publisher(new_report, order=DeviceOrder.SPREAD, reorder_seconds=0) as new,
    ):
        for publisher in (old, new):
            publisher.publish(DEVICES)
            publisher.reorder([ON_5])
            assert publisher.wait_published(DEADLINE)
        eventually(lambda: first(node, "4g40gb").startswith("gpu-0-"), within=DEADLINE)
        written = [len(report.written) for report in reports]

        for _ in range(5):
            for publisher in (old, new):
                publisher.republish()
                publisher.publish(DEVICES)
                assert publisher.wait_published(DEADLINE)

    assert [len(report.written) for report in reports] == written
    assert not old_report.repairs
    assert not new_report.repairs

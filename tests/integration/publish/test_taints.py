"""Taints of GPUs with problems, on the embedded and on a real API server."""

from dataclasses import replace
from typing import Any

import pytest

from kubelet_plugin.devices.device import devices
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    PROBLEMS,
    Degraded,
    Draining,
    DriverVerdict,
    GpuProblem,
    NeedsReset,
)
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish.pool import PublishedPool
from kubelet_plugin.publish.publisher import Publisher, SliceOperation
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, DRIVER, TWO_GPUS, NodeInApi, Report
from tests.samples.gpus import LOST, NOTICED, UNREADABLE
from tests.samples.mig_models import MODELS, observed_with

ALL = (
    LOST,
    UNREADABLE,
    *(kind(DriverVerdict("some-reason", ""), NOTICED) for kind in FOUND_BY_DRIVER),
)
DRAIN = Draining(DriverVerdict("recovery-action-4", ""), NOTICED)
RESET = NeedsReset(DriverVerdict("recovery-action-1", ""), NOTICED)
DEGRADED = Degraded(DriverVerdict("row-remap-pending", ""), NOTICED)
H100 = MODELS["h100-sxm5-80gb"]


def publish(publisher: Publisher, *problems: GpuProblem) -> None:
    """Publishes 8 H100 with all their partitions, of which each has the problems."""
    gpus = []
    for minor in range(8):
        seen = observed_with(H100, ())
        gpu = replace(seen.gpu, minor=minor, uuid=f"GPU-{minor}", pci_bus_id=f"0000:0{minor}:00.0")
        gpus.append(replace(seen, gpu=gpu, state=replace(seen.state, problems=frozenset(problems))))
    publisher.publish(devices(DriverReady(tuple(gpus))))
    assert publisher.wait_published(60)


def identities(node: NodeInApi) -> dict[str, tuple[str, int]]:
    """UID and pool generation of the slices, by name."""
    return {
        body["metadata"]["name"]: (
            body["metadata"]["uid"],
            body["spec"]["pool"]["generation"],
        )
        for body in node.slices()
    }


def taints(node: NodeInApi, device: str) -> dict[str, Any]:
    found = node.devices()[device].get("taints", ())
    return {taint["key"].removeprefix(f"{DRIVER}/"): taint for taint in found}


@pytest.fixture
def publisher(node: NodeInApi, report: Report) -> Any:
    with node.publisher(report) as started:
        yield started


def test_all_devices_of_a_node_have_all_taints_at_once(
    node: NodeInApi, publisher: Publisher
) -> None:
    publish(publisher)
    before = identities(node)
    publish(publisher, *ALL)

    found = node.devices()
    assert len(found) > 128
    assert all(
        len(device.get("taints", ())) == (0 if name.endswith("-monitor") else len(PROBLEMS))
        for name, device in found.items()
    )
    assert identities(node) == before
    assert max(len(body["spec"].get("devices") or ()) for body in node.slices()) == 64


def test_taints_change_in_place_and_keep_the_time_of_what_lasts(
    node: NodeInApi, publisher: Publisher
) -> None:
    publish(publisher, DRAIN)
    before, first = identities(node), taints(node, "gpu-0")["drain"]
    publish(publisher, DRAIN, RESET, DEGRADED)
    second = taints(node, "gpu-0")

    assert identities(node) == before
    assert second["drain"] == first
    assert (second["needs-reset"]["effect"], second["needs-reset"]["value"]) == (
        "NoExecute",
        "recovery-action-1",
    )
    assert second["degraded"]["effect"] == "None"
    assert taints(node, "gpu-0-monitor") == {}

    publish(publisher)
    assert taints(node, "gpu-0") == {}
    assert identities(node) == before


class ReleasesMeanwhile(Report):
    """Asks for a release when the first slices were written, and notes what counted as published
    when the taint was."""

    publisher: Publisher
    counted: bool | None = None

    def slices_published(self, pool: PublishedPool) -> None:
        self.publisher.release(True)
        super().slices_published(pool)

    def slice_written(self, operation: SliceOperation) -> None:
        if operation == "update" and self.counted is None:
            self.counted = self.publisher.published
        super().slice_written(operation)


def test_slices_do_not_count_as_published_before_the_taint_of_a_release_is(
    node: NodeInApi,
) -> None:
    report = ReleasesMeanwhile()
    with node.publisher(report) as publisher:
        report.publisher = publisher
        publisher.publish(TWO_GPUS)
        eventually(lambda: report.counted is not None)
        assert report.counted is False
        assert publisher.wait_published(DEADLINE)
        assert "released" in taints(node, "gpu-0")

"""What operators read about a node: Events, metrics."""

import pytest

from carina_dra.kube.api_resource import RESOURCE_SLICES
from carina_dra.kube.errors import ApiError, ApiOperation, Forbidden, ServerError
from carina_dra.kube.event import EventType
from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.change import (
    DriverArrived,
    DriverGone,
    DriverRefuses,
    DriverWasReplaced,
    GpuAppeared,
    GpuIsUnknown,
    GpuRecovered,
    GpuVanished,
    InventoryChange,
    MigModeChanged,
    ProblemAppeared,
)
from kubelet_plugin.inventory.gpu import MigMode
from kubelet_plugin.inventory.inventory import UnknownGpu
from kubelet_plugin.publish.feature_gate import FeatureGate
from kubelet_plugin.publish.other_drivers import (
    BesideOtherDrivers,
    ExtendedResource,
    OfferedElsewhere,
    PublishedGpu,
    SameNamePlugin,
    decide,
)
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.node import NodeReport, notice
from tests.fakes.events import RecordedEvents
from tests.samples.gpus import LOST, MIG, UNREADABLE, gpu, whole

NORMAL, WARNING = EventType.NORMAL, EventType.WARNING
GPU_3 = "GPU 3 (GPU-00000000-0000-0000-0000-000000000003, PCI 0000:03:00.0)"
CREATE = ApiOperation.on("create", RESOURCE_SLICES)
PUBLISHED = pool([whole(0)], PublishSettings("gpu.carina.dev"), node="node-1")


@pytest.fixture
def recorded() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def metrics() -> PluginMetrics:
    return PluginMetrics()


@pytest.fixture
def report(recorded: RecordedEvents, metrics: PluginMetrics) -> NodeReport:
    return NodeReport(events=recorded, node="node-1", metrics=metrics)


@pytest.mark.parametrize(
    ("change", "type_", "reason", "words"),
    [
        (DriverArrived(8), NORMAL, "GPUDriverReady", "GPUs: 8"),
        (
            DriverGone("no module"),
            WARNING,
            "GPUDriverMissing",
            "no module. This node's GPUs cannot be",
        ),
        (
            DriverRefuses(NvmlFailure("nvmlInit", "NVML_ERROR_NO_PERMISSION")),
            WARNING,
            "GPUDriverFailed",
            "nvmlInit returned NVML_ERROR_NO_PERMISSION",
        ),
        (
            DriverWasReplaced("/lib/libnvidia-ml.so.570"),
            NORMAL,
            "GPUDriverReplaced",
            "installed (/lib/libnvidia-ml.so.570). The plugin exits",
        ),
        (GpuAppeared(gpu(3)), NORMAL, "GPUAppeared", f"{GPU_3} was found"),
        (GpuVanished(gpu(3)), WARNING, "GPUVanished", f"{GPU_3} is no longer present"),
        (ProblemAppeared(gpu(3), LOST), WARNING, "GPULost", f"{GPU_3} fell off the bus ("),
        (ProblemAppeared(gpu(3), UNREADABLE), WARNING, "GPUUnreadable", "does not respond"),
        (
            ProblemAppeared(gpu(3), LOST, 120.0),
            WARNING,
            "GPULost",
            "IS_LOST). It is flapping, so it has to be well for 120 s. It is not allocated",
        ),
        (GpuRecovered(gpu(3)), NORMAL, "GPURecovered", f"{GPU_3} responds again"),
        (GpuIsUnknown(UnknownGpu(2, LOST.failure)), WARNING, "GPUUnreadable", "GPU 2 in the"),
        (
            MigModeChanged(gpu(3, mig=MIG), MigMode.ON),
            NORMAL,
            "MIGModeChanged",
            "is enabled; the GPU",
        ),
        (MigModeChanged(gpu(3, mig=MIG), MigMode.OFF), NORMAL, "MIGModeChanged", "is disabled"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, (str, EventType)) else "",
)
def test_words_for_a_change(
    change: InventoryChange, type_: EventType, reason: str, words: str
) -> None:
    event = notice(change)

    assert (event.type, event.reason) == (type_, reason)
    assert words in event.note


def test_a_change_of_the_gpus_is_an_event_on_the_node(
    report: NodeReport, recorded: RecordedEvents
) -> None:
    report.inventory_changed(GpuAppeared(gpu(3)))

    assert recorded.events == [("Node node-1", NORMAL, "GPUAppeared", f"{GPU_3} was found")]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Forbidden(CREATE, "no right"), "no right; grant the plugin's ServiceAccount"),
        (ServerError(CREATE, "out of order"), "out of order"),
    ],
)
def test_what_keeps_slices_from_being_published_is_reported_with_the_remedy(
    report: NodeReport, recorded: RecordedEvents, error: ApiError, words: str
) -> None:
    report.publishing_failed(error)

    ((_, type_, reason, note),) = recorded.events
    assert (type_, reason) == (WARNING, "PublishFailed")
    assert words in note


def test_a_failure_is_reported_once_until_it_is_another_or_over(
    report: NodeReport, recorded: RecordedEvents, metrics: PluginMetrics
) -> None:
    for _ in range(3):
        report.publishing_failed(Forbidden(CREATE, "no right"))
    assert recorded.reasons() == ["PublishFailed"]

    report.publishing_failed(ServerError(CREATE, "out of order"))
    assert recorded.reasons() == ["PublishFailed"] * 2

    report.slices_published(PUBLISHED)
    report.publishing_failed(ServerError(CREATE, "out of order"))
    assert recorded.reasons() == ["PublishFailed"] * 3
    assert b"carina_resourceslice_publish_failures_total 5.0" in metrics.exposition()


@pytest.mark.parametrize("gate", FeatureGate)
def test_a_feature_gate_that_is_off_is_named(
    report: NodeReport, recorded: RecordedEvents, gate: FeatureGate
) -> None:
    report.feature_gate_off(gate)

    ((_, type_, reason, note),) = recorded.events
    assert (type_, reason) == (WARNING, "FeatureGateOff")
    assert gate.value in note


@pytest.mark.parametrize(
    ("offer", "policy", "reason", "words"),
    [
        (
            ExtendedResource("nvidia.com/gpu"),
            "withhold",
            "GPUsWithheld",
            [
                "because a device plugin offers nvidia.com/gpu on this node: GPU 0, GPU 1.",
                "remove the dev",
            ],
        ),
        (
            PublishedGpu("gpu.nvidia.com", gpu(1).uuid.lower()),
            "withhold",
            "GPUsWithheld",
            [
                "because DRA driver gpu.nvidia.com also publishes them: GPU 1.",
                "remove DRA driver gpu.",
            ],
        ),
        (
            SameNamePlugin("/plugins/dra.sock", "/plugins/checkpoint.json"),
            "withhold",
            "GPUsWithheld",
            [
                "all GPUs",
                "/plugins/dra.sock and has the checkpoint /plugins/checkpoint.json",
                "driver_name",
            ],
        ),
        (
            ExtendedResource("nvidia.com/gpu"),
            "publish",
            "GPUsOfferedTwice",
            ["although a device plugin", "GPU 0, GPU 1. Two pods may get the same GPU; ", "remove"],
        ),
    ],
)
def test_gpus_that_another_driver_offers_are_reported_with_the_remedy(
    report: NodeReport,
    recorded: RecordedEvents,
    offer: OfferedElsewhere,
    policy: BesideOtherDrivers,
    reason: str,
    words: list[str],
) -> None:
    devices = [whole(0), whole(1)]

    report.gpus_contested(decide(devices, [offer], policy))

    ((subject, type_, event_reason, note),) = recorded.events
    assert (subject, type_, event_reason) == ("Node node-1", WARNING, reason)
    assert all(word in note for word in words), note


def test_the_end_of_other_offers_is_reported(report: NodeReport, recorded: RecordedEvents) -> None:
    report.gpus_contested(decide([whole(0)], [], "withhold"))

    ((_, type_, reason, _),) = recorded.events
    assert (type_, reason) == (NORMAL, "GPUsNotContested")


def test_a_kubelet_that_refuses_the_plugin_is_reported(
    report: NodeReport, recorded: RecordedEvents
) -> None:
    report.registration_refused("no version in common")

    ((subject, type_, reason, note),) = recorded.events
    assert (subject, type_, reason) == ("Node node-1", WARNING, "RegistrationRefused")
    assert "no version in common" in note

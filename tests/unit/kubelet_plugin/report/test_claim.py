"""What users and operators read about claims: Events, metrics."""

import pytest

from carina_dra.kube.event import EventType
from carina_dra.resource import ConsumerReference
from kubelet_plugin.claim_status.health_notice import (
    MemoryExceeded,
    ProblemBegan,
    ProblemEnded,
    ProcessWasEnded,
)
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import (
    CallerGone,
    ClaimFailure,
    DeviceMissing,
    LockUnavailable,
    NodeResourceFailed,
)
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import PluginMetrics
from tests.fakes.events import RecordedEvents
from tests.samples.claims import UID, claim
from tests.samples.resource_failures import BUSY, FULL, NO_NODE

TRAIN = ClaimReference(UID, "default", "train")
MISSING = DeviceMissing(claim(), "gpu-0", ("gpu-1",))


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def metrics() -> PluginMetrics:
    return PluginMetrics()


@pytest.fixture
def report(events: RecordedEvents, metrics: PluginMetrics) -> ClaimReport:
    return ClaimReport(events=events, node="node-1", metrics=metrics)


def test_a_failed_call_is_an_event_on_the_claim_and_counted_by_reason(
    report: ClaimReport, events: RecordedEvents, metrics: PluginMetrics
) -> None:
    report.call_ended("prepare", TRAIN, 0.5, MISSING)

    ((subject, type_, reason, note),) = events.events
    assert (subject, type_) == ("ResourceClaim train", EventType.WARNING)
    assert (reason, note) == ("PrepareFailed", str(MISSING))
    assert (
        b'carina_claim_call_failures_total{operation="prepare",reason="DeviceMissing"} 1.0'
        in metrics.exposition()
    )


def test_a_call_that_succeeds_is_measured_and_no_event(
    report: ClaimReport, events: RecordedEvents, metrics: PluginMetrics
) -> None:
    report.call_ended("unprepare", TRAIN, 0.5, None)

    assert events.events == []
    assert b'duration_seconds_count{operation="unprepare",result="ok"} 1.0' in metrics.exposition()


def test_a_caller_that_has_gone_is_counted_and_no_event(
    report: ClaimReport, events: RecordedEvents, metrics: PluginMetrics
) -> None:
    report.call_ended("prepare", TRAIN, 40.0, CallerGone(TRAIN))

    assert events.events == []
    assert b'{operation="prepare",reason="CallerGone"} 1.0' in metrics.exposition()


def test_a_call_that_is_retried_says_why(report: ClaimReport, events: RecordedEvents) -> None:
    report.call_retried("prepare", TRAIN, LockUnavailable("gpu-0.lock is held"))

    ((_, _, reason, note),) = events.events
    assert reason == "PrepareRetrying"
    assert note == "gpu-0.lock is held (the plugin retries)"


@pytest.mark.parametrize(
    ("tell", "subject", "reason", "words"),
    [
        pytest.param(
            lambda report: report.repair_failed(claim(), MISSING),
            "ResourceClaim train",
            "RepairFailed",
            "device gpu-0",
            id="repair failed",
        ),
        pytest.param(
            lambda report: report.leftover_not_removed(
                "CDI spec x", NodeResourceFailed(None, BUSY)
            ),
            "Node node-1",
            "LeftoverStuck",
            "CDI spec x is not needed by any claim and cannot be removed: MIG mode of GPU-1 cannot",
            id="leftover stuck",
        ),
        pytest.param(
            lambda report: report.kubelet_record_unusable("checksum"),
            "Node node-1",
            "KubeletRecordUnusable",
            "checksum",
            id="kubelet record",
        ),
        pytest.param(
            lambda report: report.claim_abandoned(claim()),
            "Node node-1",
            "ClaimAbandoned",
            "default/train",
            id="abandoned",
        ),
        pytest.param(
            lambda report: report.partitions_of_nvidia_left(TRAIN, ("gpu-0-mig-1g10gb-19-6",)),
            "Node node-1",
            "PartitionsLeft",
            f"made gpu-0-mig-1g10gb-19-6 for a ResourceClaim (UID {UID}) that is unprepared",
            id="partitions left",
        ),
        pytest.param(
            lambda report: report.checkpoint_rebuilt("/kept", "line 1 is damaged", 3),
            "Node node-1",
            "CheckpointRebuilt",
            "kept as /kept; 3 claims",
            id="checkpoint",
        ),
    ],
)
def test_what_operators_have_to_know_is_an_event(
    report: ClaimReport, events: RecordedEvents, tell: object, subject: str, reason: str, words: str
) -> None:
    assert callable(tell)
    tell(report)

    ((about, type_, given, note),) = events.events
    assert (about, type_, given) == (subject, EventType.WARNING, reason)
    assert words in note


@pytest.mark.parametrize(
    "failure",
    [
        MISSING,
        LockUnavailable("held"),
        NodeResourceFailed(TRAIN, BUSY),
        NodeResourceFailed(TRAIN, NO_NODE),
        NodeResourceFailed(TRAIN, FULL),
    ],
)
def test_failed_repairs_are_counted_by_reason(
    report: ClaimReport, metrics: PluginMetrics, failure: ClaimFailure
) -> None:
    report.repair_failed(claim(), failure)

    line = f'carina_claim_repair_failures_total{{reason="{failure.reason}"}} 1.0'
    assert line.encode() in metrics.exposition()


def test_a_problem_of_a_device_is_told_to_the_claim_and_its_pods(
    report: ClaimReport, events: RecordedEvents
) -> None:
    users = [
        ConsumerReference(resource="pods", name="worker", uid="1"),
        ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="2"),
    ]
    began = ProblemBegan("GPULost", "GPU 0 fell off the bus", ("gpu-0", "gpu-1"))

    report.health_changed(TRAIN, users, [began, ProblemEnded(("gpu-2",))])

    note = "Devices gpu-0, gpu-1: GPU 0 fell off the bus"
    again = "Device gpu-2: healthy again"
    assert events.events == [
        ("ResourceClaim train", EventType.WARNING, "GPULost", note),
        ("Pod worker", EventType.WARNING, "GPULost", note),
        ("ResourceClaim train", EventType.NORMAL, "GPURecovered", again),
        ("Pod worker", EventType.NORMAL, "GPURecovered", again),
    ]


def test_a_share_that_is_exceeded_is_told_to_the_claim_and_its_pods(
    report: ClaimReport, events: RecordedEvents
) -> None:
    users = [ConsumerReference(resource="pods", name="worker", uid="1")]
    report.health_changed(TRAIN, users, [MemoryExceeded("too much", ("gpu-0-share",))])

    note = "Device gpu-0-share: too much"
    assert events.events == [
        ("ResourceClaim train", EventType.WARNING, "GPUMemoryExceeded", note),
        ("Pod worker", EventType.WARNING, "GPUMemoryExceeded", note),
    ]


def test_a_process_that_was_ended_is_told_to_the_claim_and_its_pods(
    report: ClaimReport, events: RecordedEvents
) -> None:
    users = [ConsumerReference(resource="pods", name="worker", uid="1")]
    report.health_changed(TRAIN, users, [ProcessWasEnded("a process", ("gpu-0-share",))])

    note = "Device gpu-0-share: a process"
    assert events.events == [
        ("ResourceClaim train", EventType.WARNING, "GPUProcessEnded", note),
        ("Pod worker", EventType.WARNING, "GPUProcessEnded", note),
    ]


def test_few_of_the_pods_of_a_claim_are_told(report: ClaimReport, events: RecordedEvents) -> None:
    users = [ConsumerReference(resource="pods", name=f"pod-{n}", uid=str(n)) for n in range(256)]
    report.health_changed(TRAIN, users, [ProblemEnded(("gpu-0",))])
    assert len(events.events) == 17


def test_a_claim_that_cannot_be_repaired_is_passed_on_to_its_status(
    events: RecordedEvents, metrics: PluginMetrics
) -> None:
    passed: list[tuple[str, ClaimFailure]] = []
    report = ClaimReport(
        events=events,
        node="node-1",
        metrics=metrics,
        not_repaired=lambda claim, failure: passed.append((claim.name, failure)),
    )
    report.repair_failed(claim(), MISSING)
    assert passed == [("train", MISSING)]

"""What operators read about claims: Events on them or on the node, metrics, the log."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import CallerGone, LockUnavailable
from kubelet_plugin.kubelet.dra_service import ClaimOperation
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import Metrics
from tests.samples.claims import UID, claim

TRAIN = ClaimReference(UID, "default", "train")
ON_CLAIM = ObjectReference("resource.k8s.io/v1", "ResourceClaim", "train", "default", UID)
ON_NODE = ObjectReference("v1", "Node", "node-1", uid="node-1")
HELD = LockUnavailable("the lock is held")


@dataclass
class Recorded(EventRecorder):
    """Keeps Events for the test instead of writing them."""

    events: list[tuple[ObjectReference, EventType, str, str, str]] = field(default_factory=list)

    def record(
        self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: str,
        note: str,
        *,
        action: str,
    ) -> None:
        self.events.append((regarding, event_type, reason, action, note))


@pytest.fixture
def events() -> Recorded:
    return Recorded()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def report(events: Recorded, metrics: Metrics) -> ClaimReport:
    return ClaimReport(events=events, node="node-1", metrics=metrics)


@pytest.mark.parametrize(
    ("happens", "regarding", "reason", "action", "words"),
    [
        (
            lambda report: report.call_waits("prepare", TRAIN, HELD),
            *(ON_CLAIM, "PrepareWaits", "Prepare", "the lock is held (trying again)"),
        ),
        (
            lambda report: report.call_ended("unprepare", TRAIN, 1.0, HELD),
            *(ON_CLAIM, "UnprepareFailed", "Unprepare", "the lock is held"),
        ),
        (
            lambda report: report.repair_failed(claim(), HELD),
            *(ON_CLAIM, "RepairFailed", "Repair", "the lock is held"),
        ),
        (
            lambda report: report.checkpoint_set_aside("/kept", "line 1 is damaged", 3),
            *(ON_NODE, "CheckpointRebuilt", "Repair", "line 1 is damaged. It is kept as /kept; 3"),
        ),
        (
            lambda report: report.leftover_stuck("CDI spec a", HELD),
            *(ON_NODE, "LeftoverStuck", "Repair", "CDI spec a is needed by no claim"),
        ),
        (
            lambda report: report.kubelet_record_unusable("the checksum is wrong"),
            *(ON_NODE, "KubeletRecordUnusable", "Unprepare", "the checksum is wrong"),
        ),
        (
            lambda report: report.claim_abandoned(claim()),
            *(ON_NODE, "ClaimAbandoned", "Unprepare", f"ResourceClaim default/train (UID {UID})"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_what_needs_an_operator_is_an_event(
    report: ClaimReport,
    events: Recorded,
    happens: Callable[[ClaimReport], None],
    regarding: ObjectReference,
    reason: str,
    action: str,
    words: str,
) -> None:
    happens(report)
    ((object_, event_type, *told, note),) = events.events
    assert (object_, event_type, told) == (regarding, EventType.WARNING, [reason, action])
    assert words in note


def test_what_succeeds_or_nobody_waits_for_is_no_event(
    report: ClaimReport, events: Recorded
) -> None:
    report.call_ended("prepare", TRAIN, 1.0, None)
    report.call_ended("prepare", TRAIN, 1.0, CallerGone(TRAIN))
    assert events.events == []


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_calls_are_counted_by_operation_result_and_reason(
    report: ClaimReport, metrics: Metrics, operation: ClaimOperation
) -> None:
    report.call_ended(operation, TRAIN, 0.25, None)
    report.call_ended(operation, TRAIN, 40.0, HELD)
    report.call_ended(operation, TRAIN, 1.0, CallerGone(TRAIN))
    text = metrics.exposition().decode()
    for result, seconds in (("ok", "0.25"), ("error", "41.0")):
        labels = f'{{operation="{operation}",result="{result}"}}'
        assert f"carina_claim_call_duration_seconds_sum{labels} {seconds}\n" in text
    for reason in ("LockUnavailable", "CallerGone"):
        labels = f'{{operation="{operation}",reason="{reason}"}}'
        assert f"carina_claim_call_failures_total{labels} 1.0\n" in text


def test_repairs_rebuilds_and_prepared_claims_are_counted(
    report: ClaimReport, metrics: Metrics
) -> None:
    report.repair_failed(claim(), HELD)
    report.checkpoint_set_aside("/kept", "damaged", 0)
    report.prepared_claims(7)
    text = metrics.exposition().decode()
    assert 'carina_claim_repair_failures_total{reason="LockUnavailable"} 1.0\n' in text
    assert "carina_checkpoint_rebuilds_total 1.0\n" in text
    assert "carina_prepared_claims 7.0\n" in text

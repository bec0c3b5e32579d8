"""Reports what happens to claims, as Events, metrics and log records."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, assert_never

from carina_dra.kube.errors import ApiError
from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.resource import ConsumerReference
from kubelet_plugin.claim_status.device_status import MEMORY_EXCEEDED, PROCESS_ENDED
from kubelet_plugin.claim_status.health_notice import (
    HealthNotice,
    MemoryExceeded,
    ProblemBegan,
    ProblemEnded,
    ProcessWasEnded,
)
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.drift import Drift
from kubelet_plugin.claims.failure import CallerGone, ClaimFailure
from kubelet_plugin.claims.repair_failure import FailedRepair
from kubelet_plugin.kubelet.dra_service import ClaimOperation
from kubelet_plugin.report.metrics import PluginMetrics

_log = logging.getLogger(__name__)

_PODS_TOLD: Final = 16
"""Pods of a claim that get Events of its devices' health. A claim can have 256 pods."""

_FAILURE_REASONS: dict[ClaimOperation, str] = {
    "prepare": "PrepareFailed",
    "unprepare": "UnprepareFailed",
}
_RETRY_REASONS: dict[ClaimOperation, str] = {
    "prepare": "PrepareRetrying",
    "unprepare": "UnprepareRetrying",
}


class ClaimReport:
    """The CallReporter and ClaimReporter of the plugin."""

    def __init__(
        self,
        *,
        events: EventRecorder,
        node: str,
        metrics: PluginMetrics,
        not_repaired: Callable[[NodeClaim, ClaimFailure], None] = lambda *_: None,
        repair_ended: Callable[[Collection[FailedRepair]], None] = lambda _: None,
    ) -> None:
        """`not_repaired` receives a claim that could not be repaired, and why; `repair_ended`
        receives all of them after each repair.
        """
        self._repair_ended = repair_ended
        self._events = events
        self._not_repaired = not_repaired
        self._node = ObjectReference("v1", "Node", node, uid=node)
        self._metrics = metrics

    # --- from the DRA service ---

    def call_retried(
        self, operation: ClaimOperation, claim: ClaimReference, failure: ClaimFailure
    ) -> None:
        """Reports that a call for a claim has failed for a while, and is being retried."""
        facts = {"operation": operation, "claim": claim.key, "uid": claim.uid}
        _log.warning("claim call is being retried", extra={**facts, "reason": str(failure)})
        note = f"{failure} (the plugin retries)"
        self._warn(_claim(claim), _RETRY_REASONS[operation], operation.title(), note)

    def call_ended(
        self,
        operation: ClaimOperation,
        claim: ClaimReference,
        seconds: float,
        failure: ClaimFailure | None,
    ) -> None:
        """Reports the result of a call for a claim, after all attempts."""
        result = "ok" if failure is None else "error"
        self._metrics.call_seconds.labels(operation, result).observe(seconds)
        facts = {"operation": operation, "claim": claim.key, "uid": claim.uid, "seconds": seconds}
        match failure:
            case None:
                _log.info("claim call finished", extra=facts)
            case CallerGone():
                self._metrics.call_failures.labels(operation, failure.reason).inc()
                _log.warning("the kubelet cancelled the call", extra=facts)
            case _:
                self._metrics.call_failures.labels(operation, failure.reason).inc()
                _log.error("claim call failed", extra={**facts, "reason": str(failure)})
                self._warn(
                    _claim(claim), _FAILURE_REASONS[operation], operation.title(), str(failure)
                )

    # --- from the writer of claim statuses ---

    def status_written(self) -> None:
        """Reports that the status of a claim was written."""
        self._metrics.claim_status_writes.labels("ok").inc()

    def status_not_written(self, claim: ClaimReference, error: ApiError) -> None:
        """Reports that the status of a claim could not be written."""
        self._metrics.claim_status_writes.labels("error").inc()
        _log.warning(
            "the status of a claim cannot be written; retrying later",
            extra={"claim": claim.key, "uid": claim.uid, "reason": str(error)},
        )

    def health_changed(
        self,
        claim: ClaimReference,
        consumers: Sequence[ConsumerReference],
        noticed: Iterable[HealthNotice],
    ) -> None:
        """Reports to the claim and to its pods that a problem of its devices began or ended."""
        pods = [_pod(claim, user) for user in consumers if _is_pod(user)]
        for notice in noticed:
            type_, reason, note = _health_event(notice)
            for regarding in (_claim(claim), *pods[:_PODS_TOLD]):
                self._events.record(regarding, type_, reason, note, action="Observe")

    # --- from the client of carina-sharing ---

    def sharing_connected(self, connected: bool) -> None:  # noqa: FBT001 - the value of a metric
        """Reports whether carina-sharing is there."""
        self._metrics.sharing_connected.set(connected)

    # --- from the claims' lifecycle ---

    def checkpoint_rebuilt(self, kept: str, reason: str, rebuilt: int) -> None:
        """Reports that the checkpoint was unreadable and has been rebuilt."""
        self._metrics.checkpoint_rebuilds.inc()
        note = (
            f"{reason}. The unreadable file is kept as {kept}; {rebuilt} claims were restored from "
            "their CDI specs and the API"
        )
        _log.error("checkpoint rebuilt", extra={"reason": reason, "kept": kept, "claims": rebuilt})
        self._warn(self._node, "CheckpointRebuilt", "Repair", note)

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        """Reports that a prepared claim lacks something that could not be created."""
        self._not_repaired(claim, failure)
        self._metrics.repair_failures.labels(failure.reason).inc()
        _log.error(
            "a prepared claim cannot be repaired",
            extra={"claim": claim.key, "uid": claim.uid, "reason": str(failure)},
        )
        self._warn(_claim(claim.reference), "RepairFailed", "Repair", str(failure))

    def drift_repaired(self, claim: NodeClaim, drift: Drift) -> None:
        """Reports that something of a prepared claim had changed, and was restored."""
        self._metrics.drift_repairs.labels(drift.kind).inc()
        _log.warning(
            "something of a prepared claim had changed and was restored",
            extra={"claim": claim.key, "uid": claim.uid, "drift": str(drift)},
        )
        note = f"{str(drift)[0].upper()}{str(drift)[1:]}. The plugin has restored it"
        self._warn(_claim(claim.reference), "DriftRepaired", "Repair", note)

    def repair_ended(self, failed: Collection[FailedRepair]) -> None:
        """Reports which prepared claims lack something after a repair, and why."""
        self._metrics.claims_with_drift.set(len(failed))
        self._repair_ended(failed)

    def leftover_not_removed(self, leftover: str, failure: ClaimFailure) -> None:
        """Reports that a resource that no claim needs could not be removed."""
        _log.error(
            "a node resource that no claim needs cannot be removed",
            extra={"leftover": leftover, "reason": str(failure)},
        )
        note = f"{leftover} is not needed by any claim and cannot be removed: {failure}"
        self._warn(self._node, "LeftoverStuck", "Repair", note)

    def kubelet_record_unusable(self, reason: str) -> None:
        """Reports that the kubelet's record of claims cannot be read."""
        _log.warning(
            "claims that the kubelet no longer holds are not unprepared", extra={"reason": reason}
        )
        note = f"The plugin does not unprepare claims that the kubelet no longer holds: {reason}"
        self._warn(self._node, "KubeletRecordUnusable", "Unprepare", note)

    def claim_abandoned(self, claim: NodeClaim) -> None:
        """Reports that a claim was unprepared without a call from the kubelet."""
        _log.warning(
            "claim unprepared without a call from the kubelet",
            extra={"claim": claim.key, "uid": claim.uid},
        )
        note = (
            f"ResourceClaim {claim.key} (UID {claim.uid}) no longer has devices on this node, and "
            "the kubelet no longer holds it. The plugin has unprepared it; its devices are free"
        )
        self._warn(self._node, "ClaimAbandoned", "Unprepare", note)

    def partitions_of_nvidia_left(self, claim: ClaimReference, partitions: Sequence[str]) -> None:
        """Reports partitions of an unprepared claim that NVIDIA's DRA driver made."""
        _log.warning(
            "partitions that NVIDIA's DRA driver made are left",
            extra={"claim": claim.key, "uid": claim.uid, "devices": partitions},
        )
        note = (
            f"NVIDIA's DRA driver had made {', '.join(partitions)} for a ResourceClaim (UID "
            f"{claim.uid}) that is unprepared. Carina publishes them as an administrator's; "
            "nvidia-smi mig -dci and -dgi destroy them"
        )
        self._warn(self._node, "PartitionsLeft", "Unprepare", note)

    def prepared_claims(self, count: int) -> None:
        """Reports the number of recorded claims."""
        self._metrics.prepared_claims.set(count)

    def _warn(self, regarding: ObjectReference, reason: str, action: str, note: str) -> None:
        self._events.record(regarding, EventType.WARNING, reason, note, action=action)


def _claim(claim: ClaimReference) -> ObjectReference:
    return ObjectReference(
        "resource.k8s.io/v1", "ResourceClaim", claim.name, claim.namespace, claim.uid
    )


def _is_pod(consumer: ConsumerReference) -> bool:
    return (consumer.api_group, consumer.resource) == ("", "pods")


def _pod(claim: ClaimReference, pod: ConsumerReference) -> ObjectReference:
    return ObjectReference("v1", "Pod", pod.name, claim.namespace, pod.uid)


def _health_event(notice: HealthNotice) -> tuple[EventType, str, str]:
    match notice:
        case ProblemBegan(reason, message, devices):
            return EventType.WARNING, reason, f"{_devices(devices)}: {message}"
        case ProblemEnded(devices):
            return EventType.NORMAL, "GPURecovered", f"{_devices(devices)}: healthy again"
        case MemoryExceeded(message, devices):
            return EventType.WARNING, MEMORY_EXCEEDED, f"{_devices(devices)}: {message}"
        case ProcessWasEnded(message, devices):
            return EventType.WARNING, PROCESS_ENDED, f"{_devices(devices)}: {message}"
    assert_never(notice)


def _devices(names: Sequence[str]) -> str:
    return f"{'Device' if len(names) == 1 else 'Devices'} {', '.join(names)}"

"""What happens to claims, as Events on them, as metrics and in the log."""

import logging

from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import CallerGone, ClaimFailure
from kubelet_plugin.kubelet.dra_service import ClaimOperation
from kubelet_plugin.report.metrics import Metrics

_log = logging.getLogger(__name__)

_REASONS: dict[ClaimOperation, str] = {"prepare": "PrepareFailed", "unprepare": "UnprepareFailed"}
_WAITS: dict[ClaimOperation, str] = {"prepare": "PrepareWaits", "unprepare": "UnprepareWaits"}


class ClaimReport:
    """The CallReporter and the ClaimReporter of a plugin."""

    def __init__(self, *, events: EventRecorder, node: str, metrics: Metrics) -> None:
        self._events = events
        self._node = ObjectReference("v1", "Node", node, uid=node)
        self._metrics = metrics

    # --- from the DRA service ---

    def call_retried(
        self, operation: ClaimOperation, claim: ClaimReference, failure: ClaimFailure
    ) -> None:
        """A call for one claim has failed for a while, and is still being tried."""
        facts = {"operation": operation, "claim": claim.key, "uid": claim.uid}
        _log.warning("claim waits", extra={**facts, "reason": str(failure)})
        note = f"{failure} (trying again)"
        self._warn(_claim(claim), _WAITS[operation], operation.title(), note)

    def call_ended(
        self,
        operation: ClaimOperation,
        claim: ClaimReference,
        seconds: float,
        failure: ClaimFailure | None,
    ) -> None:
        """A call for one claim is over, all tries included."""
        result = "ok" if failure is None else "error"
        self._metrics.call_seconds.labels(operation, result).observe(seconds)
        facts = {"operation": operation, "claim": claim.key, "uid": claim.uid, "seconds": seconds}
        match failure:
            case None:
                _log.info("claim done", extra=facts)
            case CallerGone():
                self._metrics.call_failures.labels(operation, failure.reason).inc()
                _log.warning("the caller has gone", extra=facts)
            case _:
                self._metrics.call_failures.labels(operation, failure.reason).inc()
                _log.error("claim failed", extra={**facts, "reason": str(failure)})
                self._warn(_claim(claim), _REASONS[operation], operation.title(), str(failure))

    # --- from the claims' lifecycle ---

    def checkpoint_rebuilt(self, kept: str, reason: str, rebuilt: int) -> None:
        """The checkpoint was unreadable and has been rebuilt."""
        self._metrics.checkpoint_rebuilds.inc()
        note = f"{reason}. It is kept as {kept}; {rebuilt} claims were found and recorded again"
        _log.error("checkpoint rebuilt", extra={"reason": reason, "kept": kept, "claims": rebuilt})
        self._warn(self._node, "CheckpointRebuilt", "Repair", note)

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        """A prepared claim lacks something that could not be made."""
        self._metrics.repair_failures.labels(failure.reason).inc()
        _log.error(
            "claim cannot be repaired",
            extra={"claim": claim.key, "uid": claim.uid, "reason": str(failure)},
        )
        self._warn(_claim(claim.reference), "RepairFailed", "Repair", str(failure))

    def leftover_not_removed(self, leftover: str, failure: ClaimFailure) -> None:
        """Something that no claim needs could not be removed."""
        _log.error(
            "leftover cannot be removed", extra={"leftover": leftover, "reason": str(failure)}
        )
        note = f"{leftover} is needed by no claim and cannot be removed: {failure}"
        self._warn(self._node, "LeftoverStuck", "Repair", note)

    def kubelet_record_unusable(self, reason: str) -> None:
        """The kubelet's record cannot be read, so no claim is given up."""
        _log.warning("no claim is unprepared unasked", extra={"reason": reason})
        note = f"Claims that the kubelet has forgotten are not unprepared: {reason}"
        self._warn(self._node, "KubeletRecordUnusable", "Unprepare", note)

    def claim_abandoned(self, claim: NodeClaim) -> None:
        """A claim was unprepared unasked: the kubelet has forgotten it, and it is gone."""
        _log.warning("claim unprepared unasked", extra={"claim": claim.key, "uid": claim.uid})
        note = (
            f"ResourceClaim {claim.key} (UID {claim.uid}) no longer has devices on this node, and "
            "the kubelet has forgotten it without asking to unprepare it: its devices are free "
            "again"
        )
        self._warn(self._node, "ClaimAbandoned", "Unprepare", note)

    def prepared_claims(self, count: int) -> None:
        """The number of claims that are recorded now."""
        self._metrics.prepared_claims.set(count)

    def _warn(self, regarding: ObjectReference, reason: str, action: str, note: str) -> None:
        self._events.record(regarding, EventType.WARNING, reason, note, action=action)


def _claim(claim: ClaimReference) -> ObjectReference:
    return ObjectReference(
        "resource.k8s.io/v1", "ResourceClaim", claim.name, claim.namespace, claim.uid
    )

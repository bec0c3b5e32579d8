"""What happens to claims, as Events on them, as metrics and in the log."""

import logging

from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from kubelet_plugin.claims.claim import ClaimError, ClaimReference, PreparedClaim
from kubelet_plugin.kubelet.dra_service import Operation
from kubelet_plugin.report.metrics import Metrics

_log = logging.getLogger(__name__)

_REASONS: dict[Operation, str] = {"prepare": "PrepareFailed", "unprepare": "UnprepareFailed"}
_WAITS: dict[Operation, str] = {"prepare": "PrepareWaits", "unprepare": "UnprepareWaits"}


class ClaimReport:
    """Hears of claims from the service and from `Claims`, and passes it on."""

    def __init__(self, *, events: EventRecorder, node: str, metrics: Metrics) -> None:
        self._events = events
        self._node = ObjectReference("v1", "Node", node, uid=node)
        self._metrics = metrics

    def call_waits(self, operation: Operation, claim: ClaimReference, error: ClaimError) -> None:
        """A call for one claim has failed for a while, and goes on trying."""
        facts = {"operation": operation, "claim": claim.key, "uid": claim.uid}
        _log.warning("claim waits", extra={**facts, "reason": str(error)})
        note = f"{error} (trying again)"
        self._warn(_claim(claim), _WAITS[operation], operation.title(), note)

    def call_ended(
        self, operation: Operation, claim: ClaimReference, seconds: float, error: ClaimError | None
    ) -> None:
        """A call for one claim is over, tries and all."""
        result = "ok" if error is None else "error"
        self._metrics.call_seconds.labels(operation, result).observe(seconds)
        facts = {"operation": operation, "claim": claim.key, "uid": claim.uid, "seconds": seconds}
        if error is None:
            _log.info("claim done", extra=facts)
            return
        _log.error("claim failed", extra={**facts, "reason": str(error)})
        self._warn(_claim(claim), _REASONS[operation], operation.title(), str(error))

    def checkpoint_set_aside(self, kept: str, reason: str, rebuilt: int) -> None:
        """The checkpoint was unreadable and has been rebuilt."""
        self._metrics.checkpoint_rebuilds.inc()
        note = (
            f"{reason}. It is kept as {kept}; {rebuilt} claims were found again and recorded anew"
        )
        _log.error("checkpoint rebuilt", extra={"reason": reason, "kept": kept, "claims": rebuilt})
        self._warn(self._node, "CheckpointRebuilt", "Repair", note)

    def repair_failed(self, claim: PreparedClaim, reason: str) -> None:
        """A prepared claim lacks something that could not be made again."""
        self._metrics.repair_failures.inc()
        _log.error(
            "claim cannot be repaired",
            extra={"claim": claim.key, "uid": claim.uid, "reason": reason},
        )
        self._warn(_prepared(claim), "RepairFailed", "Repair", reason)

    def claim_abandoned(self, claim: PreparedClaim) -> None:
        """A claim was unprepared because it has long been gone from the API."""
        _log.warning("claim unprepared unasked", extra={"claim": claim.key, "uid": claim.uid})
        note = (
            f"ResourceClaim {claim.key} (UID {claim.uid}) is gone from the API, and the kubelet "
            "has not had it unprepared: its devices are free again"
        )
        self._warn(self._node, "ClaimAbandoned", "Unprepare", note)

    def prepared_claims(self, count: int) -> None:
        """So many claims are prepared now."""
        self._metrics.prepared_claims.set(count)

    def _warn(self, regarding: ObjectReference, reason: str, action: str, note: str) -> None:
        self._events.record(regarding, EventType.WARNING, reason, note, action=action)


def _claim(claim: ClaimReference) -> ObjectReference:
    return ObjectReference(
        "resource.k8s.io/v1", "ResourceClaim", claim.name, claim.namespace, claim.uid
    )


def _prepared(claim: PreparedClaim) -> ObjectReference:
    return _claim(ClaimReference(claim.uid, claim.namespace, claim.name))

"""A core/v1 Pod, as far as the controller depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from carina_dra.resource import JsonObject, OwnerReference
from controller.model.pod import PodNeeds
from controller.model.queue import QUEUE_LABEL
from controller.names import GATE, NODE_ANNOTATION
from controller.observe.member import ANNOTATIONS, Member
from controller.observe.needs import needs_of

_YEAR_DIGITS: Final = 4
_LONGEST_GRACE: Final = 600.0
"""Seconds. Who is evicted may take longer, but nobody waits for that."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_KEPT: Final = ANNOTATIONS | {NODE_ANNOTATION}
"""The annotations that the controller gives meaning to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod(Member):
    """A pod at one version. Times are Unix times in seconds."""

    uid: str
    version: int
    needs: PodNeeds
    gates: tuple[str, ...] = ()
    affinity: Mapping[str, Any] | None = None
    """`spec.affinity` as it is, for a pod with a gate."""
    node: str | None = None
    """The node that it is bound to."""
    claims: tuple[str, ...] = ()
    """`namespace/name` of its claims, as far as these have been made."""
    lacks_claims: bool = False
    """Whether a claim has still to be made from a template."""
    deleted: float | None = None
    """When it should have ended, if it is being deleted; a user chooses its grace period."""
    scheduled: float | None = None
    """When it was bound."""
    verdict: str | None = None
    """Why kube-scheduler finds no node for it, if it has looked for one."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def queue(self) -> str | None:
        """The queue that it names; None for a pod that is not the controller's business."""
        return self.labels.get(QUEUE_LABEL)

    @property
    def is_held(self) -> bool:
        """Whether the controller's gate holds it."""
        return not self.started

    @property
    def given(self) -> str | None:
        """The node that the controller gave it when it removed the gate."""
        return None if self.is_held else self.annotations.get(NODE_ANNOTATION)

    @property
    def is_pinned(self) -> bool:
        """Whether the controller has pinned it to the node that it gave it (`act.patch.admit`)."""
        return self.given is not None and self.owner is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it is to run, but is not bound to a node."""
        return self.node is None and self.succeeded is None and self.deleted is None


def read_pod(body: JsonObject) -> ObservedPod:
    """Reads a Pod, as an API server writes it.

    Raises:
        KeyError: it was never stored.
        ValueError: a quantity or time cannot be read.
    """
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    namespace = metadata["namespace"]
    gates = tuple(gate["name"] for gate in spec.get("schedulingGates") or ())
    claims, lacks_claims = claims_of(namespace, spec, status)
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    phase = status.get("phase")
    return ObservedPod(
        namespace=namespace,
        name=metadata["name"],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        created=_time(metadata["creationTimestamp"]),
        needs=needs_of(body),
        labels=metadata.get("labels") or {},
        annotations={
            name: value
            for name, value in (metadata.get("annotations") or {}).items()
            if name in _KEPT
        },
        owner=_owner(metadata),
        scheduling_group=(spec.get("schedulingGroup") or {}).get("podGroupName"),
        priority=spec.get("priority") or 0,
        preempts=spec.get("preemptionPolicy") != "Never",
        gates=gates,
        started=GATE not in gates,
        affinity=spec.get("affinity") if gates else None,
        node=spec.get("nodeName"),
        claims=claims,
        lacks_claims=lacks_claims,
        succeeded=phase == "Succeeded" if phase in _ENDED else None,
        deleted=_end_of(metadata),
        scheduled=(
            _time(scheduled["lastTransitionTime"])
            if scheduled.get("status") == "True" and scheduled.get("lastTransitionTime")
            else None
        ),
        verdict=_verdict(scheduled),
    )


def claims_of(namespace: str, spec: JsonObject, status: JsonObject) -> tuple[tuple[str, ...], bool]:
    """The claims of a pod by `namespace/name`, and whether some are still to be made."""
    made = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
    claims: list[str] = []
    lacks_claims = False
    for asked in spec.get("resourceClaims") or ():
        name = asked.get("resourceClaimName")
        if name is None:
            statuses = made.get(asked["name"])
            lacks_claims |= statuses is None
            name = None if statuses is None else statuses.get("resourceClaimName")
        if name is not None:
            claims.append(f"{namespace}/{name}")
    return tuple(claims), lacks_claims


def _owner(metadata: JsonObject) -> OwnerReference | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return OwnerReference(
                owner["apiVersion"], owner["kind"], owner["name"], owner["uid"], controller=True
            )
    return None


def _verdict(scheduled: JsonObject) -> str | None:
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return str(scheduled.get("message") or "")
    return None


def _end_of(metadata: JsonObject) -> float | None:
    """When the grace period of a deleted pod ends, of which `_LONGEST_GRACE` seconds count."""
    text, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if text is None:
        return None
    if len(text.partition("-")[0]) != _YEAR_DIGITS:
        return 0.0  # beyond the year 9999, which cannot be computed with: nobody waits for that
    return _time(text) - max(grace - _LONGEST_GRACE if isinstance(grace, int) else 0.0, 0.0)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

"""A core/v1 Pod, as far as the controller depends on it."""

import marshal
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Final

from carina_dra.resource import JsonObject, OwnerReference
from controller.engine.model.pod import PodNeeds
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GATE, NODE_ANNOTATION
from controller.observe.extended_request import ExtendedRequests, extended_requests
from controller.observe.member import ANNOTATIONS, GroupMember
from controller.observe.needs import needs_of
from controller.observe.template import template_hash

_YEAR_DIGITS: Final = 4
_GRACE: Final = 30.0
"""Seconds: the grace period of a pod that names none."""
_VOLUMES: Final = 64
"""The most volume claims of a pod that count; kube-scheduler checks the rest."""
_LABELS: Final = 256
"""The most labels of a pod that count."""
_DOMAINS: Final = frozenset(
    {
        QUEUE_LABEL.partition("/")[0],
        "apps.kubernetes.io",
        "batch.kubernetes.io",
        "jobset.sigs.k8s.io",
        "leaderworkerset.sigs.k8s.io",
        "ray.io",
        "training.kubeflow.org",
    }
)
"""The domains of the labels that say which group a pod is in, and its place there."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_PLACING: Final = frozenset({"Unschedulable"})
_OF_MAKING: Final = frozenset({"Unschedulable", "SchedulerError"})
_FOR_DEVICE: Final = "DeletionByDeviceTaintManager"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_KEPT: Final = ANNOTATIONS | {NODE_ANNOTATION}
"""The annotations that the controller gives meaning to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod(GroupMember):
    """A pod at one version. Times are Unix times in seconds."""

    uid: str
    version: int
    needs: PodNeeds
    gates: tuple[str, ...] = ()
    affinity: bytes | None = None
    """`spec.affinity` as it is, for a pod with a gate. As bytes (`act.patch` reads them), since a
    tenant chooses its size, and values take ten times as much memory."""
    node: str | None = None
    """The node that it is bound to."""
    claims: tuple[str, ...] = ()
    """`namespace/name` of its claims, as far as these have been made."""
    lacks_claims: bool = False
    """Whether a claim has still to be made from a template."""
    extended: ExtendedRequests = ()
    """What it requests by the names of extended resources."""
    special: str | None = None
    """`namespace/name` of the claim that its status names for its extended resources."""
    pinned: bool = False
    """Whether it can be on the node only that the controller gave it, by its node affinity."""
    volumes: tuple[str, ...] = ()
    """`namespace/name` of its PersistentVolumeClaims, with those of ephemeral volumes."""
    grace: float = _GRACE
    """Its termination grace period in seconds."""
    deleted: float | None = None
    """When it was deleted, if it is being deleted."""
    deletion_grace: float = 0
    """The grace period with which it is being deleted, in seconds."""
    device_eviction: float | None = None
    """When kube-controller-manager has begun to evict it for a taint of a device that it has."""
    scheduled: float | None = None
    """When it was bound."""
    template: int = 0
    """Equal for pods of one template (`template_hash`), if it names a queue."""
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
        return self.given is not None and (self.owner is not None or self.pinned)

    @property
    def named_claims(self) -> tuple[str, ...]:
        """All claims that it names, in its status, too."""
        return self.claims if self.special is None else (*self.claims, self.special)

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
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    phase = status.get("phase")
    deleted, deletion_grace = _deletion(metadata)
    special = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    extended = extended_requests(spec)
    return ObservedPod(
        namespace=namespace,
        name=metadata["name"],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        created=_time(metadata["creationTimestamp"]),
        needs=needs_of(body),
        labels=labels_of(metadata),
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
        affinity=marshal.dumps(spec.get("affinity")) if gates and spec.get("affinity") else None,
        node=spec.get("nodeName"),
        claims=claims,
        lacks_claims=lacks_claims,
        extended=extended,
        special=f"{namespace}/{special}" if special else None,
        pinned=_is_pinned(metadata, spec),
        volumes=tuple(volumes_of(metadata, spec)) if spec.get("volumes") else (),
        succeeded=phase == "Succeeded" if phase in _ENDED else None,
        grace=_seconds(spec.get("terminationGracePeriodSeconds"), _GRACE),
        deleted=deleted,
        deletion_grace=deletion_grace,
        device_eviction=_device_eviction(conditions.get("DisruptionTarget") or {}),
        scheduled=_since(scheduled),
        template=template_hash(spec) if QUEUE_LABEL in (metadata.get("labels") or {}) else 0,
        verdict=_verdict(scheduled, makes_claim=bool(extended)),
    )


def labels_of(metadata: JsonObject) -> dict[str, str]:
    """The labels of a pod; of a huge number, those that say which group it is in, and some."""
    labels: dict[str, str] = metadata.get("labels") or {}
    if len(labels) <= _LABELS:
        return labels
    of_groups = [name for name in labels if name.partition("/")[0] in _DOMAINS]
    return {name: labels[name] for name in islice(chain(sorted(of_groups), labels), _LABELS)}


def claims_of(namespace: str, spec: JsonObject, status: JsonObject) -> tuple[tuple[str, ...], bool]:
    """The claims of a pod by `namespace/name`, and whether some are still to be made."""
    made = {entry["name"]: entry for entry in status.get("resourceClaimStatuses") or ()}
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


def volumes_of(metadata: JsonObject, spec: JsonObject) -> Iterator[str]:
    """The volume claims of a pod, as `namespace/name`, at most `_VOLUMES`.

    kube-controller-manager makes the claims of ephemeral volumes, for gated pods as well.
    """
    found = 0
    for volume in spec["volumes"]:
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim is None and volume.get("ephemeral"):
            claim = f"{metadata['name']}-{volume['name']}"
        if claim is not None and found < _VOLUMES:
            found += 1
            yield sys.intern(f"{metadata['namespace']}/{claim}")


def _owner(metadata: JsonObject) -> OwnerReference | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return OwnerReference(
                owner["apiVersion"], owner["kind"], owner["name"], owner["uid"], controller=True
            )
    return None


def _is_pinned(metadata: JsonObject, spec: JsonObject) -> bool:
    """Whether all terms of the node affinity allow the node only that the controller gave it."""
    node = (metadata.get("annotations") or {}).get(NODE_ANNOTATION)
    of_node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (of_node.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    if node is None or not terms:
        return False
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    return all(here in (term.get("matchFields") or ()) for term in terms)


def _verdict(scheduled: JsonObject, *, makes_claim: bool) -> str | None:
    """Why kube-scheduler finds no node; or cannot make the claim that it makes for the pod."""
    reasons = _OF_MAKING if makes_claim else _OF_PLACING
    if scheduled.get("status") == "False" and scheduled.get("reason") in reasons:
        return str(scheduled.get("message") or "")
    return None


def _device_eviction(disrupted: JsonObject) -> float | None:
    """When it was written that a pod is evicted for a device, as its condition says.

    The reason is that of kubernetes `pkg/controller/devicetainteviction`. Whoever may write the
    status of pods may claim it: a tenant who does has one's own group planned again.
    """
    return _since(disrupted) if disrupted.get("reason") == _FOR_DEVICE else None


def _since(condition: JsonObject) -> float | None:
    """Since when a condition holds; None if it does not."""
    since = condition.get("lastTransitionTime")
    return _time(since) if since and condition.get("status") == "True" else None


def _deletion(metadata: JsonObject) -> tuple[float | None, float]:
    """When a pod was deleted, and with which grace period; None and 0 if it was not."""
    text = metadata.get("deletionTimestamp")
    if text is None:
        return None, 0
    if len(text.partition("-")[0]) != _YEAR_DIGITS:
        return 0, math.inf  # beyond the year 9999, which cannot be computed with
    grace = _seconds(metadata.get("deletionGracePeriodSeconds"), 0)
    return _time(text) - grace, grace


def _seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int) else default


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

"""The bodies of what the controller writes. Each change names the version it was decided on.

All are merge patches (RFC 7386): an object that has changed in between is refused with a conflict.
"""

import marshal
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from carina_dra.resource import Allocation, ConsumerReference, ResourceClaim, encode
from controller.engine.model.group import Group, least_pods
from controller.names import (
    DELETE_PROTECTION,
    FENCE_ANNOTATION,
    GATE,
    GROUP,
    NODE_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    RESERVATIONS,
    STARTED_WITH_ANNOTATION,
)
from controller.observe.claim import is_own
from controller.observe.pod import ObservedPod

Json: TypeAlias = dict[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def protect(claim: ResourceClaim) -> Json:
    """Adds the finalizer that an allocated claim needs."""
    finalizers = [*claim.metadata.finalizers, DELETE_PROTECTION]
    return {"metadata": {**_version_of(claim), "finalizers": finalizers}}


def allocate(
    claim: ResourceClaim,
    allocation: Allocation,
    consumers: Iterable[ConsumerReference],
    now: datetime,
) -> Json:
    """Gives a claim its devices, and reserves it.

    The timestamp keeps kube-scheduler from setting its own, which the API server would refuse.
    """
    stamped = replace(allocation, allocation_timestamp=now.replace(microsecond=0))
    return {
        "metadata": _version_of(claim),
        "status": {
            "allocation": encode(stamped),
            "reservedFor": [encode(consumer) for consumer in consumers],
        },
    }


def deallocate(claim: ResourceClaim) -> Json:
    """Takes the devices of a claim back, and its reservations."""
    return {
        "metadata": _version_of(claim),
        "status": {"allocation": None, "reservedFor": None, "devices": None},
    }


def reserve_for(claim: ResourceClaim, consumers: Iterable[ConsumerReference]) -> Json:
    """Reserves a claim that has devices for further consumers."""
    return _reserved_for(claim, (*claim.status.reserved_for, *consumers))


def unreserve(claim: ResourceClaim) -> Json:
    """Removes the controller's own reservation; the devices too, if nobody else uses the claim."""
    others = tuple(each for each in claim.status.reserved_for if not is_own(each))
    return _reserved_for(claim, others) if others else deallocate(claim)


def reservation(claim: ResourceClaim) -> ConsumerReference:
    """The controller's own reservation of a claim."""
    metadata = claim.metadata
    return ConsumerReference(
        api_group=GROUP, resource=RESERVATIONS, name=metadata.name, uid=metadata.uid
    )


def _reserved_for(claim: ResourceClaim, consumers: Iterable[ConsumerReference]) -> Json:
    reserved = [encode(consumer) for consumer in consumers]
    return {"metadata": _version_of(claim), "status": {"reservedFor": reserved}}


def admit(pod: ObservedPod, node: str, group: Group, *, is_chosen_for: bool = False) -> Json:
    """Takes the controller's gate from a pod, says its node, and pins it there if it is replaced.

    One for which kube-scheduler may choose devices is pinned, too: elsewhere, it would take those
    of others. A pinned pod can go nowhere else, and so kube-scheduler does not take its devices
    back. The pod says from now on how its group was when it started, whatever becomes of the group.
    """
    spec: Json = {"schedulingGates": [{"name": name} for name in pod.gates if name != GATE]}
    if pod.owner is not None or is_chosen_for:
        own = {} if pod.affinity is None else marshal.loads(pod.affinity)  # noqa: S302 - of read_pod
        spec["affinity"] = pinned(own, node)
    annotations = {
        NODE_ANNOTATION: node,
        PREEMPTIBLE_ANNOTATION: "true" if group.preemptible else "false",
        STARTED_WITH_ANNOTATION: str(least_pods(group.root)),
    }
    metadata = {"uid": pod.uid, "resourceVersion": str(pod.version), "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def confirm(pod: ObservedPod) -> Json:
    """Changes nothing, and is refused if a pod has changed."""
    return {"metadata": {"uid": pod.uid, "resourceVersion": str(pod.version)}}


def nothing(uid: str) -> Json:
    """Changes nothing, whatever the version: the answer is the object as it is."""
    return {"metadata": {"uid": uid}}


def fence(uid: str, at: datetime) -> Json:
    """Changes the version of an object and nothing that matters; `at` must differ each time.

    A write that names an earlier version, and may still be under way, is then refused.
    """
    return {"metadata": {"uid": uid, "annotations": {FENCE_ANNOTATION: at.isoformat()}}}


def smaller(body: Mapping[str, Any]) -> Json:
    """Takes from a pod what only its user needs, so that there is room for what ends it."""
    metadata = body["metadata"]
    others = {name: None for name in metadata.get("annotations") or () if not _is_ours(name)}
    return {"metadata": {"uid": metadata["uid"], "managedFields": [{}], "annotations": others}}


def evict(pod: ObservedPod, *, unchanged: bool, longest: float | None = None) -> Json:
    """Asks for the eviction of this very pod; only if it has not changed, where that matters.

    `longest` is the longest grace period that it gets, in seconds; None for its own.
    """
    conditions = {"uid": pod.uid}
    if unchanged:
        conditions["resourceVersion"] = str(pod.version)
    options: Json = {"preconditions": conditions}
    grace = seconds_of_grace(pod, longest)
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": options,
    }


def seconds_of_grace(pod: ObservedPod, longest: float | None) -> int | None:
    """The grace period that a pod gets, if it is not its own, which is longer than `longest`.

    At least a second: 0 would remove the pod while its containers still run.
    """
    if longest is None or max(pod.grace, pod.deletion_grace) <= longest:
        return None
    return max(1, math.ceil(longest))


class Disruption(NamedTuple):
    """Why a pod is deleted although disruption budgets refuse it, as a condition has it."""

    reason: str
    message: str


RECLAIMED: Final = Disruption(
    "ReclaimedByCarina", "Its queue has more than its quota, and another queue is below its own."
)
DEVICE_TAINTED: Final = Disruption(
    "DeviceTainted", "A device of it has a taint with the effect NoExecute."
)


def disrupted(body: Mapping[str, Any], why: Disruption, now: datetime) -> Json:
    """The condition of a pod that is to be deleted, although disruption budgets refuse it."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": why.reason,
        "message": why.message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    others = [known for known in conditions if known.get("type") != condition["type"]]
    metadata = body["metadata"]
    version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": [*others, condition]}}


def consumer(pod: ObservedPod) -> ConsumerReference:
    """A pod as one that may use a claim."""
    return ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def pinned(affinity: Mapping[str, Any], node: str) -> Json:
    """An affinity that holds on one node only, and there as before.

    A term that says nothing matches no node, and stays as it is.
    """
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    of_node = affinity.get("nodeAffinity") or {}
    required = (of_node.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    if required:
        terms = [
            {**term, "matchFields": [*(term.get("matchFields") or ()), here]}
            if term.get("matchExpressions") or term.get("matchFields")
            else term
            for term in required
        ]
    else:
        terms = [{"matchFields": [here]}]
    return {**affinity, "nodeAffinity": {**of_node, _REQUIRED: {"nodeSelectorTerms": terms}}}


def _is_ours(annotation: str) -> bool:
    return annotation.startswith(f"{GROUP}/")


def _version_of(claim: ResourceClaim) -> Json:
    metadata = claim.metadata
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}

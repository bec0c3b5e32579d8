"""Objects of a cluster as the API server writes them: pods of queues, claims, nodes with GPUs."""

from collections.abc import Iterable
from typing import Any

from carina_dra.kube.body import Body
from carina_dra.resource import Allocation, encode
from controller.api.queue import DeclaredQueue
from controller.engine.files.namespaces import Namespaces
from controller.engine.model.label_selector import LabelSelector
from controller.engine.model.queue import QUEUE_LABEL, Entitlement, Queue
from controller.names import GATE, GROUP_LABEL, NODE_ANNOTATION
from tests.unit.controller.engine.scene import GPU

CREATED = "2026-01-01T00:00:00Z"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}


def pod_body(
    name: str,
    *,
    uid: str = "",
    version: int = 1,
    queue: str | None = "q",
    gates: Iterable[str] = (GATE,),
    node: str | None = None,
    given: str | None = None,
    claims: Iterable[str] = (),
    group: str | None = None,
    owner: Body | None = None,
    verdict: str | None = None,
    phase: str = "Pending",
    deleted: str | None = None,
    grace: object = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Body:
    """A pod; `given` is the node that the controller gave it, `claims` are its claims by name.

    deleted, grace: its `deletionTimestamp` and `deletionGracePeriodSeconds`.
    """
    metadata: Body = {
        "namespace": "t",
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
        "labels": {**(labels or {})},
        "annotations": {**(annotations or {})},
    }
    if queue is not None:
        metadata["labels"][QUEUE_LABEL] = queue
    if group is not None:
        metadata["labels"][GROUP_LABEL] = group
    if given is not None:
        metadata["annotations"][NODE_ANNOTATION] = given
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    if deleted is not None:
        metadata["deletionTimestamp"] = deleted
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    status: Body = {"phase": phase}
    if verdict is not None:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": verdict,
            }
        ]
    elif node is not None:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            "containers": [{"name": "main"}],
            **({} if node is None else {"nodeName": node}),
            **spec,
        },
        "status": status,
    }


def claim_body(
    name: str,
    gpus: int = 1,
    *,
    uid: str = "",
    version: int = 1,
    allocation: Allocation | None = None,
    reserved_for: Iterable[str] = (),
    **metadata: Any,
) -> Body:
    """A claim for GPUs; `reserved_for` names pods, whose UIDs are those of `pod_body`."""
    status: Body = {}
    if allocation is not None:
        status["allocation"] = encode(allocation)
    if reserved := list(reserved_for):
        status["reservedFor"] = [
            {"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in reserved
        ]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": gpus}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": "t",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": CREATED,
            **metadata,
        },
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        "status": status,
    }


def declared_queue(
    name: str = "q", *, quota: int | None = None, eviction_grace: float | None = None
) -> DeclaredQueue:
    """A queue for GPUs, which all namespaces may use."""
    queue = Queue(name, entitlements={GPU: Entitlement(quota)}, eviction_grace=eviction_grace)
    return DeclaredQueue(queue, f"uid-{name}", 1, Namespaces(selector=LabelSelector()))

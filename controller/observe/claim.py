"""A ResourceClaim as the controller sees it: whose it is, and whether its allocation is in effect.

An allocation is *tentative* as long as the controller's gate holds every pod that it is for. Nobody
uses it yet, so it can be kept, completed or taken back, by any leader, whatever happened to
the writer.
"""

from collections.abc import Container

from carina_dra.resource import (
    Allocation,
    ConsumerReference,
    DecodeError,
    JsonObject,
    NodeSelectorOperator,
    ResourceClaim,
    decode,
)
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GROUP, RESERVATIONS

_PODS = "pods"
_NODE_NAME = "metadata.name"


def read_claim(body: JsonObject) -> ResourceClaim:
    """Reads a claim.

    One whose spec cannot be read keeps the devices that it has: it is read as if it asked for
    nothing more. Otherwise its devices would be given to others.

    Raises:
        DecodeError: it cannot be read, and has no devices.
    """
    try:
        return decode(ResourceClaim, body)
    except DecodeError:
        if not (body.get("status") or {}).get("allocation"):
            raise
        return decode(ResourceClaim, {**body, "spec": {}})


def is_standalone(claim: ResourceClaim) -> bool:
    """Whether a claim asks a queue for devices by itself: it has the label, and is no pod's.

    A claim is a pod's if the pod controls it, as kube-controller-manager makes it from a template.
    """
    return QUEUE_LABEL in claim.metadata.labels and not any(
        owner.controller and (owner.api_version, owner.kind) == ("v1", "Pod")
        for owner in claim.metadata.owner_references
    )


def is_reserved(claim: ResourceClaim) -> bool:
    """Whether the controller's own reservation holds the claim."""
    return any(map(is_own, claim.status.reserved_for))


def is_pod(entry: ConsumerReference) -> bool:
    """Whether an entry of `reservedFor` is a pod."""
    return not entry.api_group and entry.resource == _PODS


def is_own(entry: ConsumerReference) -> bool:
    """Whether an entry of `reservedFor` is the controller's own reservation."""
    return entry.api_group == GROUP and entry.resource == RESERVATIONS


def is_tentative(claim: ResourceClaim, held: Container[str]) -> bool:
    """Whether everybody for whom the claim is allocated is a pod that the gate holds.

    held: the UIDs of such pods.
    """
    if claim.status.allocation is None:
        return False
    return all(is_pod(entry) and entry.uid in held for entry in claim.status.reserved_for)


def node_of(allocation: Allocation) -> str | None:
    """The only node where the devices are usable; None if there may be several."""
    if allocation.node_selector is None:
        return None
    terms = allocation.node_selector.node_selector_terms
    names = {
        requirement.values
        for term in terms
        for requirement in term.match_fields
        if requirement.key == _NODE_NAME and requirement.operator is NodeSelectorOperator.IN
    }
    if len(terms) == 1 and len(names) == 1:
        (values,) = names
        return values[0] if len(values) == 1 else None
    return None

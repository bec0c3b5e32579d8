"""Standalone claims: devices that a queue holds for pods that come and go.

A ResourceClaim with the label of a queue that no pod owns asks by itself. It is a group of one,
which needs no pod. It is not preemptible, so it gets devices within the quota of its queue. It
holds them, by a reservation of the controller's own, until it is deleted or its time is over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from carina_dra.resource import ResourceClaim
from carina_dra.resource.errors import BadValueError
from controller.codec.amount import read_duration
from controller.model.group import Group, PodSet
from controller.model.pod import Pending, Placed, Pod, PodNeeds, PodState
from controller.model.queue import QUEUE_LABEL
from controller.names import EXPIRES_ANNOTATION
from controller.observe.claim import is_reserved, is_standalone, node_of

_ANYWHERE: Final = ""
"""Stands for the node of devices that are usable on several."""


class Standing(Enum):
    """What is to be done for a standalone claim."""

    WAITS = "waits"
    """It has no devices."""
    HOLDS = "holds"
    """It has devices, and they are reserved for it."""
    UNRESERVED = "unreserved"
    """It has devices, but the reservation is missing."""
    ENDS = "ends"
    """Its reservation is to be removed: it was deleted, or its time is over."""
    OVER = "over"
    """There is nothing to do any more."""


@dataclass(frozen=True, slots=True)
class StandaloneClaim:
    """A standalone claim as the engine sees it."""

    claim: ResourceClaim
    group: Group
    pod: Pod
    """Stands for all pods to come."""
    standing: Standing
    until: float | None
    """When its time is over, as a Unix time."""
    refusal: str | None
    """Why it cannot be decided on, and the remedy."""


def key_of_standalone(claim: str) -> str:
    """The key of the group, and of the pod, of a claim."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/resourceclaim/{name}"


def standalone_claim(
    claim: ResourceClaim, now: float, refusal_of: Callable[[str, str], str | None]
) -> StandaloneClaim | None:
    """What a claim asks for by itself; None if pods ask for it.

    `refusal_of` says why a namespace may not use a queue.
    """
    if not is_standalone(claim):
        return None
    metadata, key = claim.metadata, key_of_standalone(claim.key)
    created = (
        0.0 if metadata.creation_timestamp is None else metadata.creation_timestamp.timestamp()
    )
    queue = metadata.labels[QUEUE_LABEL]
    refusal = refusal_of(queue, metadata.namespace)
    until: float | None = None
    if (text := metadata.annotations.get(EXPIRES_ANNOTATION)) is not None:
        try:
            until = created + read_duration(text)
        except BadValueError as error:
            refusal = f"ResourceClaim {claim.key}: annotation {EXPIRES_ANNOTATION}: {error.problem}"
    standing = _standing(claim, is_over=until is not None and until <= now)
    return StandaloneClaim(
        claim=claim,
        group=Group(key=key, queue=queue, root=PodSet("", 1), preemptible=False, created=created),
        pod=Pod(key, PodNeeds(), _state(claim), group=key, claims=(claim.key,), created=created),
        standing=standing,
        until=until,
        refusal=refusal if standing is Standing.WAITS else None,
    )


def _standing(claim: ResourceClaim, *, is_over: bool) -> Standing:
    has_devices = claim.status.allocation is not None
    if is_over or claim.metadata.deletion_timestamp is not None:
        return Standing.ENDS if is_reserved(claim) else Standing.OVER
    if not has_devices:
        return Standing.WAITS
    return Standing.HOLDS if is_reserved(claim) else Standing.UNRESERVED


def _state(claim: ResourceClaim) -> PodState:
    allocation = claim.status.allocation
    return Pending() if allocation is None else Placed(node_of(allocation) or _ANYWHERE)

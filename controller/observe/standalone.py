"""Standalone claims: devices that a queue holds for pods that come and go.

A ResourceClaim with the label of a queue that no pod owns asks by itself. It is a group of one,
which needs no pod. It is not preemptible, so it gets devices within the quota of its queue. It
holds them, by a reservation of the controller's own, until it is deleted or its time is over.

The controller writes the reservation together with the allocation: a claim that has devices and no
reservation got them from somebody else, and the controller does not add one. Whoever gave them, the
queue is charged for them as long as the claim has them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from carina_dra.resource import ResourceClaim
from carina_dra.resource.errors import BadValueError
from controller.engine.files.amount import read_duration
from controller.engine.model.group import Group, PodSet
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds, PodState
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import EXPIRES_ANNOTATION
from controller.observe.claim import is_reserved, is_standalone, node_of
from controller.observe.pod import ObservedPod

_ANYWHERE: Final = ""
"""Stands for the node of devices that are usable on several."""


class Standing(Enum):
    """What a standalone claim is to its queue. Only one that holds keeps the reservation."""

    WAITS = "waits"
    """It has no devices, and asks for them."""
    HOLDS = "holds"
    """It has devices, which are reserved for it."""
    USED = "used"
    """It has devices for pods only: they let it start, others allocated them, or it has ended. The
    queue pays: for the pods, or for the claim if none of its own pods uses it."""
    REFUSED = "refused"
    """It cannot be decided on. The queue does not pay for what others have allocated to it."""
    ENDED = "ended"
    """It was deleted, or its time is over, and it has no devices."""


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
    """Why it cannot be decided on, and the remedy, if it is refused or its time is over."""

    @property
    def is_charged(self) -> bool:
        """Whether its queue is responsible for it: it asks, or pays for what it has."""
        return self.standing not in (Standing.REFUSED, Standing.ENDED)

    def stands_in(self, users: Iterable[ObservedPod]) -> bool:
        """Whether its own pod is needed beside those that refer to it.

        Not if a pod of the queue uses what it has: that is as preemptible as the pod.
        """
        return self.is_charged and not (
            self.standing is Standing.USED
            and any(
                user.queue == self.group.queue and not user.is_held and user.succeeded is None
                for user in users
            )
        )


def key_of_standalone(claim: str) -> str:
    """The key of the group, and of the pod, of a claim."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/resourceclaim/{name}"


def standalone_claim(
    claim: ResourceClaim,
    now: float,
    refusal_of: Callable[[str, str], str | None],
    priority_in: Callable[[str, int], int],
    is_emptied: Callable[[str], bool],
) -> StandaloneClaim | None:
    """What a claim asks for by itself; None if pods ask for it.

    refusal_of: says why a namespace may not use a queue.
    priority_in: says what a priority counts as in a queue. A claim has none, which counts as 0.
    is_emptied: says whether a queue is emptied. Its claims keep no devices.
    """
    if not is_standalone(claim):
        return None
    metadata, key = claim.metadata, key_of_standalone(claim.key)
    created = (
        0.0 if metadata.creation_timestamp is None else metadata.creation_timestamp.timestamp()
    )
    queue = metadata.labels[QUEUE_LABEL]
    may_not_use, bad_time = refusal_of(queue, metadata.namespace), None
    until: float | None = None
    if (text := metadata.annotations.get(EXPIRES_ANNOTATION)) is not None:
        try:
            until = created + read_duration(text)
        except BadValueError as error:
            problem = error.problem
            bad_time = f"ResourceClaim {claim.key}: annotation {EXPIRES_ANNOTATION}: {problem}"
    is_late = until is not None and until <= now
    has_devices, reserved = claim.status.allocation is not None, is_reserved(claim)
    is_over = metadata.deletion_timestamp is not None or is_late
    is_over |= has_devices and is_emptied(queue)
    refusal: str | None = None
    if is_over and not has_devices:
        standing = Standing.ENDED
        if metadata.deletion_timestamp is None:
            refusal = (
                f"ResourceClaim {claim.key}: its time is over, by annotation {EXPIRES_ANNOTATION}: "
                f"{text}, counted from its creation; delete it, and create one with more time"
            )
    elif may_not_use is not None and not reserved:
        standing, refusal = Standing.REFUSED, may_not_use
    elif has_devices:
        standing = Standing.HOLDS if reserved and not is_over else Standing.USED
    elif bad_time is not None:
        standing, refusal = Standing.REFUSED, bad_time
    else:
        standing = Standing.WAITS
    return StandaloneClaim(
        claim=claim,
        group=Group(
            key=key,
            queue=queue,
            root=PodSet("", 1),
            priority=priority_in(queue, 0),
            preemptible=False,
            created=created,
        ),
        pod=Pod(key, PodNeeds(), _state(claim), group=key, claims=(claim.key,), created=created),
        standing=standing,
        until=until,
        refusal=refusal,
    )


class StandaloneClaims:
    """The standalone claims of a cluster, and the reservations that are to be ended."""

    def __init__(self) -> None:
        self.known: dict[str, StandaloneClaim] = {}
        """By claim."""
        self.ending: dict[str, None] = {}
        """The claims of which the controller's reservation is to be ended."""
        self._claim_of: dict[str, str] = {}
        """By the pod that stands for it, which has the key of the group: a claim."""

    def put(self, claim: ResourceClaim, wanted: StandaloneClaim | None) -> None:
        """Applies a claim, and of what it asks for by itself."""
        self.remove(claim.key)
        if wanted is not None:
            self.known[claim.key] = wanted
            self._claim_of[wanted.group.key] = claim.key
        if is_reserved(claim) and (wanted is None or wanted.standing is not Standing.HOLDS):
            self.ending[claim.key] = None

    def remove(self, claim: str) -> None:
        """Applies that a claim is gone."""
        self.ending.pop(claim, None)
        self.known.pop(claim, None)
        self._claim_of.pop(key_of_standalone(claim), None)

    def claim_of(self, group: str) -> str | None:
        """The claim that is a group by itself."""
        return self._claim_of.get(group)

    def in_namespace(self, namespace: str) -> dict[str, None]:
        """The standalone claims of a namespace."""
        return {key: None for key in self.known if key.startswith(f"{namespace}/")}

    def refusals(self) -> dict[str, str]:
        """By group: why it cannot be decided on, and the remedy."""
        return {
            each.group.key: each.refusal for each in self.known.values() if each.refusal is not None
        }


def _state(claim: ResourceClaim) -> PodState:
    allocation = claim.status.allocation
    return Pending() if allocation is None else Placed(node_of(allocation) or _ANYWHERE)

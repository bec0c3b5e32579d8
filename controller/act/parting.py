"""What follows when two claims have the same device (`observe.collision`): the loser leaves it.

Pods that a controller replaces are evicted. A pod that nobody replaces is not deleted, and cannot
be moved either, since kube-scheduler may bind it at any time: an Event says what to do. A
standalone claim that no pod uses loses its devices and is decided again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from carina_dra.kube.event import ObjectReference
from carina_dra.resource import ResourceClaim
from controller.act.commit import Release
from controller.observe.claim import is_own
from controller.observe.collision import Collision, Holder
from controller.observe.mirror import CLAIMS, Mirror
from controller.observe.pod import ObservedPod
from controller.report.notice import DeviceLost, DoubleAllocation
from controller.report.regarding import claim_reference, pod_reference

_DEVICES: Final = "devices"
"""What devices are called among the objects that are set aside."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Somebody should know, once."""

    regarding: ObjectReference
    notice: DoubleAllocation | DeviceLost


@dataclass(frozen=True, slots=True)
class Evict:
    """A pod is to be evicted."""

    pod: ObservedPod


Parting: TypeAlias = Tell | Evict | Release


def partings(mirror: Mirror) -> Iterator[Parting]:
    """What is to be done, claim by claim. What is being done already is left out."""
    devices = {str(device): device for device in mirror.collisions.contested}
    collisions = mirror.set_aside.each(
        _DEVICES,
        "kept by one claim",
        devices,
        lambda key: mirror.collisions.at(devices[key], partial(_holder_of, mirror)),
    )
    losses: dict[str, Collision] = {}
    for collision in collisions:
        losses.setdefault(collision.loser, collision)
    yield from mirror.set_aside.each(
        CLAIMS, "parted", losses, lambda key: _partings_of(mirror, mirror.claims[key], losses[key])
    )


def _partings_of(mirror: Mirror, claim: ResourceClaim, collision: Collision) -> Iterator[Parting]:
    users = list(mirror.users_of(claim.key))
    if _is_starting(mirror, claim.key, users):
        return
    device, keeper = str(collision.device), collision.keeper
    yield Tell(claim_reference(claim), DoubleAllocation(device, keeper))
    for pod in users:
        if pod.queue is None or pod.is_held or pod.succeeded is not None or pod.deleted is not None:
            continue
        if pod.owner is None:
            yield Tell(pod_reference(pod), DeviceLost(device, keeper))
        elif mirror.may_be_evicted(pod.key):
            yield Evict(pod)
    if claim.key in mirror.standalone and not mirror.is_being_released(claim.key):
        held = tuple(pod for pod in users if pod.is_held)
        unused = {pod.uid for pod in users if pod.is_held or pod.succeeded is not None}
        is_unused = len(unused) == len(users) and all(
            is_own(entry) or entry.uid in unused for entry in claim.status.reserved_for
        )
        if is_unused:
            yield Release(claim, held)


def _holder_of(mirror: Mirror, claim: str) -> Holder:
    if any(map(is_own, mirror.claims[claim].status.reserved_for)):
        return Holder.OURS
    users = list(mirror.users_of(claim))
    if not any(pod.queue is not None for pod in users):
        return Holder.OTHERS
    return Holder.NOBODY if all(pod.is_held for pod in users) else Holder.OURS


def _is_starting(mirror: Mirror, claim: str, users: list[ObservedPod]) -> bool:
    """Whether a start that rests on a claim is being written: what is seen of it is not the end."""
    keys = [pod.key for pod in users]
    if claim in mirror.standalone:
        keys.append(mirror.standalone[claim].pod.key)
    return any(key in mirror.assumed for key in keys)

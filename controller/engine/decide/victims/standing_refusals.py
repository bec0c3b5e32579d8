"""What was refused and still holds, and what follows from the queues alone."""

from collections.abc import Mapping

from controller.engine.decide.queues.shares import Shares
from controller.engine.model.plan import Action, CarriedOver
from controller.engine.model.reason import (
    Behind,
    ClosedQueue,
    CutOffQueue,
    NoDomain,
    NoRoom,
    NoVictims,
    OverFairShare,
    OverLimit,
    OverQuota,
    Reason,
    StoppedQueue,
    TooManyGpus,
    UnknownQueue,
)
from controller.engine.model.resource import describe
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.queue_tree import QueueTree


def still_refused(
    memory: CarriedOver, shares: Mapping[str, Mapping[str, int]]
) -> Mapping[str, tuple[Reason, ...]]:
    """What earlier cycles have refused, but for what other fair shares may make possible."""
    if memory.fair_shares == shares:
        return memory.refusals
    return {key: of for key, of in memory.refusals.items() if not any(map(_is_of_shares, of))}


def fair_shares(occupancy: Occupancy, shares: Shares) -> Mapping[str, Mapping[str, int]]:
    """The fair shares by queue and resource, as plans have them."""
    names = [describe(resource) for resource in occupancy.tree.resources]
    return {
        queue: dict(zip(names, shares.fair(queue), strict=True)) for queue in occupancy.tree.queues
    }


def takes_no_work(tree: QueueTree, queue: str) -> Reason:
    """Why nothing starts in a queue, whatever it asks for."""
    if queue in tree.cut_off:
        return CutOffQueue(queue, *tree.cut_off[queue])
    stopping = tree.stopped_by(queue) if tree.is_leaf(queue) else None
    if stopping is not None:
        is_deleted = stopping.deleted is not None
        return ClosedQueue(stopping.name) if is_deleted else StoppedQueue(stopping.name)
    return UnknownQueue(queue, exists=queue in tree.queues)


def is_of_room(reason: Reason) -> bool:
    """Whether a group was refused because of what others have."""
    return isinstance(reason, NoRoom | NoDomain | OverLimit | OverQuota | TooManyGpus | Behind)


def _is_of_shares(reason: Reason) -> bool:
    """Whether a group was refused because of what queues may count on."""
    is_reclaim = isinstance(reason, NoVictims) and reason.action == Action.RECLAIM
    return is_reclaim or isinstance(reason, OverFairShare)

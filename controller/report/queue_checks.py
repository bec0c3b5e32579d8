"""What is wrong with a Queue: it names what does not exist, or promises more than there is.

Each finding says what to do. Queues that are closed promise nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.resource.errors import did_you_mean
from controller.api.condition import StatusCondition, desired_condition
from controller.engine.decide.queues.shares import cluster_total
from controller.engine.model.queue import Queue
from controller.engine.model.resource import DevicesOf, Resource, describe, write_amount
from controller.engine.state.occupancy import Occupancy
from controller.observe.declared_queues import DeclaredQueues

REFERENCES: Final = "ReferencesResolved"
"""The condition that holds if all that a Queue names exists."""
QUOTAS: Final = "QuotasCovered"
"""The condition that holds if its quotas are not more than there is to guarantee."""
_SHOWN: Final = 3
"""Findings of one kind that are shown."""


@dataclass(frozen=True, slots=True)
class QueueAccess:
    """What is wrong with who may use a queue."""

    missing_namespaces: tuple[str, ...] = ()
    """The namespaces that it names, and that do not exist."""
    admits_nobody: bool = False
    """Whether it has no queues below it and no `namespaces`."""


UNKNOWN_ACCESS: Final = QueueAccess()


def access_of(queues: DeclaredQueues, namespaces: Collection[str]) -> Mapping[str, QueueAccess]:
    """By queue: what is wrong with who may use it, if anything is.

    namespaces: those that exist.
    """
    missing, closed = queues.missing_namespaces(namespaces), {*queues.without_namespaces()}
    return {
        name: QueueAccess(missing.get(name, ()), admits_nobody=name in closed)
        for name in missing.keys() | closed
    }


def checks(
    occupancy: Occupancy, queue: str, access: QueueAccess, generation: int
) -> Iterator[StatusCondition]:
    """The conditions of a queue of the tree, beside whether it is active."""
    known = occupancy.tree.queues[queue]
    missing = [*_missing_classes(occupancy, known), *_missing_namespaces(access)]
    yield desired_condition(
        REFERENCES,
        holds=not missing,
        reason="NotFound" if missing else "Found",
        message=_some(missing) if missing else "all that it names exists",
        observed_generation=generation,
    )
    below, beyond = (
        list(_exceeded_by_children(occupancy, known)),
        list(_beyond_cluster(occupancy, known)),
    )
    reason = "ExceededBelow" if below else "ExceedsCluster" if beyond else "Covered"
    found = _some([*below, *beyond]) if below or beyond else "there is what its quotas promise"
    yield desired_condition(
        QUOTAS,
        holds=not (below or beyond),
        reason=reason,
        message=found,
        observed_generation=generation,
    )


def _missing_classes(occupancy: Occupancy, queue: Queue) -> Iterator[str]:
    classes = occupancy.feed.classes
    for resource in queue.entitlements:
        if isinstance(resource, DevicesOf) and resource.device_class not in classes:
            name = resource.device_class
            remedy = did_you_mean(name, classes) if classes else "there is none"
            yield f"DeviceClass {name} does not exist: create it, or correct the name; {remedy}"


def _missing_namespaces(access: QueueAccess) -> Iterator[str]:
    for name in access.missing_namespaces:
        yield f"namespace {name} does not exist: create it, or remove it from spec.namespaces"


def _exceeded_by_children(occupancy: Occupancy, queue: Queue) -> Iterator[str]:
    """The resources of which the queues below a queue have more quota than itself."""
    tree = occupancy.tree
    below = tree.children.get(queue.name, ())
    for resource, quota in _quotas(occupancy, queue):
        together = _together(occupancy, below, resource)
        if together > quota:
            yield (
                f"{describe(resource)}: the queues below it have a quota of "
                f"{write_amount(resource, together)} together, and it has "
                f"{write_amount(resource, quota)}: raise its quota, or lower theirs"
            )


def _beyond_cluster(occupancy: Occupancy, queue: Queue) -> Iterator[str]:
    """The resources of which the cluster has less than a queue without a parent promises."""
    if queue.parent is not None:
        return
    for resource, quota in _quotas(occupancy, queue):
        total = cluster_total(occupancy, resource)
        together = _together(occupancy, occupancy.tree.children[""], resource)
        if quota and together > total:
            yield (
                f"{describe(resource)}: the queues without a parent have a quota of "
                f"{write_amount(resource, together)} together, this one of "
                f"{write_amount(resource, quota)}, and the cluster has "
                f"{write_amount(resource, total)}: lower the quotas, or add nodes"
            )


def _quotas(occupancy: Occupancy, queue: Queue) -> Iterator[tuple[Resource, int]]:
    """The quotas that a queue names, unless it ends, or one above it."""
    tree = occupancy.tree
    if not any(tree.queues[at].ends for at in tree.paths[queue.name]):
        for resource, entitlement in queue.entitlements.items():
            if entitlement.quota is not None:
                yield resource, entitlement.quota


def _together(occupancy: Occupancy, queues: Iterable[str], resource: Resource) -> int:
    at = occupancy.tree.index[resource]
    return sum(occupancy.tree.quotas(name)[at] or 0 for name in queues)


def _some(findings: Sequence[str]) -> str:
    more = len(findings) - _SHOWN
    shown = ". ".join(findings[:_SHOWN])
    return f"{shown}. And {more} more" if more > 0 else shown

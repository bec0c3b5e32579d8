"""The queues as a tree, with their entitlements in the order of a table of resources."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.placement.cluster.gpu import GPU
from controller.engine.model.queue import (
    EVICTION_GRACE,
    UNNAMED,
    CutOffCause,
    Entitlement,
    Hold,
    Queue,
    RespectBudgets,
)
from controller.engine.model.resource import Gpus, Resource, describe, is_of_devices

_DEEPEST: Final = 64
"""So many levels a tree of queues may have."""
ROOT: Final = ""
"""The name of what is above all queues; it accounts for what no queue is responsible for."""
LOST: Final = "/"
"""No queue has this name; it accounts for groups whose queue is not in the tree."""


class QueueTree:
    """The queues that can take work or pass it on, by name.

    A queue whose parent does not exist, or is below itself, is not in the tree: nothing starts in
    it.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        by_name = {queue.name: queue for queue in sorted(queues, key=lambda queue: queue.name)}
        self.resources: tuple[Resource, ...] = tuple(
            sorted(
                {resource for queue in by_name.values() for resource in queue.entitlements},
                key=describe,
            )
        )
        """The resources that a queue names."""
        self.index: Mapping[Resource, int] = {
            resource: at for at, resource in enumerate(self.resources)
        }
        self._of_devices = [is_of_devices(resource) for resource in self.resources]
        self.queues: dict[str, Queue] = {}
        self.paths: dict[str, tuple[str, ...]] = {}
        """From each queue to the top, itself first; ROOT and LOST have paths of their own."""
        self.cut_off: dict[str, tuple[str, CutOffCause]] = {}
        """The queues that are not in the tree: the queue at which the way up ends, and why."""
        for name, queue in by_name.items():
            path, cut_off = _path(name, by_name)
            if cut_off is not None:
                self.cut_off[name] = path[-1], cut_off
            else:
                self.queues[name], self.paths[name] = queue, path
        self.paths[ROOT], self.paths[LOST] = (ROOT,), (LOST,)
        self.children: dict[str, list[str]] = {ROOT: []}
        for name, queue in self.queues.items():
            self.children.setdefault(queue.parent or ROOT, []).append(name)
        self._entitlements: dict[str, tuple[Entitlement, ...]] = {}
        for name in self.queues:
            self._entitle(name)
        self._quotas = {
            name: tuple(entitlement.quota for entitlement in entitlements)
            for name, entitlements in self._entitlements.items()
        }
        self._kept_quotas = {
            name: tuple(map(_in_whole_gpus, self.resources, quotas))
            for name, quotas in self._quotas.items()
        }
        self._named = {
            name: frozenset(self.index[resource] for resource in queue.entitlements)
            for name, queue in self.queues.items()
        }
        self._limits = {
            name: tuple(entitlement.limit for entitlement in entitlements)
            for name, entitlements in self._entitlements.items()
        }

    def is_leaf(self, name: str) -> bool:
        """Whether a queue of the tree is for groups: there is no queue below it."""
        return name in self.queues and name not in self.children

    def takes_work(self, name: str) -> bool:
        """Whether groups of a queue may start."""
        return self.is_leaf(name) and self.stopped_by(name) is None

    def stopped_by(self, name: str) -> Queue | None:
        """The queue that keeps groups of a queue of the tree from starting: itself, or one above.

        None if none does.
        """
        path = (self.queues[at] for at in self.paths[name])
        return next((queue for queue in path if not queue.admits), None)

    def is_emptied(self, name: str) -> bool:
        """Whether the groups of a queue are evicted."""
        return name in self.queues and any(
            self.queues[at].hold is Hold.DRAIN for at in self.paths[name]
        )

    def entitlements(self, name: str) -> Sequence[Entitlement]:
        """What a queue may have, in the order of the resources."""
        return self._entitlements[name]

    def quotas(self, name: str) -> Sequence[int | None]:
        """The quotas of a queue; None for all that it asks for."""
        return self._quotas[name]

    def kept_quotas(self, name: str) -> Sequence[int | None]:
        """What groups of a queue may keep from others: its quotas, in whole GPUs."""
        return self._kept_quotas[name]

    def limits(self, name: str) -> Sequence[int | None]:
        """The limits of a queue; None for none."""
        return self._limits[name]

    def named(self, name: str) -> frozenset[int]:
        """The resources that a queue itself names, by their place in the table."""
        return self._named.get(name, frozenset())

    def preempt_min_runtime(self, name: str, default: float) -> float:
        """How long groups of a queue are safe from their own queue, in seconds."""
        values = (self.queues[one].preempt_min_runtime for one in self.paths[name])
        return next((value for value in values if value is not None), default)

    def reclaim_min_runtime(self, victim: str, reclaimer: str, default: float) -> float:
        """How long groups of the victim's queue are safe from the reclaimer's, in seconds.

        The queue just below the one that both have in common says it, else the nearest above it.
        """
        common = set(self.paths[reclaimer])
        path = self.paths[victim]
        below = [one for one in path if one not in common]
        upwards = path[max(0, len(below) - 1) :]
        values = (self.queues[one].reclaim_min_runtime for one in upwards)
        return next((value for value in values if value is not None), default)

    def eviction_grace(self, name: str) -> float:
        """The longest grace period of a queue's pods when they are evicted, in seconds."""
        path = self.paths[name] if name in self.queues else ()  # it may be LOST
        values = (self.queues[one].eviction_grace for one in path)
        return next((value for value in values if value is not None), EVICTION_GRACE)

    def respect_budgets(self, name: str) -> RespectBudgets:
        """For which pods of a queue disruption budgets are respected when others reclaim."""
        values = (self.queues[one].respect_budgets for one in self.paths[name])
        known = (value for value in values if value is not None)
        return next(known, RespectBudgets.WITHIN_QUOTA)

    def placement(self, name: str, default: Policy) -> Policy:
        """Which nodes and devices come first for groups of a queue."""
        values = (self.queues[one].placement for one in self.paths[name])
        return next((value for value in values if value is not None), default)

    def _entitle(self, name: str) -> tuple[Entitlement, ...]:
        known = self._entitlements.get(name)
        if known is None:
            below = [self._entitle(child) for child in self.children.get(name, ())]
            known = self._entitlements[name] = tuple(
                self._entitlement(name, at, below) for at in range(len(self.resources))
            )
        return known

    def _entitlement(
        self, name: str, at: int, below: Sequence[Sequence[Entitlement]]
    ) -> Entitlement:
        queue = self.queues[name]
        named = queue.entitlements.get(self.resources[at])
        if queue.ends:
            return Entitlement(0, None if named is None else named.limit, Fraction(0))
        if named is not None:
            return named
        if not self._of_devices[at]:
            # Who names devices only must not lose their guarantee over the cpu that goes with them.
            return Entitlement(quota=None, weight=Fraction(1))
        quotas = [entitlements[at].quota for entitlements in below]
        known = [quota for quota in quotas if quota is not None]
        together = sum(known) if len(known) == len(quotas) else None
        return Entitlement(quota=together, weight=UNNAMED.weight)


def _in_whole_gpus(resource: Resource, quota: int | None) -> int | None:
    """A quota, rounded up to a whole number of GPUs."""
    if quota is None or not isinstance(resource, Gpus):
        return quota
    return -(-quota // GPU) * GPU


def _path(name: str, queues: Mapping[str, Queue]) -> tuple[tuple[str, ...], CutOffCause | None]:
    """From a queue to the top, or to the parent with which the way ends before, and why it does."""
    path = {name: None}
    queue = queues[name]
    while (parent := queue.parent) is not None:
        if parent not in queues:
            return (*path, parent), CutOffCause.MISSING
        if parent in path:
            return (*path, parent), CutOffCause.CYCLE
        if len(path) >= _DEEPEST:
            return (*path, parent), CutOffCause.DEPTH
        path[parent] = None
        queue = queues[parent]
    return tuple(path), None

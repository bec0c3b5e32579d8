"""Queue: whose turn it is, and what its groups may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final

from carina_dra.allocator.preference import Policy
from controller.engine.model.resource import Resource


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a queue may have of one resource, in the units of the resource."""

    quota: int | None = 0
    """What is guaranteed; None for all that it asks for."""
    limit: int | None = None
    """What its groups never exceed together; None for no limit."""
    weight: Fraction = Fraction(1)
    """Its part of what is over the quotas, among its siblings; 0 for nothing."""


QUEUE_LABEL: Final = "scheduling.carina.dev/queue"
"""The label with the name of a queue: of its pods, and of a claim that only they may use."""
UNNAMED: Final = Entitlement()
EVICTION_GRACE: Final = 600.0
"""Seconds; the `eviction_grace` of a queue if no queue from it to the top has one."""
LEAST_GRACE: Final = 30.0
"""Seconds that a pod has to end when budgets have used up the `eviction_grace` of its queue, unless
that is less: what a pod has that names no grace period."""


class CutOffCause(StrEnum):
    """Why a queue is not in the tree of queues."""

    MISSING = "missing"
    """A queue above it does not exist."""
    CYCLE = "cycle"
    """Its parents form a cycle."""
    DEPTH = "depth"
    """Too many queues are above it."""


class RespectBudgets(StrEnum):
    """For which of its pods a queue has disruption budgets respected when others reclaim."""

    ALWAYS = "always"
    """For all."""
    WITHIN_QUOTA = "withinQuota"
    """For what is within its quota; beyond it, for the time of its `eviction_grace` only."""


class Hold(StrEnum):
    """Whether an administrator has stopped a queue, with all queues below it."""

    NONE = "None"
    HOLD = "Hold"
    """Nothing starts in it. What runs goes on."""
    DRAIN = "HoldAndDrain"
    """Nothing starts in it, and its groups are evicted."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue. Leaves of the tree of queues take groups; others divide what they have."""

    name: str
    parent: str | None = None
    priority: int = 100
    """What is over the quotas goes to queues of a higher priority first."""
    created: float = 0
    """Unix time in seconds; of equal queues, the oldest comes first."""
    entitlements: Mapping[Resource, Entitlement] = field(default_factory=dict)
    preempt_min_runtime: float | None = None
    """Seconds for which a group is safe from its own queue; None for the parent's."""
    reclaim_min_runtime: float | None = None
    """Seconds for which a group is safe from other queues; None for the parent's."""
    eviction_grace: float | None = None
    """The longest grace period, in seconds, of its pods when they are evicted; None for the
    parent's."""
    respect_budgets: RespectBudgets | None = None
    """None for the parent's."""
    placement: Policy | None = None
    """Which nodes and devices come first; None for the parent's."""
    reserves: bool = False
    """Whether its first group that waits for room has a reservation, which others may not delay."""
    deleted: float | None = None
    """When it was deleted, as a Unix time. It stays until no group has anything of it."""
    hold: Hold = Hold.NONE

    @property
    def admits(self) -> bool:
        """Whether groups may start in it, or in a queue below it."""
        return self.deleted is None and self.hold is Hold.NONE

    @property
    def ends(self) -> bool:
        """Whether it is to become empty. It has no quota and no weight then."""
        return self.deleted is not None or self.hold is Hold.DRAIN

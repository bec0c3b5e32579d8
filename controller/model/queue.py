"""Queue: whose turn it is, and what its groups may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from carina_dra.allocator.preference import Policy
from controller.model.resource import Resource


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
"""The label of a ResourceClaim that only groups of one queue may use."""
UNNAMED: Final = Entitlement()


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
    placement: Policy | None = None
    """Which nodes and devices come first; None for the parent's."""
    reserves: bool = False
    """Whether its first group that waits for room has a reservation, which others may not delay."""

"""The answer to a snapshot: who starts, who waits for whom to leave, and who waits for what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from carina_dra.resource import Allocation
from controller.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """A pod starts on a node now."""

    pod: str
    node: str
    allocations: tuple[tuple[str, Allocation], ...]
    """What its claims get that have nothing yet, by claim (`namespace/name`)."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pod starts on a node as soon as others have left; what it gets there is kept for it."""

    pod: str
    node: str
    allocations: tuple[tuple[str, Allocation], ...]


class Action(StrEnum):
    """Why pods are evicted."""

    CONSOLIDATE = "consolidate"
    """They move, so that another group fits."""
    RECLAIM = "reclaim"
    """Their queue has more than its fair share, and another has less."""
    PREEMPT = "preempt"
    """A group of their queue has a higher priority."""
    STALE = "stale"
    """Their group has fewer pods than it needs."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod is evicted."""

    pod: str
    node: str
    action: Action
    group: str
    """The group for which it goes; for a stale group, itself."""


Step: TypeAlias = Start | Nomination | Eviction


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a search for victims was cut short."""

    action: Action
    looked: tuple[int, ...]
    """For each pod that was looked at, one after the other: on how many nodes it had no place."""
    moves: bool = False
    """Whether groups whose queue need not give could go as well, if they fit elsewhere."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What one cycle leaves to the next, so that nothing is asked again before it can change."""

    nominations: tuple[Nomination, ...] = ()
    refusals: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    """By group: what has been refused, and why, while nothing relevant has changed."""
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    """By group: where its search for victims goes on that was cut short."""
    fair_shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By queue and resource, as in the plan: those that the refusals rest on."""
    reservations: Mapping[str, float] = field(default_factory=dict)
    """By group that waits for room: when there will be room for it, as a Unix time."""
    wake: float | None = None
    """When time alone may make possible what has been refused, as a Unix time; None for never."""
    outdated: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    """By group that is to be asked again: why it waited when it was asked last."""
    deferred: tuple[str, ...] = ()
    """The groups that no cycle has asked since time ended one early; the next cycles ask them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows from a snapshot; every list is in the order of the decisions."""

    starts: tuple[Start, ...]
    nominations: tuple[Nomination, ...]
    """New ones, and those of earlier cycles that still wait."""
    evictions: tuple[Eviction, ...]
    waiting: Mapping[str, tuple[Reason, ...]]
    """By group that wants more than it has: why."""
    fair_shares: Mapping[str, Mapping[str, int]]
    """By queue and resource (`describe`)."""
    memory: Memory
    stale: tuple[str, ...]
    """The groups that have fewer pods than they need, but some."""
    steps: int
    """What the cycle cost, in placements tried."""
    wake: float | None
    """When time alone may change the answer, as a Unix time; None for never."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done now."""
        return not (self.starts or self.evictions)

    @property
    def is_unfinished(self) -> bool:
        """Whether the next cycle has something to do without any change."""
        return bool(self.memory.cursors or self.memory.deferred)

"""The answer to a snapshot: who starts, who waits for whom to leave, and who waits for what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from carina_dra.resource import Allocation
from controller.engine.model.failed_device import FailedDevice
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import Reason


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
    DRAIN = "drain"
    """Their queue is emptied, by order of an administrator."""
    RELEASE = "release"
    """Their node is released, by order of an administrator."""
    REPLACE = "replace"
    """A device of their group has failed, and the group asks to be planned again."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod is evicted."""

    pod: str
    node: str
    action: Action
    group: str
    """The group for which it goes; its own if it goes for no other."""
    grace: float
    """The longest grace period that it gets, in seconds."""
    moves: bool = False
    """Whether a place elsewhere is kept for the pod that replaces it."""
    past_budgets: bool = False
    """Whether disruption budgets that refuse it are not respected any more."""
    overran: bool = False
    """Whether it may go, whatever its priority, since its group runs for longer than it said."""


Step: TypeAlias = Start | Nomination | Eviction


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a search for victims was cut short."""

    action: Action
    looked: tuple[int, ...]
    """For each pod that was looked at, one after the other: on how many nodes it had no place."""
    moves: bool = False
    """Whether groups whose queue need not give could go as well, if they fit elsewhere."""
    past_budgets: bool = False
    """Whether budgets are not respected any more that have refused the group for too long."""


@dataclass(frozen=True, slots=True)
class SetAsideGroup:
    """A group that is not asked for a while, unless it changes."""

    until: float
    """Unix time in seconds."""
    times: int
    """How often in a row it has been set aside."""
    reasons: tuple[Reason, ...]
    """Why it waits."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Work on one group ended with an unexpected error in this cycle, and was undone."""

    group: str
    times: int
    """How often in a row."""
    traceback: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A place for the pod that replaces one that moves."""

    pod: str
    """The pod that moves."""
    line: str
    """That of both pods."""
    pod_set: str
    node: str
    needs: PodNeeds
    allocations: tuple[tuple[int, Allocation], ...]
    """What its claims get, by their index in the pod."""
    until: float | None = None
    """A Unix time; None while the pod that moves is not gone yet."""
    queue: str = ""
    """The one that the pod that moves was charged to; empty if none was."""
    preemptible: bool = True
    """Whether that was so of the pod that moves."""


@dataclass(frozen=True, slots=True)
class BudgetClock:
    """For how long disruption budgets of one queue have refused groups of another."""

    since: float
    """A Unix time in seconds."""
    groups: tuple[str, ...]
    """The groups that wait and have been refused."""
    idle: float | None = None
    """Since when none of them waits any more, as a Unix time."""


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """What one cycle leaves to the next, so that nothing is asked again before it can change."""

    nominations: tuple[Nomination, ...] = ()
    kept_places: tuple[KeptPlace, ...] = ()
    """For pods that are still to come."""
    refusals: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    """By group: what has been refused, and why, while nothing relevant has changed."""
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    """By group: where its search for victims goes on that was cut short."""
    fair_shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By queue and resource, as in the plan: those that the refusals rest on."""
    reservations: Mapping[str, float] = field(default_factory=dict)
    """By group that waits for room: when there will be room for it, as a Unix time."""
    delayed: tuple[str, ...] = ()
    """The groups that wait and have lost a reservation by groups that run longer than they said."""
    declared_ends: Mapping[str, float] = field(default_factory=dict)
    """By group that runs: when it ends, by the run time that it declared first. Only if a queue has
    `reserves`, as all that concerns run times."""
    barred: Mapping[str, float] = field(default_factory=dict)
    """By namespace: until when its run times are not believed, since a group of it has ended that
    ran longer than it said."""
    wake: float | None = None
    """When time alone may make possible what this or an earlier cycle has refused, as a Unix time;
    None for never."""
    outdated: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    """By group that is to be asked again: why it waited when it was asked last."""
    deferred: tuple[str, ...] = ()
    """The groups that no cycle has asked since time ended one early; the next cycles ask them."""
    budget_refusals: Mapping[str, Mapping[str, BudgetClock]] = field(default_factory=dict)
    """By queue that asks, and queue that has to give: for how long disruption budgets refuse."""
    set_aside: Mapping[str, SetAsideGroup] = field(default_factory=dict)
    """By group that has not changed since: what is known of it while it is not asked."""
    debts: Mapping[str, int] = field(default_factory=dict)
    """By queue, and by `queue/namespace`: the steps that its groups have cost beyond its part."""
    asked_late: Mapping[str, float] = field(default_factory=dict)
    """By `queue/namespace`: until when, as a Unix time, others are asked before its groups, since
    an attempt for one of them was undecided."""
    gives_way_since: Mapping[str, float] = field(default_factory=dict)
    """By group: since when attempts for it have been given up for others who came, as a Unix time.
    """
    passes_over: bool = False
    """Whether these groups were left to the next cycle, so that what others got was written."""
    held_back: tuple[str, ...] = ()
    """The groups that were not asked: their queue or namespace is in debt, and others asked."""
    attempt_limits: Mapping[str, int] = field(default_factory=dict)
    """By group that has not changed since an attempt was undecided: what its next one may cost, in
    steps."""


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
    memory: CarriedOver
    stale: tuple[str, ...]
    """The groups that have fewer pods than they need, but some."""
    steps: int
    """What the cycle cost, in placements tried."""
    wake: float | None
    """When time alone may change the answer, as a Unix time; None for never."""
    failures: tuple[Failure, ...] = ()
    undecided: tuple[str, ...] = ()
    """The groups of which an attempt has cost more than it may, in this cycle."""
    degraded: Mapping[str, tuple[FailedDevice, ...]] = field(default_factory=dict)
    """By group that runs: its devices that have failed."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done now."""
        return not (self.starts or self.evictions)

    @property
    def is_unfinished(self) -> bool:
        """Whether the next cycle has something to do without any change."""
        memory = self.memory
        return bool(memory.cursors or memory.deferred or memory.held_back)

"""Why a group waits, as values.

Each type has the reason's `word`, which is part of the API: programs match it in conditions and
Events. Its text is what users read, and its `remedy` what would help.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from controller.engine.model.queue import Queue
from controller.engine.model.queue_reason import (
    ClosedQueue,
    CutOffQueue,
    OverFairShare,
    OverLimit,
    OverQuota,
    StoppedQueue,
    TooFewPods,
    TooManyGpus,
    UncountedGpus,
    UnknownQueue,
)
from controller.engine.model.room_reason import (
    BadClaim,
    BadVolume,
    ExclusiveDevices,
    NoDomain,
    NoRoom,
)
from controller.engine.model.time_reason import (
    Behind,
    DecisionFailed,
    Delayed,
    RefusedByScheduler,
    SearchCut,
    Undecided,
)

__all__ = [
    "BadClaim",
    "BadVolume",
    "Behind",
    "ClosedQueue",
    "CutOffQueue",
    "DecisionFailed",
    "Delayed",
    "ExclusiveDevices",
    "NoDomain",
    "NoRoom",
    "NoVictims",
    "OverFairShare",
    "OverLimit",
    "OverQuota",
    "Reason",
    "RefusedByScheduler",
    "SearchCut",
    "StoppedQueue",
    "TooFewDevices",
    "TooFewParts",
    "TooFewPods",
    "TooManyGpus",
    "UncountedGpus",
    "Undecided",
    "Unfair",
    "UnknownQueue",
    "what_helps",
]


_HUNDREDTH: Final = 10_000
"""Of a whole device, in millionths."""


@dataclass(frozen=True, slots=True)
class TooFewDevices:
    """Nobody can move: the group asks for more devices than are free together."""

    free: int
    wanted: int

    def __str__(self) -> str:
        return f"only {self.free} of {self.wanted} devices are free"


@dataclass(frozen=True, slots=True)
class TooFewParts:
    """The same where devices are partitioned or shared: the parts that are free are too few."""

    free: int
    """In millionths of a whole device."""
    wanted: int

    def __str__(self) -> str:
        free, wanted = self.free // _HUNDREDTH / 100, -(-self.wanted // _HUNDREDTH) / 100
        return f"only {free:g} of {wanted:g} devices are free together"


@dataclass(frozen=True, slots=True)
class Unfair:
    """With what others would give, the group's queue would have more than they have left."""

    def __str__(self) -> str:
        return "it would then have more of its fair share than those who gave"


@dataclass(frozen=True, slots=True)
class NoVictims:
    """Evicting others does not make room."""

    word: ClassVar = "NoVictims"

    action: str
    """`consolidate`, `reclaim` or `preempt`."""
    tried: int
    """The number of groups that could be evicted."""
    why: "Reason | TooFewDevices | TooFewParts | Unfair"
    """Why evicting them is not enough."""
    guarded: tuple[str, ...] = ()
    """The queues of which a disruption budget refuses evictions."""

    def __str__(self) -> str:
        return f"{self.result}: {self.why}"

    @property
    def result(self) -> str:
        """What came of it, without the cause."""
        plan = "no group may be evicted"
        if self.tried:
            plan = (
                f"no plan among {self.tried} candidate {'group' if self.tried == 1 else 'groups'}"
            )
        if self.guarded:
            queues = ", ".join(self.guarded)
            plan += f"; a disruption budget of queue {queues} refuses some of their pods"
        match self.action:
            case "consolidate":
                return f"moving other pods does not make room ({plan})"
            case "reclaim":
                return f"what other queues have to give back does not make room ({plan})"
            case _:
                return f"evicting groups of lower priority does not make room ({plan})"

    @property
    def remedy(self) -> str:
        """What would help."""
        if self.tried:
            return "wait until other work ends, or ask for less"
        return "wait until other work ends; none may be evicted for this group"


Reason: TypeAlias = (
    UnknownQueue
    | CutOffQueue
    | ClosedQueue
    | StoppedQueue
    | TooFewPods
    | BadClaim
    | BadVolume
    | ExclusiveDevices
    | OverLimit
    | OverQuota
    | TooManyGpus
    | UncountedGpus
    | NoRoom
    | NoDomain
    | OverFairShare
    | NoVictims
    | Delayed
    | Behind
    | RefusedByScheduler
    | SearchCut
    | DecisionFailed
    | Undecided
)


def what_helps(reason: Reason, queues: Iterable[Queue]) -> str:
    """Returns what a user or an administrator can do about a reason, if these are the queues."""
    if isinstance(reason, UnknownQueue):
        known = list(queues)
        parents = {queue.parent for queue in known}
        return reason.remedy_among([queue.name for queue in known if queue.name not in parents])
    return reason.remedy

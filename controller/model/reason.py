"""Why a group waits, as values; their text is what users read."""

from dataclasses import dataclass
from typing import TypeAlias

from controller.model.resource import Resource, describe


@dataclass(frozen=True, slots=True)
class UnknownQueue:
    """The queue does not exist, or is not a leaf."""

    queue: str
    exists: bool

    def __str__(self) -> str:
        if self.exists:
            return f"queue {self.queue} has child queues; only queues without any take work"
        return f"queue {self.queue} does not exist"


@dataclass(frozen=True, slots=True)
class CutOffQueue:
    """The way up from the queue does not end, or is too long."""

    queue: str
    parent: str
    """The queue above it that does not exist, is below itself, or has too many levels below it."""

    def __str__(self) -> str:
        return (
            f"queue {self.queue} takes no work: {self.parent!r}, a parent of it, does not exist, "
            "is below itself, or has more than 63 levels below it"
        )


@dataclass(frozen=True, slots=True)
class TooFewPods:
    """A pod set has fewer pods than it needs, not counting those that are held back."""

    pod_set: str
    has: int
    needs: int

    def __str__(self) -> str:
        return f"pod set {self.pod_set or '(default)'} has {self.has} of {self.needs} pods"


@dataclass(frozen=True, slots=True)
class BadClaim:
    """No node can satisfy a claim of the pod, or it does not exist."""

    pod: str
    reason: str

    def __str__(self) -> str:
        return f"pod {self.pod}: {self.reason}"


@dataclass(frozen=True, slots=True)
class OverLimit:
    """It would exceed the limit of its queue, or of a queue above."""

    queue: str
    resource: Resource
    limit: int
    allocated: int
    asked: int

    def __str__(self) -> str:
        return (
            f"limit of queue {self.queue}: {describe(self.resource)}: "
            f"{self.allocated} in use and {self.asked} asked for, of {self.limit}"
        )


@dataclass(frozen=True, slots=True)
class OverQuota:
    """It is not preemptible, and would exceed the quota of its queue, or of a queue above."""

    queue: str
    resource: Resource
    quota: int
    allocated: int
    """By groups that are not preemptible."""
    asked: int

    def __str__(self) -> str:
        return (
            f"quota of queue {self.queue} for what is not preemptible: {describe(self.resource)}: "
            f"{self.allocated} in use and {self.asked} asked for, of {self.quota}"
        )


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No node has room for a pod; on how many nodes each constraint was the first to fail."""

    pod: str
    nodes: int
    """How many nodes there are, or, with a topology constraint, in the best domain."""
    fell: tuple[tuple[str, int], ...]
    """Constraints such as `taints`, `cpu` or `devices`, most nodes first."""
    notes: tuple[str, ...] = ()
    """What is wrong with nodes, or with selectors on their devices, if it is known."""

    def __str__(self) -> str:
        fell = ", ".join(f"{constraint} on {count}" for constraint, count in self.fell)
        notes = "".join(f"; {note}" for note in self.notes)
        where = f" ({fell})" if fell else ""
        return f"pod {self.pod} has no place on {self.nodes} nodes{where}{notes}"


@dataclass(frozen=True, slots=True)
class NoDomain:
    """No domain of a topology has room for all pods that must be together."""

    level: str
    domains: int

    def __str__(self) -> str:
        return f"none of {self.domains} domains of {self.level} has room for all of its pods"


@dataclass(frozen=True, slots=True)
class OverFairShare:
    """Nothing is reclaimed for it: with it, its queue would have more than its fair share."""

    queue: str
    resource: Resource
    share: int
    allocated: int
    asked: int

    def __str__(self) -> str:
        return (
            f"fair share of queue {self.queue}: {describe(self.resource)}: "
            f"{self.allocated} in use and {self.asked} asked for, of {self.share}"
        )


@dataclass(frozen=True, slots=True)
class NoVictims:
    """Evicting others does not make room."""

    action: str
    """`consolidate`, `reclaim` or `preempt`."""
    tried: int
    """How many groups could be evicted."""
    why: str
    """Why they did not do."""

    def __str__(self) -> str:
        return f"{self.action}: {self.tried} groups could be evicted; {self.why}"


@dataclass(frozen=True, slots=True)
class Delayed:
    """Nothing is evicted for it before this time."""

    until: float
    """Unix time in seconds."""

    def __str__(self) -> str:
        return f"nothing is evicted for it before {self.until:.0f}"


@dataclass(frozen=True, slots=True)
class Behind:
    """It would delay a group that holds a reservation."""

    group: str

    def __str__(self) -> str:
        return f"it would delay group {self.group}, which holds a reservation"


@dataclass(frozen=True, slots=True)
class SearchCut:
    """The search for victims reached its limit in this cycle, and goes on in the next."""

    action: str
    looked_at: int
    """At how many nodes it has looked so far."""

    def __str__(self) -> str:
        return f"{self.action}: {self.looked_at} nodes looked at so far; the search goes on"


Reason: TypeAlias = (
    UnknownQueue
    | CutOffQueue
    | TooFewPods
    | BadClaim
    | OverLimit
    | OverQuota
    | NoRoom
    | NoDomain
    | OverFairShare
    | NoVictims
    | Delayed
    | Behind
    | SearchCut
)

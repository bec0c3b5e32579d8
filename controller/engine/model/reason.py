"""Why a group waits, as values; their text is what users read."""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from controller.engine.model.queue import CutOffCause
from controller.engine.model.resource import Resource, amount_text, describe


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
    """The queue above it that does not exist, with which the cycle begins, or that is too high."""
    cause: CutOffCause

    def __str__(self) -> str:
        match self.cause:
            case CutOffCause.MISSING:
                why = f"queue {self.parent}, which is above it, does not exist"
            case CutOffCause.CYCLE:
                why = f"its parents form a cycle, which comes back to queue {self.parent}"
            case CutOffCause.DEPTH:
                why = "more than 63 queues are above it"
            case _:
                assert_never(self.cause)
        return f"queue {self.queue} takes no work: {why}"

    @property
    def remedy(self) -> str:
        """What an administrator can do about it."""
        match self.cause:
            case CutOffCause.MISSING:
                return (
                    f"create queue {self.parent}, or give the queues below it another spec.parent"
                )
            case CutOffCause.CYCLE:
                return "give one of the queues in the cycle another spec.parent"
            case CutOffCause.DEPTH:
                return "give it, or a queue above it, another spec.parent"
        assert_never(self.cause)


@dataclass(frozen=True, slots=True)
class ClosedQueue:
    """The queue, or a queue above it, was deleted, or is emptied."""

    queue: str
    """The queue that was deleted or is emptied."""

    def __str__(self) -> str:
        return f"queue {self.queue} is being deleted or emptied, and admits nothing"


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
class BadVolume:
    """A volume claim of the pod does not exist, or cannot be used now."""

    pod: str
    reason: str
    """In the words of kube-scheduler, where it has some."""

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
            f"{amount_text(self.resource, self.allocated)} in use and "
            f"{amount_text(self.resource, self.asked)} asked for, of "
            f"{amount_text(self.resource, self.limit)}"
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
            f"{amount_text(self.resource, self.allocated)} in use and "
            f"{amount_text(self.resource, self.asked)} asked for, of "
            f"{amount_text(self.resource, self.quota)}"
        )


@dataclass(frozen=True, slots=True)
class TooManyGpus:
    """It is not preemptible, and its queue would keep parts of more GPUs than its quota."""

    queue: str
    resource: Resource
    quota: int
    """In whole GPUs."""
    keeps: int
    """What its queue, or a queue above, would have of groups that are not preemptible, if each GPU
    counts as a whole one."""

    def __str__(self) -> str:
        return (
            f"quota of queue {self.queue} for what is not preemptible: {describe(self.resource)}: "
            f"parts of {amount_text(self.resource, self.keeps)} GPUs, which nobody else could have "
            f"as whole ones, of {amount_text(self.resource, self.quota)}"
        )


@dataclass(frozen=True, slots=True)
class UncountedGpus:
    """It would have GPUs that no resource of its queue, or of a queue above, counts."""

    queue: str

    def __str__(self) -> str:
        return (
            f"queue {self.queue} names resources of GPUs, and none of them counts the GPUs that it "
            "would get; ask for GPUs that the queue names, or have the queue name all GPUs with "
            "`gpus: {}` in spec.resources"
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
            f"{amount_text(self.resource, self.allocated)} in use and "
            f"{amount_text(self.resource, self.asked)} asked for, of "
            f"{amount_text(self.resource, self.share)}"
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
    guarded: tuple[str, ...] = ()
    """The queues of which a disruption budget refuses evictions."""

    def __str__(self) -> str:
        return f"{self.result}: {self.why}"

    @property
    def result(self) -> str:
        """What came of it, without the cause."""
        groups = f"{self.tried} groups could be evicted" if self.tried else "no group may be"
        if self.guarded:
            queues = ", ".join(self.guarded)
            groups += f", but a disruption budget of queue {queues} refuses some of their pods"
        match self.action:
            case "consolidate":
                return f"moving other pods does not make room ({groups})"
            case "reclaim":
                return f"what other queues have to give back does not make room ({groups})"
            case _:
                return f"evicting groups of lower priority does not make room ({groups})"


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
    """Empty where its name is not for the reader."""

    def __str__(self) -> str:
        which = f"group {self.group}, which" if self.group else "a group that"
        return f"it would delay {which} holds a reservation"


@dataclass(frozen=True, slots=True)
class RefusedByScheduler:
    """Its start was refused, by kube-scheduler or the API server; it is tried later and later."""

    words: str
    """By whom, and why, in their words."""

    def __str__(self) -> str:
        return f"its start was refused by {self.words}"


@dataclass(frozen=True, slots=True)
class SearchCut:
    """The search for victims reached its limit in this cycle, and goes on in the next."""

    action: str
    looked_at: int
    """At how many nodes it has looked so far."""

    def __str__(self) -> str:
        return f"{self.action}: {self.looked_at} nodes looked at so far; the search goes on"


@dataclass(frozen=True, slots=True)
class Failed:
    """Deciding on it failed with an unexpected error, so it is set aside for a while."""

    error: str
    """The class of the error; its text may name what belongs to others."""
    until: float
    """Unix time in seconds."""

    def __str__(self) -> str:
        return (
            f"deciding on it failed with an unexpected error ({self.error}); it is tried again at "
            f"{self.until:.0f}, or when it has changed"
        )


@dataclass(frozen=True, slots=True)
class Undecided:
    """An attempt has cost more than it may, so it is not known whether there is a place."""

    steps: int
    """What it has cost, in steps of about 10 microseconds."""
    about: str
    """What it was spent on, such as `pod team/train-0`."""
    until: float
    """Unix time in seconds."""

    def __str__(self) -> str:
        return (
            f"undecided after {self.steps} steps of work, at {self.about}; it is tried again at "
            f"{self.until:.0f}, or when it has changed"
        )


Reason: TypeAlias = (
    UnknownQueue
    | CutOffQueue
    | ClosedQueue
    | TooFewPods
    | BadClaim
    | BadVolume
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
    | Failed
    | Undecided
)

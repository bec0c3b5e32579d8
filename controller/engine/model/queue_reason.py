"""Why a group waits for its queue: the queue takes no work, or the group no part of it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, assert_never

from carina_dra.resource.errors import did_you_mean
from controller.engine.model.queue import CutOffCause
from controller.engine.model.resource import Resource, amount_text, describe, write_amount


@dataclass(frozen=True, slots=True)
class UnknownQueue:
    """The queue does not exist, or is not a leaf."""

    queue: str
    exists: bool

    def __str__(self) -> str:
        if self.exists:
            return f"queue {self.queue} has child queues; only queues without any take work"
        return f"queue {self.queue} does not exist"

    @property
    def word(self) -> str:
        """The CamelCase word of the reason."""
        return "QueueHasChildren" if self.exists else "UnknownQueue"

    def remedy_among(self, leaves: Collection[str]) -> str:
        """What would help, if these are the queues that take work."""
        if not leaves:
            return "create the queue; there is none yet"
        return f"create the queue, or name another one; {did_you_mean(self.queue, leaves)}"


@dataclass(frozen=True, slots=True)
class CutOffQueue:
    """The way up from the queue does not end, or is too long."""

    word: ClassVar = "QueueCutOff"

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
class StoppedQueue:
    """An administrator has stopped the queue, or a queue above it."""

    word: ClassVar = "QueueHeld"

    queue: str
    """The queue that is stopped."""

    def __str__(self) -> str:
        return f"queue {self.queue} is on hold, and nothing starts in it"

    @property
    def remedy(self) -> str:
        """What would help."""
        return f"wait until the queue is resumed: carina queue resume {self.queue}"


@dataclass(frozen=True, slots=True)
class ClosedQueue:
    """The queue, or a queue above it, was deleted."""

    word: ClassVar = "QueueClosed"

    queue: str
    """The queue that was deleted."""

    def __str__(self) -> str:
        return f"queue {self.queue} is being deleted, and admits nothing"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "create the pods again with the label of another queue"


@dataclass(frozen=True, slots=True)
class TooFewPods:
    """A pod set has fewer pods than it needs, not counting those that are held back."""

    word: ClassVar = "TooFewPods"

    pod_set: str
    has: int
    needs: int

    def __str__(self) -> str:
        return f"pod set {self.pod_set or '(default)'} has {self.has} of {self.needs} pods"

    @property
    def remedy(self) -> str:
        """What would help."""
        return (
            f"create {self.needs - self.has} more pods, open their scheduling gates, or lower "
            "minCount"
        )


@dataclass(frozen=True, slots=True)
class OverLimit:
    """It would exceed the limit of its queue, or of a queue above."""

    word: ClassVar = "OverLimit"

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

    @property
    def remedy(self) -> str:
        """What would help."""
        if self.asked > self.limit:
            most = write_amount(self.resource, self.limit)
            return f"ask for at most {most}, or raise the limit; it never starts at this one"
        needed = write_amount(self.resource, self.allocated + self.asked)
        return f"wait until work of the queue ends, or raise its limit to {needed}"


@dataclass(frozen=True, slots=True)
class OverQuota:
    """It is not preemptible, and would exceed the quota of its queue, or of a queue above."""

    word: ClassVar = "OverQuota"

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

    @property
    def remedy(self) -> str:
        """What would help."""
        needed = write_amount(self.resource, self.allocated + self.asked)
        return f"make it preemptible, or raise the quota of the queue to {needed}"


@dataclass(frozen=True, slots=True)
class TooManyGpus:
    """It is not preemptible, and its queue would keep parts of more GPUs than its quota."""

    word: ClassVar = "TooManyGpus"

    queue: str
    resource: Resource
    quota: int
    """In whole GPUs."""
    keeps: int
    """What groups of the queue that are not preemptible would have, each GPU as a whole one."""

    def __str__(self) -> str:
        return (
            f"quota of queue {self.queue} for what is not preemptible: {describe(self.resource)}: "
            f"parts of {amount_text(self.resource, self.keeps)} GPUs, which nobody else could have "
            f"as whole ones, of {amount_text(self.resource, self.quota)}"
        )

    @property
    def remedy(self) -> str:
        """What would help."""
        return "make it preemptible, raise the quota, or ask for parts that fit on fewer GPUs"


@dataclass(frozen=True, slots=True)
class OverFairShare:
    """Nothing is reclaimed for it: with it, its queue would have more than its fair share."""

    word: ClassVar = "OverFairShare"

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

    @property
    def remedy(self) -> str:
        """What would help."""
        needed = write_amount(self.resource, self.allocated + self.asked)
        return f"wait until something is free, or raise the quota of the queue to {needed}"


@dataclass(frozen=True, slots=True)
class UncountedGpus:
    """It would have GPUs that no resource of its queue, or of a queue above, counts."""

    word: ClassVar = "UncountedGpus"

    queue: str

    def __str__(self) -> str:
        return (
            f"queue {self.queue} names resources of GPUs, and none of them counts the GPUs that it "
            "would get; ask for GPUs that the queue names, or have the queue name all GPUs with "
            "`gpus: {}` in spec.resources"
        )

    @property
    def remedy(self) -> str:
        """What would help."""
        return "ask for GPUs that the queue names, or add `gpus: {}` to its resources"

"""A group of pods that start together: a gang, as a tree of pod sets.

The names follow KEP-4671 (PodGroup) where it has them. A pod that needs no others is a
group of one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeAlias, assert_never

from carina_dra.allocator.preference import Policy

DEEPEST: Final = 16
"""So many levels the tree of a group has at most; upstream's has 4."""


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """All pods below must be in one domain: on nodes with one value of a label."""

    topology: str
    """The name of the topology, whose levels are keys of node labels."""
    required: str | None = None
    """The level at which they must be together."""
    preferred: str | None = None
    """The level at which they should be together; wider ones are tried after it."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are alike to the group, and how many of them it needs."""

    name: str
    min_count: int
    """0 if all are optional."""
    topology: TopologyConstraint | None = None


@dataclass(frozen=True, slots=True)
class SubGroups:
    """Parts of a group, and how many of them it needs."""

    name: str
    children: tuple["SubGroup", ...]
    min_count: int
    """How many of the children must have what they need."""
    topology: TopologyConstraint | None = None


SubGroup: TypeAlias = PodSet | SubGroups


@dataclass(frozen=True, slots=True)
class SchedulerRefusal:
    """kube-scheduler or the API server has refused the start of a group, or of others like it."""

    words: str
    """By whom, and why, in their words."""
    holds: bool
    """Whether nothing of the group is tried at present."""
    evicts: bool
    """Whether others may be evicted for the group."""


class OnDeviceFailure(StrEnum):
    """What becomes of a group that runs, when the driver of a device of it taints the device."""

    WAIT = "wait"
    """Nothing: it says that it is degraded."""
    REPLACE = "replace"
    """It is evicted as a whole, and planned again."""


@dataclass(frozen=True)
class Group:
    """Pods of one queue that start together, or not at all.

    Raises:
        ValueError: the tree has more than `DEEPEST` levels.
    """

    key: str
    """`namespace/name`."""
    queue: str
    root: SubGroup
    priority: int = 0
    """Within its queue, groups of a higher priority come first."""
    preemptible: bool = True
    """Whether it may be evicted. If not, it never exceeds the quota of its queue."""
    preempts: bool = True
    """Whether others may be evicted for it (`preemptionPolicy`)."""
    moves: bool = True
    """Whether it may be moved to make room: a controller replaces its pods."""
    created: float = 0
    """Unix time in seconds."""
    started: float | None = None
    """When its minimum started last; None if it has not."""
    evicted: float | None = None
    """When a pod of it was evicted last, by a decision on groups."""
    device_eviction: float | None = None
    """When a pod of it was evicted last for a taint of a device that it had, if no pod has started
    since: by kube-controller-manager, or by the controller in its place."""
    stale_since: float | None = None
    """Since when it has fewer pods than it needs, but some."""
    staleness_grace: float | None = None
    """Seconds after which a stale group is evicted, if somebody needs what it has; infinite for
    never, None for the default, or `replacement_delay` if that is longer."""
    replacement_delay: float = 0
    """Seconds that its owner may take to replace a pod that has failed."""
    preemption_delay: float = 0
    """Seconds that it waits before others are evicted for it."""
    run_time: float | None = None
    """How many seconds it says that it runs."""
    placement: Policy | None = None
    """Which nodes and devices come first; None for the queue's."""
    on_device_failure: OnDeviceFailure = OnDeviceFailure.WAIT
    refusal: SchedulerRefusal | None = None
    """What kube-scheduler has refused. Until it accepts some, no more than the minimum is tried."""

    def __post_init__(self) -> None:
        if _levels(self.root) > DEEPEST:
            raise ValueError(f"group {self.key}: has more than {DEEPEST} levels of sub-groups")

    @cached_property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """All pod sets, in their order."""
        return tuple(_pod_sets(self.root))


def least_pods(part: SubGroup) -> int:
    """How many pods a part needs at least."""
    match part:
        case PodSet(min_count=least):
            return least
        case SubGroups(children=children, min_count=least):
            return sum(sorted(map(least_pods, children))[:least])
    assert_never(part)


def is_satisfied(part: SubGroup, counts: Mapping[str, int]) -> bool:
    """Whether a part has what it needs; `counts` are its pods by pod set."""
    match part:
        case PodSet(name=name, min_count=least):
            return counts.get(name, 0) >= least
        case SubGroups(children=children, min_count=least):
            return sum(is_satisfied(child, counts) for child in children) >= least
    assert_never(part)


def _pod_sets(root: SubGroup) -> Iterator[PodSet]:
    left = [root]  # whatever its depth, which a tenant chooses
    while left:
        part = left.pop()
        match part:
            case PodSet():
                yield part
            case SubGroups(children=children):
                left += reversed(children)


def _levels(root: SubGroup) -> int:
    """How many levels a tree has."""
    levels, parts = 0, [root]
    while parts:
        levels += 1
        parts = [child for part in parts if isinstance(part, SubGroups) for child in part.children]
    return levels

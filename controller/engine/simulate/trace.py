"""What is simulated: a cluster at the start, and what happens to it from outside."""

from dataclasses import dataclass, replace

from carina_dra.allocator.preference import Policy
from carina_dra.resource import ResourceClaim, ResourceSlice
from controller.engine.model.group import Group
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import Ended, Pod
from controller.engine.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Job:
    """A group of pods that comes at a time, and ends when it has done its work.

    A pod that is evicted, or loses its node, is replaced by another that waits. The pods have
    claims of their own.
    """

    group: Group
    pods: tuple[Pod, ...]
    claims: tuple[ResourceClaim, ...]
    arrival: float
    """Unix time in seconds."""
    work: float | None
    """For how many seconds it runs with all of its pods; with half of them, it takes twice as long.
    None for a job that does not end."""
    checkpoints: bool = False
    """Whether it keeps the work that it has done when it is interrupted."""

    @property
    def name(self) -> str:
        """The group's key."""
        return self.group.key

    @property
    def size(self) -> int:
        """How many pods do its work."""
        return sum(not isinstance(pod.state, Ended) for pod in self.pods)


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node joins the cluster."""

    at: float
    node: ClusterNode
    slices: tuple[ResourceSlice, ...]


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node leaves the cluster, with all that runs on it."""

    at: float
    node: str
    slices: tuple[ResourceSlice, ...]


NodeEvent = NodeAdded | NodeGone


@dataclass(frozen=True, slots=True)
class Trace:
    """A cluster, and what happens to it."""

    name: str
    start: Snapshot
    """Pods, groups and claims of jobs may be in it; they are there when the simulation begins."""
    jobs: tuple[Job, ...]
    """All jobs, those of `start` too, which arrive at its time."""
    node_events: tuple[NodeEvent, ...] = ()
    until: float | None = None
    """When the simulation ends, as a Unix time; None for when nothing is left to do."""
    grace: float = 30
    """How many seconds an evicted pod holds what it has."""
    replaced_after: float = 10
    """How many seconds after a pod is gone its job makes the one that replaces it."""
    period: float = 1
    """How many seconds there are between two cycles at least."""

    def placed_by(self, policy: Policy) -> "Trace":
        """The same with another placement policy, where neither queue nor job has its own."""
        settings = replace(self.start.settings, placement=policy)
        return replace(self, start=replace(self.start, settings=settings))

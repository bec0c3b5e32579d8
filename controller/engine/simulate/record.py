"""All that happened in a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from controller.engine.decide.nodes.stranded import Lack
from controller.engine.model.plan import Action


class PodOutcome(StrEnum):
    """How a pod left its node."""

    ENDED = "ended"
    EVICTED = "evicted"
    NODE_GONE = "node gone"


@dataclass(frozen=True, slots=True)
class PodRun:
    """A pod on a node."""

    pod: str
    node: str
    devices: tuple[str, ...]
    """As `pool/device`."""
    gpus: float
    started: float
    """Unix time in seconds."""
    ended: float | None = None
    """When it gave up what it had; None if it still has it."""
    outcome: PodOutcome | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, and where it ran."""

    job: str
    queue: str
    pods: int
    arrival: float
    started: float | None
    """When its minimum ran for the first time."""
    ended: float | None
    evictions: int
    """How many of its pods were evicted."""
    lost: float
    """Seconds of its work that were done and lost."""
    runs: tuple[PodRun, ...]
    waits: bool
    """Whether it has not what it needs to run, at the end."""
    waits_for: tuple[str, ...]
    """Why it does not get what it asks for, at the end; in words."""

    def waited(self, end: float) -> float:
        """Seconds from its arrival to its first start, or to the end of the simulation."""
        return max(0.0, (end if self.started is None else self.started) - self.arrival)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A job came."""

    at: float
    job: str


@dataclass(frozen=True, slots=True)
class Started:
    """Pods of a job started."""

    at: float
    job: str
    nodes: Mapping[str, int]
    """How many of them, by node."""


@dataclass(frozen=True, slots=True)
class PodsEvicted:
    """Pods of a job were evicted."""

    at: float
    job: str
    action: Action
    favoured: str
    """The group for which they went."""
    nodes: Mapping[str, int]
    moves: bool = False
    """Whether their places elsewhere are kept for those that replace them."""
    overran: bool = False
    """Whether the job runs for longer than it said."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A job did all of its work."""

    at: float
    job: str


@dataclass(frozen=True, slots=True)
class NodeCame:
    """A node joined the cluster."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A node left the cluster, and pods of these jobs with it."""

    at: float
    node: str
    jobs: tuple[str, ...]


Happening: TypeAlias = Arrived | Started | PodsEvicted | Finished | NodeCame | NodeLeft


@dataclass(frozen=True, slots=True)
class Sample:
    """How things stand from a time on, until the next sample."""

    at: float
    gpus: int
    """How many there are."""
    in_use: Mapping[str, float]
    """GPUs in use, by queue; also by pods that are being evicted."""
    waiting: Mapping[str, int]
    """Jobs that have not what they need to run, by queue."""
    allocated: Mapping[str, Mapping[str, int]]
    """By queue and resource: what it has, in the units of the resource."""
    fair_shares: Mapping[str, Mapping[str, int]]
    """By queue and resource: its part, of what it asks for, as the last cycle saw it."""
    stranded: Mapping[Lack, float]
    """Free GPUs that nothing can use that is typically asked for, by what is lacking."""

    def is_like(self, other: "Sample") -> bool:
        """Whether both are the same but for their time."""
        return replace(self, at=other.at) == other


@dataclass(frozen=True, slots=True)
class Record:
    """A simulation from its beginning to its end."""

    name: str
    policy: str
    start: float
    """Unix time in seconds; all others are absolute too."""
    end: float
    nodes: int
    gpus: int
    """How many nodes and GPUs there were at the start."""
    queues: tuple[str, ...]
    """Those that take work, in the order of their names."""
    cycles: int
    steps: int
    """What all cycles cost together, in placements tried."""
    jobs: tuple[JobRecord, ...]
    """In the order of their arrival."""
    happenings: tuple[Happening, ...]
    samples: tuple[Sample, ...]

"""Fleets of nodes as objects of the API, and what is asked of them.

A fleet has objects only, so that every allocator is measured on the same ones. `Fleet.slices` and
`Fleet.in_use` make their objects on each call, because a large fleet takes gigabytes as JSON.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, Final, TypeAlias

from carina_dra.placement.cluster.cluster import Cluster

Object: TypeAlias = dict[str, Any]
Pod: TypeAlias = tuple[Object, ...]
"""Claims that are allocated on one node together."""

DRIVER: Final = "gpu.carina.dev"
_PAGE: Final = 500
GATES: Final = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRADeviceBindingConditions",
    "DRAConsumableCapacity",
)
"""The features that Kubernetes 1.37 enables by default."""
CLASSES: Final[tuple[Object, ...]] = (
    {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    },
    {
        "metadata": {"name": "network"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "network.example.com"'}}]},
    },
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes with devices, of which some are in use."""

    nodes: tuple[Object, ...]
    slices: Callable[[], Iterable[Object]]
    in_use: Callable[[], Iterable[Object]]
    """ResourceClaims with an allocation."""


class Kind(Enum):
    """A kind of objects of a fleet."""

    NODES = "nodes"
    SLICES = "slices"
    IN_USE = "in use"


@dataclass(frozen=True, slots=True)
class Page:
    """Objects of one kind, as many as a client lists at a time, or fewer."""

    kind: Kind
    objects: list[Object]


def pages(fleet: Fleet) -> Iterator[Page]:
    """All objects of a fleet."""
    for kind, objects in (
        (Kind.NODES, fleet.nodes),
        (Kind.SLICES, fleet.slices()),
        (Kind.IN_USE, fleet.in_use()),
    ):
        remaining = iter(objects)
        while page := list(islice(remaining, _PAGE)):
            yield Page(kind, page)


def key_of(claim: Object) -> str:
    """`namespace/name` of a claim."""
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


class Asking(Enum):
    """How pods of a question differ, and whether they get their devices."""

    NEW = "new"
    """Each is a new kind, and none gets its devices."""
    LIKE = "like"
    """All are of one kind, and each gets its devices."""
    AMOUNTS = "amounts"
    """They differ in the amounts that they ask for, and each gets its devices."""


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of pods, for which the time of a decision is measured."""

    what: str
    asking: Asking
    pod: Callable[[int], Pod]
    """Makes a pod; the argument distinguishes the pods of a question."""
    goal_ms: float | None = None
    """None if the only goal is to take no longer than upstream takes for all nodes."""
    times: int = 8


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the cluster, for which the time until the next decision is measured."""

    what: str
    change: Callable[[Cluster, int], None]
    """The argument counts the repetitions."""
    then: Callable[[int], Pod]
    """The pod of the next decision; its kind is known from an earlier decision."""
    goal_ms: float
    undo: Callable[[Cluster, int], None] | None = None
    """Restores the cluster without being measured."""
    times: int = 5


@dataclass(frozen=True, slots=True)
class Goals:
    """The limits for what is measured on every fleet, in seconds; None where there is none."""

    load_s: float | None = None
    """From parsed JSON to the first decision."""
    gang_s: float | None = 0.3
    """512 claims for one device each."""
    release_s: float | None = 0.2
    """4,000 claims released."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet, and everything that is measured on it."""

    name: str
    about: str
    """What the fleet is, with `{nodes}` for the number of nodes."""
    nodes: int
    """The number of nodes at full size."""
    make: Callable[[int], Fleet]
    """Makes the fleet with this number of nodes; equal for equal numbers."""
    one: Callable[[int], Pod]
    """A pod that asks for one device; all are of one kind. A gang consists of such pods."""
    questions: tuple[Question, ...] = ()
    events: tuple[Event, ...] = ()
    nodes_in_tests: int = 9
    """The number of nodes where answers are compared with those of every node tried."""
    goals: Goals = field(default_factory=Goals)
    churn: Callable[[int], Pod] | None = None
    """Makes pods that come and go while the growth of memory is measured."""
    denser: Callable[[int], Fleet] | None = None
    """Makes the fleet with twice as many devices a node, to see how the time of a node grows."""

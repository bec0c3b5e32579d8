"""A node: what it has for pods, and which of them it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from carina_dra.allocator.node import Node


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node (core/v1)."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    """`PreferNoSchedule` does not matter here."""


class NodeRelease(StrEnum):
    """Who leaves the devices of a node, so that its driver can be upgraded or removed."""

    NONE = "none"
    """Nobody: the node is in service."""
    QUEUES = "queues"
    """Pods of queues."""
    ALL = "all"
    """Pods without a queue, too."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node with what pods can have of it."""

    node: Node
    """Its name and labels, and what device allocation depends on."""
    cpu: int
    """In milli-CPU, like all that follows: what is allocatable."""
    memory: int
    """In bytes."""
    pods: int = 110
    extended: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    """Whether it is cordoned, not ready, or released."""
    release: NodeRelease = NodeRelease.NONE
    """Whether an administrator has released its devices: then nothing starts there."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def offered(self) -> frozenset[str]:
        """The extended resources that device plugins offer there.

        kube-scheduler serves others by claims, also those of which a plugin offers 0.
        """
        return frozenset(name for name, amount in self.extended.items() if amount > 0)

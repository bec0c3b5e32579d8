"""A pod: what it needs of a node, the claims that it refers to, and where it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from carina_dra.resource import NodeSelector


class TolerationOperator(StrEnum):
    """How a toleration compares its value with the value of a taint."""

    EQUAL = "Equal"
    EXISTS = "Exists"
    """Every value is tolerated."""
    LESS = "Lt"
    """Taints with a lower number are tolerated (alpha in 1.37)."""
    GREATER = "Gt"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of node taints, as in core/v1."""

    key: str = ""
    """Empty, with the operator Exists, for every key."""
    value: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    effect: str = ""
    """Empty for every effect."""


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """Pods that must, or must not, be in the same domain as this one (core/v1 PodAffinityTerm)."""

    topology_key: str
    match_labels: tuple[tuple[str, str], ...]
    """The labels of the pods that are meant, in the namespace of this one."""
    anti: bool
    """Whether the domain must have none of them."""


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What a pod needs of a node besides devices; equal for the pods of one template.

    The node affinity terms are those of core/v1: required, one of them must match.
    """

    cpu: int = 0
    """In milli-CPU."""
    memory: int = 0
    """In bytes."""
    extended: tuple[tuple[str, int], ...] = ()
    """Extended resources that a device plugin offers, by name."""
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()
    """Protocol, address (`0.0.0.0` for all) and port."""
    pod_affinity: tuple[PodAffinity, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """It waits for a place."""


@dataclass(frozen=True, slots=True)
class Gated:
    """It is held back by a scheduling gate of somebody else, or not ready to be placed."""


@dataclass(frozen=True, slots=True)
class Placed:
    """It has a node, and starts there or runs."""

    node: str


@dataclass(frozen=True, slots=True)
class Evicting:
    """It is being deleted, and holds what it has until it is gone."""

    node: str
    stuck: bool = False
    """Whether it does not end: what it holds is promised to nobody, and charged to its queue."""


@dataclass(frozen=True, slots=True)
class Ended:
    """It has run, and holds nothing."""

    succeeded: bool


PodState: TypeAlias = Pending | Gated | Placed | Evicting | Ended


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a group, or (with no group) one that another scheduler is responsible for."""

    key: str
    """`namespace/name`."""
    needs: PodNeeds
    state: PodState
    group: str | None = None
    pod_set: str = ""
    claims: tuple[str, ...] = ()
    """The ResourceClaims that it refers to, as `namespace/name`."""
    rank: int = 0
    """Within its pod set, pods of a lower rank come first."""
    created: float = 0
    budgets: tuple[str, ...] = ()
    """The disruption budgets that count it."""
    firm: bool = False
    """Whether it has started as not preemptible. It counts as such, whatever its group is now."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keeps each claim and budget once: a pod may name one several times, and has it once."""
        object.__setattr__(self, "claims", tuple(dict.fromkeys(self.claims)))
        object.__setattr__(self, "budgets", tuple(dict.fromkeys(self.budgets)))

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.key.partition("/")[0]

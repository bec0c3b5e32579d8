"""A pod: what it needs of a node, the claims that it refers to, and where it is."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from carina_dra.resource import NodeSelector
from controller.engine.model.label_selector import LabelSelector

MOST_TERMS: Final = 32
"""The most terms of a pod's affinity to other pods, and the most of its spread constraints, that
count; kube-scheduler checks the rest."""


class PodTolerationOperator(StrEnum):
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
    operator: PodTolerationOperator = PodTolerationOperator.EQUAL
    effect: str = ""
    """Empty for every effect."""


@dataclass(frozen=True, slots=True)
class PodSelection:
    """Pods in some namespaces with some labels."""

    selector: LabelSelector | None
    """None selects no pod."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    """The namespaces with these labels count as well; None for no others."""

    def selects(self, namespace: str, of_namespace: Mapping[str, str], pod: "Pod") -> bool:
        """Whether it means a pod of a namespace, which has the labels `of_namespace`."""
        if self.selector is None or not self.selector.matches(pod.labels):
            return False
        return namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(of_namespace)
        )


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """Pods that must, or must not, be in the same domain as this one (core/v1 PodAffinityTerm)."""

    topology_key: str
    selection: PodSelection
    anti: bool
    """Whether the domain must have none of them."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """How evenly pods must be spread over domains (core/v1 TopologySpreadConstraint).

    Only those are kept whose `whenUnsatisfiable` is DoNotSchedule.
    """

    topology_key: str
    max_skew: int
    """How many more pods a domain may have than the one that has fewest."""
    selection: PodSelection
    """The pods that are counted. If its selector is empty, none is."""
    min_domains: int = 1
    """If there are fewer domains, the one with fewest pods counts as empty."""
    honors_affinity: bool = True
    """Whether only nodes count that node selector and affinity of the pod select."""
    honors_taints: bool = False
    """Whether only nodes count whose taints the pod tolerates."""


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
    mapped: tuple[tuple[str, int], ...] = ()
    """Extended resources of a DeviceClass, by name: a node that offers them serves them by a device
    plugin, on others a claim does that kube-scheduler makes (`Pod.planned`)."""
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()
    """Protocol, address (`0.0.0.0` for all) and port."""
    pod_affinity: tuple[PodAffinity, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()

    def served_by(self, offered: Container[str]) -> "PodNeeds":
        """The needs where a device plugin offers these extended resources, and claims the others.

        Nothing is `mapped` then.
        """
        if not self.mapped:
            return self
        served = (one for one in self.mapped if one[0] in offered)
        return replace(self, extended=tuple(sorted((*self.extended, *served))), mapped=())


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
    lingers: bool = False
    """Whether it has a longer grace period than its queue's `evictionGrace`. It counts as stuck
    until its queue has to give, which shortens the grace period."""
    charged: bool = False
    """Whether its queue is charged for it until it is gone: its user has deleted it, and could
    otherwise exceed the limits of the queue by starting other pods meanwhile."""


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
    line: str = ""
    """Equal for pods that replace each other: of one owner and template; empty if none does."""
    budgets: tuple[str, ...] = ()
    """The disruption budgets that count it."""
    firm: bool = False
    """Whether it has started as not preemptible. It counts as such, whatever its group is now."""
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    """Its PersistentVolumeClaims, as `namespace/name`."""
    planned: tuple[tuple[str, str], ...] = ()
    """By extended resource: which of `claims` asks for it where no device plugin offers it. They do
    not exist yet: kube-scheduler makes a claim, and chooses its devices, on the pod's node."""

    def __post_init__(self) -> None:
        """Keeps each claim and budget once: a pod may name one several times, and has it once."""
        object.__setattr__(self, "claims", tuple(dict.fromkeys(self.claims)))
        object.__setattr__(self, "budgets", tuple(dict.fromkeys(self.budgets)))

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.key.partition("/")[0]

    def claims_where(self, offered: Container[str]) -> tuple[str, ...]:
        """The claims that it needs on a node whose device plugins offer these resources."""
        if not self.planned:
            return self.claims
        served = {claim for name, claim in self.planned if name in offered}
        return tuple(claim for claim in self.claims if claim not in served)

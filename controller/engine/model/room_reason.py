"""Why a group has no place: its claims and volumes, nodes and domains."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class BadClaim:
    """No node can satisfy a claim of the pod, or it does not exist."""

    word: ClassVar = "BadClaim"

    pod: str
    reason: str

    def __str__(self) -> str:
        return f"pod {self.pod}: {self.reason}"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "correct the claim, or create what it names"


@dataclass(frozen=True, slots=True)
class BadVolume:
    """A volume claim of the pod does not exist, or cannot be used now."""

    word: ClassVar = "BadVolume"

    pod: str
    reason: str
    """In the words of kube-scheduler, where it has some."""

    def __str__(self) -> str:
        return f"pod {self.pod}: {self.reason}"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "correct the claim, or create what it names"


@dataclass(frozen=True, slots=True)
class ExclusiveDevices:
    """The pod asks by an extended resource for devices that kube-scheduler cannot allocate."""

    word: ClassVar = "ExclusiveDevices"

    pod: str
    resource: str

    def __str__(self) -> str:
        return (
            f"pod {self.pod} asks for {self.resource} by limits: kube-scheduler makes its claim, "
            "and cannot allocate GPUs in exclusive mode, since that claim tolerates no taint"
        )

    @property
    def remedy(self) -> str:
        """What would help."""
        return (
            f"use resourceClaims with a ResourceClaimTemplate instead of {self.resource} in limits"
        )


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No node has room for a pod; on how many nodes each constraint was the first to fail."""

    word: ClassVar = "NoRoom"

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

    @property
    def remedy(self) -> str:
        """What would help."""
        if not self.nodes:
            return "add nodes; there are none that it could run on"
        if not self.fell:
            return "wait until other work ends, add nodes, or ask for less"
        (constraint, count), *_ = self.fell
        where = "" if count == self.nodes else f" (on {count} of {self.nodes} nodes)"
        return f"{_constraint_helps(constraint)}{where}"


@dataclass(frozen=True, slots=True)
class NoDomain:
    """No domain of a topology has room for all pods that must be together."""

    word: ClassVar = "NoDomain"

    level: str
    domains: int

    def __str__(self) -> str:
        return f"none of {self.domains} domains of {self.level} has room for all of its pods"

    @property
    def remedy(self) -> str:
        """What would help."""
        return (
            f"allow a wider level than {self.level}, prefer it instead, or wait for a free domain"
        )


def _constraint_helps(constraint: str) -> str:
    match constraint:
        case "devices":
            return "wait until devices are free, add nodes, or ask for fewer or other devices"
        case "cpu" | "memory" | "pods":
            return f"wait until {constraint} is free, add nodes, or ask for less {constraint}"
        case "unschedulable":
            return "uncordon nodes, or wait until they are ready"
        case "released":
            return "wait until the nodes are restored, or ask an administrator to restore them"
        case "topology spread":
            return "add nodes in other domains, or wait until the pods are spread more evenly"
        case "volumes":
            return "add nodes where its volumes can be, or wait until fewer are in use there"
        case _ if constraint.startswith("taint "):
            return f"add a toleration for {constraint}"
        case _:
            return f"add nodes that fit, or change the pod: {constraint}"

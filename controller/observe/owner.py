"""Owners: the objects that make pods, or that pods name, and which of their pods start together.

What is foreign about a kind of owner is in its module in `owners`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from carina_dra.kube.api_resource import ApiResource, Scope
from carina_dra.resource import DecodeError, JsonObject, decode
from carina_dra.resource.schema import Struct
from controller.engine.model.queue import QUEUE_LABEL


class OwnerKind(StrEnum):
    """A kind of owner whose pods belong together, as the keys of groups name it."""

    JOB = "job"
    STATEFUL_SET = "statefulset"
    JOB_SET = "jobset"
    LEADER_WORKER_SET = "leaderworkerset"
    PYTORCH_JOB = "pytorchjob"
    TF_JOB = "tfjob"
    XGBOOST_JOB = "xgboostjob"
    PADDLE_JOB = "paddlejob"
    JAX_JOB = "jaxjob"
    MPI_JOB = "mpijob"
    RAY_CLUSTER = "raycluster"
    POD_GROUP = "podgroup.scheduling.k8s.io"


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """Which owner."""

    kind: OwnerKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of an owner that are alike: a pod set of its group."""

    name: str
    min_count: int
    names_queue: bool = True
    """Whether its pod template has the label of a queue. If not, its pods may still get it."""
    is_late: bool = False
    """Whether its pods are created only after others run, which would wait for it forever."""

    @property
    def is_awaited(self) -> bool:
        """Whether the group waits for its pods before there are any."""
        return self.names_queue and not self.is_late


@dataclass(frozen=True, slots=True)
class Parts:
    """An owner with pod sets of its own."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AllMembers:
    """An owner that has all pods that name it, and needs all that there are."""

    min_count: int
    """The least number that it needs."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """An owner that cannot be read."""

    reason: str


GroupShape: TypeAlias = Parts | AllMembers | Malformed


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner of pods, as far as it matters for their group."""

    key: OwnerKey
    shape: GroupShape


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a pod is in its group."""

    pod_set: str = ""
    rank: int = 0
    """Within its pod set, pods of a lower rank come first."""


@dataclass(frozen=True, slots=True)
class Metadata(Struct):
    """The metadata of an owner or a template."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodTemplate(Struct):
    """A pod template of an owner."""

    metadata: Metadata = field(default_factory=Metadata)

    @property
    def names_queue(self) -> bool:
        """Whether its pods have the label of a queue from the beginning."""
        return QUEUE_LABEL in self.metadata.labels


@dataclass(frozen=True, slots=True)
class OwnerType:
    """A kind of owner: how its objects and the labels of its pods are read."""

    kind: OwnerKind
    versions: tuple[ApiResource, ...]
    """The first of them that is served is the one to watch; none if pods say all by themselves."""
    shape: Callable[[JsonObject], GroupShape]
    """The shape from a body; `Malformed` for one that is not of the kind."""
    place: Callable[[Mapping[str, str]], GroupPosition]
    """The place of a pod, from its labels."""

    def read(self, body: JsonObject) -> Owner:
        """Reads an object in any of the versions.

        Raises:
            KeyError: it was never stored.
        """
        metadata = body["metadata"]
        key = OwnerKey(self.kind, metadata["namespace"], metadata["name"])
        return Owner(key, self.shape(body))


_Spec = TypeVar("_Spec", bound=Struct)


def shape_reader(
    kind: str, spec: type[_Spec], shape: Callable[[_Spec, Metadata], GroupShape]
) -> Callable[[JsonObject], GroupShape]:
    """Reads the shape of an owner from a body.

    kind: its name in messages.
    spec: the type of its spec.
    shape: what follows from the spec and the metadata.
    """

    def read(body: JsonObject) -> GroupShape:
        try:
            metadata = decode(Metadata, body["metadata"])
            return shape(decode(spec, body.get("spec") or {}), metadata)
        except DecodeError as error:
            where = f"spec.{error.path}" if error.path else "spec"
            return Malformed(f"{kind} {body['metadata']['name']}: {where}: {error.problem}")

    return read


def versions_of(group: str, plural: str, kind: str, *versions: str) -> tuple[ApiResource, ...]:
    """The versions of a resource, the preferred one first."""
    return tuple(ApiResource(group, each, plural, kind, Scope.NAMESPACED) for each in versions)


def number(labels: Mapping[str, str], name: str) -> int:
    """The number that a label or an annotation holds; 0 if there is none."""
    text = labels.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0


_DIGITS: Final = 9
"""Indexes are 32-bit integers; a label may have any text."""

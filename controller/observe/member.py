"""A pod as a member of a group: which group it is in, and its place there.

A pod is in the PodGroup that it names, else in the PodGroup of scheduling.k8s.io that it names,
else its owner says which pods it starts with. Only the pod's own metadata is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, TypeAlias, assert_never
from urllib.parse import quote

from carina_dra.resource import OwnerReference
from controller.names import (
    GROUP_LABEL,
    MIN_COUNT_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
    POD_SET_LABEL,
    PREEMPTIBLE_ANNOTATION,
    RUN_TIME_ANNOTATION,
    STARTED_WITH_ANNOTATION,
)
from controller.observe.owner import GroupPosition, OwnerKey, OwnerKind, number
from controller.observe.owners import job_set, leader_worker_set, training_job
from controller.observe.owners.types import OWNER_TYPES, OWNING_PODS

ANNOTATIONS: Final = frozenset(
    {
        MIN_COUNT_ANNOTATION,
        PREEMPTIBLE_ANNOTATION,
        RUN_TIME_ANNOTATION,
        ON_DEVICE_FAILURE_ANNOTATION,
        STARTED_WITH_ANNOTATION,
        leader_worker_set.SIZE,
    }
)
"""The annotations of a pod on which its group depends."""
_SAFE: Final = ":"
_LONGEST_PART: Final = 400
"""Characters; names that the API server checks have at most 253."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A pod, as far as its group depends on it."""

    namespace: str
    name: str
    created: float = 0
    """Unix time in seconds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """At least those of `ANNOTATIONS`."""
    owner: OwnerReference | None = None
    """Its controlling owner."""
    scheduling_group: str | None = None
    """`spec.schedulingGroup.podGroupName`."""
    priority: int = 0
    preempts: bool = True
    """Whether its `preemptionPolicy` is not Never."""
    started: bool = False
    """Whether the controller's gate does not hold it: it runs, or may run."""
    succeeded: bool | None = None
    """Whether it ended with success; None if it has not ended."""

    @property
    def firm(self) -> bool:
        """Whether it has started as not preemptible, within the quota for that."""
        return self.started and self.annotations.get(PREEMPTIBLE_ANNOTATION) == "false"

    @property
    def started_with(self) -> int | None:
        """How many pods its group needed when it started, if the controller has started it."""
        return number(self.annotations, STARTED_WITH_ANNOTATION) or None if self.started else None


# Which group -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """The pods that name a PodGroup of Carina."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return _key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class OwnedGroup:
    """The pods of an owner, or those that name a PodGroup of scheduling.k8s.io."""

    owner: OwnerKey

    @property
    def key(self) -> str:
        """Such as `namespace/jobset/name`."""
        return _key(self.owner.namespace, self.owner.kind, self.owner.name)


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """The pods of one replica of a LeaderWorkerSet."""

    owner: OwnerKey
    index: str

    @property
    def key(self) -> str:
        """With the name of the leader, such as `namespace/leaderworkerset/name-0`."""
        index = _without_hyphens(self.index)  # the last hyphen is the one before the index
        return _key(self.owner.namespace, self.owner.kind, f"{self.owner.name}-{index}")


@dataclass(frozen=True, slots=True)
class AnnotatedGroup:
    """The pods of any other owner, if they say how many of them start together."""

    namespace: str
    kind: str
    """The kind and API group of the owner, such as `replicaset.apps`."""
    name: str

    @property
    def key(self) -> str:
        """Such as `namespace/owner:replicaset.apps/name`: tenants choose the kind."""
        return _key(self.namespace, f"owner:{self.kind}", self.name)


@dataclass(frozen=True, slots=True)
class SinglePod:
    """A pod that starts by itself."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/pod/name`."""
        return _key(self.namespace, "pod", self.name)


GroupId: TypeAlias = NamedGroup | OwnedGroup | ReplicaGroup | AnnotatedGroup | SinglePod


def _key(*parts: str) -> str:
    """The parts of a key. No part has a slash, so different parts make different keys.

    The API server refuses slashes, control characters and long names, but not in references to
    owners. Keys are shown to others, and stand in messages.
    """
    return "/".join(_bounded(quote(part, _SAFE, errors="surrogatepass")) for part in parts)


def _bounded(text: str) -> str:
    """A text that is not too long to be shown; texts that differ stay different."""
    if len(text) <= _LONGEST_PART:
        return text
    digest = sha256(text.encode()).hexdigest()
    return f"{text[: _LONGEST_PART - len(digest) - 1]}~{digest}"


def _without_hyphens(text: str) -> str:
    """A text without hyphens; texts that differ stay different."""
    return text.replace("%", "%25").replace("-", "%2D")


def group_id_of(member: GroupMember) -> GroupId:
    """The group of a pod."""
    namespace, labels, owner = member.namespace, member.labels, member.owner
    if name := labels.get(GROUP_LABEL):
        return NamedGroup(namespace, name)
    if member.scheduling_group:
        return OwnedGroup(OwnerKey(OwnerKind.POD_GROUP, namespace, member.scheduling_group))
    if owner is None:
        return SinglePod(namespace, member.name)
    key = _owner_key(member)
    if key is not None and key.kind is OwnerKind.LEADER_WORKER_SET:
        return ReplicaGroup(key, labels[leader_worker_set.GROUP_INDEX])
    if key is not None:
        return OwnedGroup(key)
    if MIN_COUNT_ANNOTATION in member.annotations:
        kind = ".".join(part for part in (owner.kind.lower(), _api_group(owner)) if part)
        return AnnotatedGroup(namespace, kind, owner.name)
    return SinglePod(namespace, member.name)


def place_of(member: GroupMember) -> GroupPosition:
    """The pod set of a pod in its group, and its rank there."""
    key = _owner_key(member)
    place = OWNER_TYPES[key.kind].place(member.labels) if key is not None else GroupPosition()
    group = group_id_of(member)
    match group:
        case NamedGroup():
            return replace(place, pod_set=member.labels.get(POD_SET_LABEL, ""))
        case OwnedGroup(OwnerKey(kind=OwnerKind.POD_GROUP)):
            return replace(place, pod_set="")
        case OwnedGroup() | ReplicaGroup() | AnnotatedGroup() | SinglePod():
            return place
    assert_never(group)


def _owner_key(member: GroupMember) -> OwnerKey | None:
    """The owner that a pod belongs to, which may own the owner of the pod."""
    if member.owner is None:
        return None
    labels = member.labels
    kind = OWNING_PODS.get((_api_group(member.owner), member.owner.kind))
    name = member.owner.name
    match kind:
        case OwnerKind.JOB if job_set.NAME in labels:
            kind, name = OwnerKind.JOB_SET, labels[job_set.NAME]
        case OwnerKind.JOB if labels.get(training_job.OPERATOR) == training_job.MPI_OPERATOR:
            kind, name = OwnerKind.MPI_JOB, labels.get(training_job.NAME, name)
        case OwnerKind.STATEFUL_SET if {
            leader_worker_set.NAME,
            leader_worker_set.GROUP_INDEX,
        } <= labels.keys():
            kind, name = OwnerKind.LEADER_WORKER_SET, labels[leader_worker_set.NAME]
        case _:
            pass
    return None if kind is None else OwnerKey(kind, member.namespace, name)


def _api_group(owner: OwnerReference) -> str:
    return owner.api_version.rpartition("/")[0]

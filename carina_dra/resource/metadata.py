"""Types of meta/v1: ObjectMeta and Condition.

The fields of ObjectMeta that Carina does not use (`ObjectMeta.NOT_READ`) remain in `unknown`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from carina_dra.resource.schema import Struct


@dataclass(frozen=True, slots=True)
class OwnerReference(Struct):
    """An owner: the object is garbage-collected when its owners are deleted."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@dataclass(frozen=True, slots=True)
class ObjectMeta(Struct):
    """An object's name, identity and history."""

    NOT_READ: ClassVar[frozenset[str]] = frozenset(
        {"managedFields", "selfLink", "deletionGracePeriodSeconds"}
    )

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition(Struct):
    """One aspect of an object's state."""

    type: str
    status: ConditionStatus
    last_transition_time: datetime
    reason: str
    message: str
    observed_generation: int = 0

"""What every object of the API has: ObjectMeta, and conditions (meta/v1).

Of ObjectMeta what Carina has no use for (`managedFields`, `selfLink`, `deletionGracePeriodSeconds`)
stays among what is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from carina_dra.resource.schema import Struct


@dataclass(frozen=True, slots=True)
class OwnerReference(Struct):
    """The object that this one is deleted with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@dataclass(frozen=True, slots=True)
class ObjectMeta(Struct):
    """An object's name, identity and history."""

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
        """`namespace/name`, or the name of an object of the cluster."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ConditionStatus(StrEnum):
    """Whether something holds."""

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

"""Volumes, as far as they say where a pod may be: claims, volumes, classes, capacities, limits.

There are many of the first two, so they are small: their strings are shared where they can be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from carina_dra.resource import NodeSelector
from controller.engine.model.label_selector import LabelSelector

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes an administrator makes."""


class VolumeClaimState(StrEnum):
    """How far a claim is from a volume."""

    UNBOUND = "Unbound"
    BOUND = "Bound"
    LOST = "Lost"
    """The volume that it was bound to does not exist."""
    DELETED = "Deleted"
    """It is being deleted."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim."""

    state: VolumeClaimState
    volume: str = ""
    """The PersistentVolume that it is bound to, or is to be bound to."""
    class_name: str = ""
    size: int = 0
    """In bytes."""
    node: str = ""
    """The node that kube-scheduler has selected for a volume that is being made."""
    is_exclusive: bool = False
    """Whether one pod at a time may use it (ReadWriteOncePod)."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume."""

    affinity: NodeSelector | None = None
    """The nodes from which it can be reached; None for all."""
    driver: str = ""
    """The CSI driver."""
    class_name: str = ""
    size: int = 0
    """In bytes."""
    is_available: bool = False
    """Whether it can be bound to a claim."""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass."""

    provisioner: str
    waits: bool = False
    """Whether a volume is made, or bound, when a pod that uses it has a node."""
    topologies: NodeSelector | None = None
    """Where volumes can be made (`allowedTopologies`); None for everywhere."""


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: how large a volume can be that is made for some nodes."""

    class_name: str
    nodes: LabelSelector | None = None
    """None for no nodes."""
    size: int = 0
    """In bytes."""


@dataclass(frozen=True, slots=True)
class VolumeDriver:
    """A CSIDriver."""

    has_capacity: bool
    """Whether it says how much storage there is (`storageCapacity`)."""


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """A CSINode: how many volumes of a driver its node can have."""

    by_driver: Mapping[str, int] = field(default_factory=dict)


StorageObject: TypeAlias = (
    VolumeClaim | Volume | StorageClass | StorageCapacity | VolumeDriver | AttachLimits
)


@dataclass(frozen=True, slots=True)
class Storage:
    """What a cluster has of all of these, by name, or by `namespace/name`."""

    claims: Mapping[str, VolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    capacities: Mapping[str, StorageCapacity] = field(default_factory=dict)
    drivers: Mapping[str, VolumeDriver] = field(default_factory=dict)
    limits: Mapping[str, AttachLimits] = field(default_factory=dict)

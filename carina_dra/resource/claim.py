"""ResourceClaim: the devices that somebody asks for, and what was given (KEP-4381)."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.allocation import AllocatedDeviceStatus, Allocation
from carina_dra.resource.device_class import OpaqueConfiguration
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.request import DeviceRequest
from carina_dra.resource.schema import Member, Struct


@dataclass(frozen=True, slots=True)
class MatchAttribute(Member):
    """All devices have the same value of this attribute."""

    name: str
    """With its domain, as always in constraints."""
    json_key: ClassVar[str] = "matchAttribute"


@dataclass(frozen=True, slots=True)
class DistinctAttribute(Member):
    """No two devices have the same value of this attribute."""

    name: str
    json_key: ClassVar[str] = "distinctAttribute"


@dataclass(frozen=True, slots=True)
class DeviceConstraint(Struct):
    """What must hold of the devices of some requests together; of all where none is named."""

    requests: tuple[str, ...] = ()
    """`req`, or `req/sub` for one of its alternatives."""
    rule: MatchAttribute | DistinctAttribute | None = field(kw_only=True)
    """None where it is of a kind that only a newer API knows: not to be taken for satisfied."""


@dataclass(frozen=True, slots=True)
class ClaimConfiguration(Struct):
    """A configuration of the devices of some requests; of all where none is named."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None
    """None where it is of a kind that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class DeviceClaim(Struct):
    """All that a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[ClaimConfiguration, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceClaimSpec(Struct):
    """What is asked for. Never changes."""

    devices: DeviceClaim = field(default_factory=DeviceClaim)


@dataclass(frozen=True, slots=True)
class ConsumerReference(Struct):
    """Who may use a claim: a pod, as a rule."""

    api_group: str = ""
    """Empty for the core group, whose pods are."""
    resource: str = field(kw_only=True)
    name: str = field(kw_only=True)
    uid: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ResourceClaimStatus(Struct):
    """What was given, to whom."""

    allocation: Allocation | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceClaim(Struct):
    """Devices that somebody asks for, and has or has not been given."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaim"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(kw_only=True)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key

"""ResourceClaim: a request for devices, and their allocation (KEP-4381)."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.allocation import AllocatedDeviceStatus, Allocation
from carina_dra.resource.device_class import OpaqueConfiguration
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.request import DeviceRequest
from carina_dra.resource.schema import Struct, UnionMember


@dataclass(frozen=True, slots=True)
class MatchAttribute(UnionMember):
    """All devices must have the same value of this attribute."""

    name: str
    """The fully qualified name."""
    json_key: ClassVar[str] = "matchAttribute"


@dataclass(frozen=True, slots=True)
class DistinctAttribute(UnionMember):
    """No two devices may have the same value of this attribute."""

    name: str
    json_key: ClassVar[str] = "distinctAttribute"


@dataclass(frozen=True, slots=True)
class DeviceConstraint(Struct):
    """A rule for the devices of some requests together; of all requests if none is named."""

    requests: tuple[str, ...] = ()
    """`request`, or `request/subrequest` for one of its alternatives."""
    rule: MatchAttribute | DistinctAttribute | None = field(kw_only=True)
    """None for a kind of rule that only a newer API knows; it must not count as satisfied."""


@dataclass(frozen=True, slots=True)
class ClaimConfiguration(Struct):
    """A configuration for the devices of some requests; of all requests if none is named."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None
    """None for a kind of configuration that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class DeviceClaim(Struct):
    """The requests of a claim, with their constraints and configuration."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[ClaimConfiguration, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceClaimSpec(Struct):
    """What is requested. Immutable."""

    SHARED: ClassVar[bool] = True

    devices: DeviceClaim = field(default_factory=DeviceClaim)


@dataclass(frozen=True, slots=True)
class ConsumerReference(Struct):
    """An object that may use a claim, usually a pod."""

    api_group: str = ""
    """Empty for the core group, to which pods belong."""
    resource: str = field(kw_only=True)
    name: str = field(kw_only=True)
    uid: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ResourceClaimStatus(Struct):
    """The allocation, its consumers, and what drivers report."""

    allocation: Allocation | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceClaim(Struct):
    """A request for devices, and their allocation once there is one."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaim"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(kw_only=True)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key

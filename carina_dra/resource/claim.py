"""ResourceClaim and ResourceClaimTemplate: what a user asks for (KEP-4381)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource.allocation import AllocatedDeviceStatus, Allocation
from carina_dra.resource.codec import BadValueError, Member, OneOf, Struct, inline, json_name
from carina_dra.resource.device_class import DeviceSelector, OpaqueConfiguration
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.taint import DeviceToleration


@dataclass(frozen=True, slots=True)
class ExactCount:
    """So many devices."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class All:
    """Every device that matches."""


AllocationMode: TypeAlias = ExactCount | All


class _ModeCodec:
    """`allocationMode` and `count`."""

    keys: tuple[str, ...] = ("allocationMode", "count")

    def decode(self, present: dict[str, Any]) -> AllocationMode:
        match present.get("allocationMode", "ExactCount"), present.get("count", 0):
            case "ExactCount", int() as count:
                return ExactCount(count or 1)
            case "All", _:
                return All()
            case mode, count:
                raise BadValueError(
                    f"allocationMode is {mode!r} and count {count!r}, not ExactCount and an "
                    "integer, or All"
                )

    def encode(self, value: AllocationMode) -> dict[str, Any]:
        match value:
            case ExactCount(count):
                return {"allocationMode": "ExactCount", "count": count}
            case All():
                return {"allocationMode": "All"}
        assert_never(value)


@dataclass(frozen=True, slots=True)
class CapacityRequirements(Struct):
    """How much of each capacity (KEP-5075)."""

    requests: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DerivedAttribute(Struct):
    """An attribute that a CEL expression computes, for constraints (gate DRADerivedAttributes)."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class ExactDeviceRequest(Struct):
    """Devices of one class."""

    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    mode: AllocationMode = field(default=ExactCount(), metadata=inline(_ModeCodec()))
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceSubRequest(Struct):
    """One alternative of a request."""

    name: str
    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    mode: AllocationMode = field(default=ExactCount(), metadata=inline(_ModeCodec()))
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Exactly(Member):
    """This and nothing else."""

    request: ExactDeviceRequest
    json_key: ClassVar[str] = "exactly"


@dataclass(frozen=True, slots=True)
class FirstAvailable(Member):
    """The first of these that can be had (KEP-4816)."""

    alternatives: tuple[DeviceSubRequest, ...]
    json_key: ClassVar[str] = "firstAvailable"


@dataclass(frozen=True, slots=True)
class DeviceRequest(Struct):
    """One request of a claim."""

    name: str
    wants: Exactly | FirstAvailable = field(metadata=inline(OneOf(Exactly, FirstAvailable)))


@dataclass(frozen=True, slots=True)
class MatchAttribute(Member):
    """All devices have the same value of this attribute."""

    name: str
    json_key: ClassVar[str] = "matchAttribute"


@dataclass(frozen=True, slots=True)
class DistinctAttribute(Member):
    """No two devices have the same value of this attribute."""

    name: str
    json_key: ClassVar[str] = "distinctAttribute"


@dataclass(frozen=True, slots=True)
class DeviceConstraint(Struct):
    """What must hold of the devices of some requests together; of all where none is named."""

    rule: MatchAttribute | DistinctAttribute | None = field(
        default=None, metadata=inline(OneOf(MatchAttribute, DistinctAttribute, optional=True))
    )
    """None where it is of a kind that we do not know: not to be taken for satisfied."""
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimConfiguration(Struct):
    """A configuration of the devices of some requests; of all where none is named."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


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

    resource: str
    name: str
    uid: str
    api_group: str = field(default="", metadata=json_name("apiGroup"))


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

    spec: ResourceClaimSpec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplateSpec(Struct):
    """What claims made from a template are to be."""

    spec: ResourceClaimSpec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Labels and annotations only."""


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplate(Struct):
    """From which each pod that names it gets a claim of its own."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaimTemplate"

    spec: ResourceClaimTemplateSpec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)

"""The requests of a claim (KEP-4381, KEP-4816)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, assert_never

from carina_dra.resource.capacity import CapacityRequirements
from carina_dra.resource.device_class import DeviceSelector
from carina_dra.resource.schema import Struct, UnionMember, spread
from carina_dra.resource.taint import DeviceToleration


@dataclass(frozen=True, slots=True)
class ExactCount:
    """This number of devices."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class All:
    """All matching devices of a pool."""


@dataclass(frozen=True, slots=True)
class UnknownMode:
    """A mode that only a newer API knows: the request must be refused."""

    name: str
    count: int = 0


AllocationMode: TypeAlias = ExactCount | All | UnknownMode


class _ModeMembers:
    """`allocationMode`, and `count`, which applies to ExactCount only."""

    members: Mapping[str, type] = {"allocationMode": str, "count": int}

    def join(self, present: Mapping[str, Any]) -> AllocationMode:
        count = present.get("count", 0)
        match present.get("allocationMode", "ExactCount"):
            case "ExactCount":
                return ExactCount(count or 1)
            case "All":
                return All()
            case newer:
                return UnknownMode(newer, count)

    def split(self, value: AllocationMode) -> Mapping[str, Any]:
        match value:
            case ExactCount(count):
                return {"allocationMode": "ExactCount", "count": count}
            case All():
                return {"allocationMode": "All"}
            case UnknownMode(name, 0):
                return {"allocationMode": name}
            case UnknownMode(name, count):
                return {"allocationMode": name, "count": count}
        assert_never(value)


@dataclass(frozen=True, slots=True)
class DerivedAttribute(Struct):
    """An attribute for constraints, computed by a CEL expression (feature gate
    DRADerivedAttributes)."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class ExactDeviceRequest(Struct):
    """Devices of one class."""

    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    """All must match, in addition to those of the class."""
    mode: AllocationMode = field(default=ExactCount(), metadata=spread(_ModeMembers()))
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
    """All must match, in addition to those of the class."""
    mode: AllocationMode = field(default=ExactCount(), metadata=spread(_ModeMembers()))
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Exactly(UnionMember):
    """A request without alternatives."""

    request: ExactDeviceRequest
    json_key: ClassVar[str] = "exactly"


@dataclass(frozen=True, slots=True)
class FirstAvailable(UnionMember):
    """The first of these alternatives that can be allocated (KEP-4816)."""

    alternatives: tuple[DeviceSubRequest, ...]
    json_key: ClassVar[str] = "firstAvailable"


@dataclass(frozen=True, slots=True)
class DeviceRequest(Struct):
    """One request of a claim."""

    name: str
    wants: Exactly | FirstAvailable | None
    """None for a kind of request that only a newer API knows; it must be refused."""

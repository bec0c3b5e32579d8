"""Capacities of devices, and how much of them a request may consume (KEP-5075)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.quantity import Quantity
from carina_dra.resource.schema import Struct, UnionMember


@dataclass(frozen=True, slots=True)
class ValidValues(UnionMember):
    """The amounts that may be requested, ascending; others are rounded up to the next."""

    values: tuple[Quantity, ...]
    json_key: ClassVar[str] = "validValues"


@dataclass(frozen=True, slots=True)
class CapacityRange(Struct):
    """Amounts from `min` to `max`, in steps from `min`; amounts between steps are rounded up."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True)
class ValidRange(UnionMember):
    """The range of amounts that may be requested."""

    range: CapacityRange
    json_key: ClassVar[str] = "validRange"


@dataclass(frozen=True, slots=True)
class CapacityRequestPolicy(Struct):
    """The amounts that may be requested (any if `valid` is None), and the default amount."""

    default: Quantity | None = None
    valid: ValidValues | ValidRange | None = None


@dataclass(frozen=True, slots=True)
class DeviceCapacity(Struct):
    """The amount of a capacity, and the policy for requests."""

    SHARED: ClassVar[bool] = True

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CapacityRequirements(Struct):
    """The amounts that are requested, by the qualified names of the capacities."""

    requests: Mapping[str, Quantity] = field(default_factory=dict)

"""How much a device has of something, and how much of it a request may take (KEP-5075)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.quantity import Quantity
from carina_dra.resource.schema import Member, Struct


@dataclass(frozen=True, slots=True)
class ValidValues(Member):
    """The amounts that may be asked for, ascending; others are rounded up to the next."""

    values: tuple[Quantity, ...]
    json_key: ClassVar[str] = "validValues"


@dataclass(frozen=True, slots=True)
class CapacityRange(Struct):
    """Amounts from `min` to `max`, in steps from `min`; what is between is rounded up."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True)
class ValidRange(Member):
    """The range in which amounts may be asked for."""

    range: CapacityRange
    json_key: ClassVar[str] = "validRange"


@dataclass(frozen=True, slots=True)
class CapacityRequestPolicy(Struct):
    """How much may be asked for (whatever there is, if not said), and what is taken unasked."""

    default: Quantity | None = None
    valid: ValidValues | ValidRange | None = None


@dataclass(frozen=True, slots=True)
class DeviceCapacity(Struct):
    """So much of something."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CapacityRequirements(Struct):
    """How much a request asks for, by the capacities' qualified names."""

    requests: Mapping[str, Quantity] = field(default_factory=dict)

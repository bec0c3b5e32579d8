"""How a device counts as a resource of its node, such as cpu.

Feature gate DRANodeAllocatableResources.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource.errors import BadValueError
from carina_dra.resource.schema import Struct, spread


@dataclass(frozen=True, slots=True)
class CapacityMultiplier:
    """The amount of the node's resource per consumed unit of a capacity of the device."""

    capacity: str
    """The qualified name of the capacity, as in the device."""
    multiplier: Quantity


@dataclass(frozen=True, slots=True)
class DeviceMultiplier:
    """The amount of the node's resource per device."""

    multiplier: Quantity


Multiplier: TypeAlias = CapacityMultiplier | DeviceMultiplier


class _MultiplierMembers:
    """`capacityKey` with `capacityMultiplier`, or `deviceMultiplier`."""

    members: Mapping[str, type] = {
        "capacityKey": str,
        "capacityMultiplier": Quantity,
        "deviceMultiplier": Quantity,
    }

    def join(self, present: Mapping[str, Any]) -> Multiplier | None:
        match sorted(present):
            case []:
                return None
            case ["capacityKey", "capacityMultiplier"]:
                return CapacityMultiplier(present["capacityKey"], present["capacityMultiplier"])
            case ["deviceMultiplier"]:
                return DeviceMultiplier(present["deviceMultiplier"])
            case found:
                raise BadValueError(
                    f"has {' and '.join(found)}, not capacityKey and capacityMultiplier, "
                    "or deviceMultiplier"
                )

    def split(self, value: Multiplier | None) -> Mapping[str, Any]:
        match value:
            case None:
                return {}
            case CapacityMultiplier(capacity, multiplier):
                return {"capacityKey": capacity, "capacityMultiplier": multiplier}
            case DeviceMultiplier(multiplier):
                return {"deviceMultiplier": multiplier}
        assert_never(value)


@dataclass(frozen=True, slots=True)
class NodeAllocatableMapping(Struct):
    """The device is itself part of the node's resource."""

    multiplier: Multiplier | None = field(default=None, metadata=spread(_MultiplierMembers()))
    """None for a kind of multiplier that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class NodeAllocatableOverhead(Struct):
    """The amount of the node's resource that using the device costs in addition."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    """Per container that refers to the claim."""


@dataclass(frozen=True, slots=True)
class NodeAllocatableResource(Struct):
    """How a device counts as one resource of its node."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None

"""Which optional parts of the allocation rules are in force: Kubernetes' feature gates."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Features:
    """The gates that change what may be allocated; the defaults are those of Kubernetes 1.37.

    A request that needs a gate that is off is refused, a device that needs one is left alone.
    """

    admin_access: bool = True
    """DRAAdminAccess."""
    prioritized_list: bool = True
    """DRAPrioritizedList: `firstAvailable`."""
    partitionable_devices: bool = True
    """DRAPartitionableDevices: shared counters, nodes per device."""
    device_taints: bool = True
    """DRADeviceTaints."""
    binding_conditions: bool = True
    """DRADeviceBindingConditions."""
    consumable_capacity: bool = True
    """DRAConsumableCapacity: devices shared by capacity."""
    fractional_capacity_range: bool = False
    """DRAFractionalCapacityRange."""
    list_attributes: bool = False
    """DRAListTypeAttributes."""
    optional_node_operations: bool = False
    """DRAOptionalNodeOperations."""
    derived_attributes: bool = False
    """DRADerivedAttributes."""
    compatibility_groups: bool = False
    """DRADeviceCompatibilityGroups."""

    @property
    def any_alpha(self) -> bool:
        """Whether any feature is on that Kubernetes 1.37 has off unless told otherwise."""
        return (
            self.list_attributes
            or self.optional_node_operations
            or self.derived_attributes
            or self.compatibility_groups
        )

    @classmethod
    def of_gates(cls, gates: Iterable[str]) -> "Features":
        """Exactly the features of these gates, all others off.

        Raises:
            ValueError: a gate that has nothing to do with allocation, with those that have.
        """
        chosen = set()
        for gate in gates:
            if gate not in FIELD_OF_GATE:
                raise ValueError(
                    f"{gate}: no such feature gate; there are {', '.join(FIELD_OF_GATE)}"
                )
            chosen.add(FIELD_OF_GATE[gate])
        return cls(**{each.name: each.name in chosen for each in fields(cls)})


DEFAULT_FEATURES: Final = Features()
"""The feature gates as Kubernetes 1.37 has them by default."""

FIELD_OF_GATE: Final = {
    "DRAAdminAccess": "admin_access",
    "DRAPrioritizedList": "prioritized_list",
    "DRAPartitionableDevices": "partitionable_devices",
    "DRADeviceTaints": "device_taints",
    "DRADeviceBindingConditions": "binding_conditions",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAFractionalCapacityRange": "fractional_capacity_range",
    "DRAListTypeAttributes": "list_attributes",
    "DRAOptionalNodeOperations": "optional_node_operations",
    "DRADerivedAttributes": "derived_attributes",
    "DRADeviceCompatibilityGroups": "compatibility_groups",
}
"""The feature that each gate switches; other gates say nothing about allocation."""

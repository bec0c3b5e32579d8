"""The Kubernetes feature gates that change the allocation rules."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Features:
    """The feature gates of allocation, with the defaults of Kubernetes 1.37.

    A request that needs a disabled feature is refused; a device that needs one is not allocated.
    """

    admin_access: bool = True
    """DRAAdminAccess."""
    prioritized_list: bool = True
    """DRAPrioritizedList: `firstAvailable`."""
    partitionable_devices: bool = True
    """DRAPartitionableDevices: shared counters, and a node selection per device."""
    device_taints: bool = True
    """DRADeviceTaints."""
    binding_conditions: bool = True
    """DRADeviceBindingConditions."""
    consumable_capacity: bool = True
    """DRAConsumableCapacity: devices that several claims share by capacity."""
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
        """Whether a feature is enabled that is alpha in Kubernetes 1.37."""
        return (
            self.list_attributes
            or self.optional_node_operations
            or self.derived_attributes
            or self.compatibility_groups
        )

    @classmethod
    def of_gates(cls, gates: Iterable[str]) -> "Features":
        """The features of these gates enabled, and all others disabled.

        Raises:
            ValueError: a gate does not concern allocation; the message lists those that do.
        """
        chosen = set()
        for gate in gates:
            if gate not in FIELD_OF_GATE:
                raise ValueError(
                    f"{gate}: no feature gate of allocation; they are {', '.join(FIELD_OF_GATE)}"
                )
            chosen.add(FIELD_OF_GATE[gate])
        return cls(**{feature.name: feature.name in chosen for feature in fields(cls)})


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
"""The field of `Features` for each gate; other gates do not concern allocation."""

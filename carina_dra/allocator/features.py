"""The Kubernetes feature gates that change the allocation rules."""

from dataclasses import dataclass
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


DEFAULT_FEATURES: Final = Features()
"""The feature gates as Kubernetes 1.37 has them by default."""

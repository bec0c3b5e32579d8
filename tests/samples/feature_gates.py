"""The features of allocation by the names of Kubernetes' feature gates, as upstream has them."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from carina_dra.allocator.features import Features

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


def features_of(gates: Iterable[str]) -> Features:
    """The features of these gates enabled, and all others disabled.

    Raises:
        KeyError: a gate does not concern allocation.
    """
    chosen = {FIELD_OF_GATE[gate] for gate in gates}
    return Features(**{feature.name: feature.name in chosen for feature in fields(Features)})

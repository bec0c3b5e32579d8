"""The limits of resource.k8s.io/v1 in Kubernetes 1.37.

The API server enforces them. `decode` does not, so that it can read objects of a server with other
limits. Source: k8s.io/api v0.37.0 `resource/v1/types.go`; those marked (V) are from
`pkg/apis/resource/validation/validation.go` of kubernetes v1.37.0.
"""

from typing import Final

# Names.
DRIVER_NAME_LENGTH: Final = 63
POOL_NAME_LENGTH: Final = 253
ATTRIBUTE_DOMAIN_LENGTH: Final = 63
"""The part of a qualified name before the slash."""
ATTRIBUTE_IDENTIFIER_LENGTH: Final = 32
"""The part after the slash."""

# ResourceSlice.
DEVICES_PER_SLICE: Final = 128
DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES: Final = 64
"""If any device of the slice has taints, consumes counters or has a list attribute."""
COUNTER_SETS_PER_SLICE: Final = 8
"""A slice with counter sets has no devices."""
COUNTERS_PER_SET: Final = 32
COUNTER_SETS_PER_DEVICE: Final = 2
"""The sets that one device consumes."""
COUNTERS_PER_CONSUMPTION: Final = 32
COMPATIBILITY_GROUPS_PER_CONSUMPTION: Final = 2
ATTRIBUTES_AND_CAPACITIES_PER_DEVICE: Final = 32
"""Both together."""
ATTRIBUTE_VALUES_PER_DEVICE: Final = 48
"""A list counts by its length."""
ATTRIBUTE_TEXT_BYTES: Final = 64
"""A string or a version."""
VALID_VALUES_PER_REQUEST_POLICY: Final = 10
TAINTS_PER_DEVICE: Final = 16
PARTITION_TYPES_PER_POOL: Final = 32
"""That a ResourcePoolStatusRequest can count (`v1alpha3/types.go`)."""
BINDING_CONDITIONS_PER_DEVICE: Final = 4
BINDING_FAILURE_CONDITIONS_PER_DEVICE: Final = 4
NODE_SELECTOR_TERMS: Final = 1
"""The exact number in the node selector of a slice or device (V)."""

# ResourceClaim, and what its requests share with DeviceClass.
REQUESTS_PER_CLAIM: Final = 32
ALTERNATIVES_PER_REQUEST: Final = 8
"""Entries of firstAvailable."""
SELECTORS_PER_REQUEST: Final = 32
"""Also per class."""
TOLERATIONS_PER_REQUEST: Final = 16
"""As documented; the API server does not enforce it."""
DERIVED_ATTRIBUTES_PER_REQUEST: Final = 32
CONSTRAINTS_PER_CLAIM: Final = 32
CONFIGURATIONS_PER_CLAIM: Final = 32
"""Also per class."""
OPAQUE_PARAMETERS_BYTES: Final = 10 * 1024

# CEL.
CEL_EXPRESSION_BYTES: Final = 10 * 1024
CEL_SELECTOR_COST: Final = 1_000_000
"""Per selector: estimated when it is stored, counted when it is evaluated."""
CEL_DERIVED_ATTRIBUTES_COST: Final = 1_000_000
"""Estimated, for all derived attributes of a claim together."""

# ResourceClaim's status.
DEVICES_PER_CLAIM: Final = 32
"""Results of an allocation, for all requests together."""
CONFIGURATIONS_PER_ALLOCATION: Final = 64
"""Those of the classes and of the claim (V)."""
CONSUMERS_PER_CLAIM: Final = 256
"""Entries of reservedFor."""
CONDITIONS_PER_DEVICE_STATUS: Final = 8
DEVICE_STATUS_DATA_BYTES: Final = 10 * 1024
NETWORK_ADDRESSES_PER_DEVICE: Final = 16
NETWORK_INTERFACE_NAME_BYTES: Final = 256
HARDWARE_ADDRESS_BYTES: Final = 128

# DeviceTaintRule.
CONDITIONS_PER_TAINT_RULE: Final = 8

"""How much the API allows: resource.k8s.io/v1, Kubernetes 1.37.

The API server enforces these; `decode` does not, so that what it reads may come from a server with
other limits. Sources: k8s.io/api v0.37.0 `resource/v1/types.go`, and, where so marked,
`pkg/apis/resource/validation/validation.go` of kubernetes v1.37.0 (V).
"""

from typing import Final

# Names.
DRIVER_NAME_LENGTH: Final = 63
POOL_NAME_LENGTH: Final = 253
ATTRIBUTE_DOMAIN_LENGTH: Final = 63
"""Of the part of a qualified name before the slash."""
ATTRIBUTE_IDENTIFIER_LENGTH: Final = 32
"""Of the part after it."""

# ResourceSlice.
DEVICES_PER_SLICE: Final = 128
DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES: Final = 64
"""Where any device of the slice has taints, consumes counters or has a list as attribute."""
COUNTER_SETS_PER_SLICE: Final = 8
"""Of a slice with counter sets, which can have no devices."""
COUNTERS_PER_SET: Final = 32
COUNTER_SETS_PER_DEVICE: Final = 2
"""That one device consumes from."""
COUNTERS_PER_CONSUMPTION: Final = 32
COMPATIBILITY_GROUPS_PER_CONSUMPTION: Final = 2
ATTRIBUTES_AND_CAPACITIES_PER_DEVICE: Final = 32
"""Both together."""
ATTRIBUTE_VALUES_PER_DEVICE: Final = 48
"""A list counts with its length."""
ATTRIBUTE_TEXT_BYTES: Final = 64
"""Of a string or a version."""
VALID_VALUES_PER_REQUEST_POLICY: Final = 10
TAINTS_PER_DEVICE: Final = 16
BINDING_CONDITIONS_PER_DEVICE: Final = 4
BINDING_FAILURE_CONDITIONS_PER_DEVICE: Final = 4
NODE_SELECTOR_TERMS: Final = 1
"""Of a slice's or device's node selector: exactly so many (V)."""

# ResourceClaim, and what its requests share with DeviceClass.
REQUESTS_PER_CLAIM: Final = 32
ALTERNATIVES_PER_REQUEST: Final = 8
"""Of firstAvailable."""
SELECTORS_PER_REQUEST: Final = 32
"""And per class."""
TOLERATIONS_PER_REQUEST: Final = 16
"""As documented; the API server does not enforce it."""
DERIVED_ATTRIBUTES_PER_REQUEST: Final = 32
CONSTRAINTS_PER_CLAIM: Final = 32
CONFIGURATIONS_PER_CLAIM: Final = 32
"""And per class."""
OPAQUE_PARAMETERS_BYTES: Final = 10 * 1024

# CEL.
CEL_EXPRESSION_BYTES: Final = 10 * 1024
CEL_SELECTOR_COST: Final = 1_000_000
"""Of one selector: estimated when it is written, counted when it runs."""
CEL_DERIVED_ATTRIBUTES_COST: Final = 1_000_000
"""Estimated, of all derived attributes of a claim together."""

# ResourceClaim's status.
DEVICES_PER_CLAIM: Final = 32
"""Results of an allocation, of all requests together."""
CONFIGURATIONS_PER_ALLOCATION: Final = 64
"""The classes' and the claim's (V)."""
CONSUMERS_PER_CLAIM: Final = 256
"""Entries of reservedFor."""
CONDITIONS_PER_DEVICE_STATUS: Final = 8
DEVICE_STATUS_DATA_BYTES: Final = 10 * 1024
NETWORK_ADDRESSES_PER_DEVICE: Final = 16
NETWORK_INTERFACE_NAME_BYTES: Final = 256
HARDWARE_ADDRESS_BYTES: Final = 128

# DeviceTaintRule.
CONDITIONS_PER_TAINT_RULE: Final = 8

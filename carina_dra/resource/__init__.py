"""The objects of resource.k8s.io/v1 (Kubernetes 1.37) as frozen types, and their JSON.

Types have the names of the Go types in k8s.io/api and apimachinery, except these:

    type                       in Go
    Allocation                 AllocationResult
    AllocationConfiguration    DeviceAllocationConfiguration
    CapacityRange              CapacityRequestPolicyRange
    CelSelector                CELDeviceSelector
    ClaimConfiguration         DeviceClaimConfiguration
    ClassConfiguration         DeviceClassConfiguration
    ConsumerReference          ResourceClaimConsumerReference
    DerivedAttribute           DeviceDerivedAttribute
    DeviceAllocation           DeviceAllocationResult
    DeviceResult               DeviceRequestAllocationResult
    NodeOperation              SkipNodeOperation
    OpaqueConfiguration        OpaqueDeviceConfiguration
    TaintEffect                DeviceTaintEffect
    TolerationOperator         DeviceTolerationOperator

Fields have their names in JSON, in snake case, except those that stand for several members of the
JSON object: at most one of them may be present, or they belong together.

    field                              in JSON
    CapacityRequestPolicy.valid        validValues, validRange
    Device.nodes                       nodeName, nodeSelector, allNodes
    DeviceConstraint.rule              matchAttribute, distinctAttribute
    DeviceRequest.wants                exactly, firstAvailable
    DeviceSubRequest.mode              allocationMode, count
    ExactDeviceRequest.mode            allocationMode, count
    NodeAllocatableMapping.multiplier  capacityKey, capacityMultiplier, deviceMultiplier
    ResourceSliceSpec.nodes            nodeName, nodeSelector, allNodes, perDeviceNodeSelection

Each alternative of such a choice is a type, and so is each kind of value of a DeviceAttribute.

    alternative                in JSON
    BoolAttribute              bool
    BoolsAttribute             bools
    DistinctAttribute          distinctAttribute
    Exactly                    exactly
    FirstAvailable             firstAvailable
    IntAttribute               int
    IntsAttribute              ints
    MatchAttribute             matchAttribute
    OnAllNodes                 allNodes
    OnMatchingNodes            nodeSelector
    OnNode                     nodeName
    PerDevice                  perDeviceNodeSelection
    StringAttribute            string
    StringsAttribute           strings
    ValidRange                 validRange
    ValidValues                validValues
    VersionAttribute           version
    VersionsAttribute          versions
"""

from carina_dra.resource.allocation import (
    AllocatedDeviceStatus,
    Allocation,
    AllocationConfigSource,
    AllocationConfiguration,
    DeviceAllocation,
    DeviceResult,
    NetworkDeviceData,
)
from carina_dra.resource.attribute import (
    BoolAttribute,
    BoolsAttribute,
    DeviceAttribute,
    IntAttribute,
    IntsAttribute,
    StringAttribute,
    StringsAttribute,
    UnknownAttribute,
    VersionAttribute,
    VersionsAttribute,
    lookup,
)
from carina_dra.resource.capacity import (
    CapacityRange,
    CapacityRequestPolicy,
    CapacityRequirements,
    DeviceCapacity,
    ValidRange,
    ValidValues,
)
from carina_dra.resource.claim import (
    ClaimConfiguration,
    ConsumerReference,
    DeviceClaim,
    DeviceConstraint,
    DistinctAttribute,
    MatchAttribute,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from carina_dra.resource.codec import (
    decode,
    encode,
)
from carina_dra.resource.counter import (
    Counter,
    CounterSet,
    DeviceCounterConsumption,
)
from carina_dra.resource.device import (
    Device,
    DeviceNodes,
    OnAllNodes,
    OnMatchingNodes,
    OnNode,
)
from carina_dra.resource.device_class import (
    CelSelector,
    ClassConfiguration,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    OpaqueConfiguration,
)
from carina_dra.resource.errors import (
    DecodeError,
)
from carina_dra.resource.metadata import (
    Condition,
    ConditionStatus,
    ObjectMeta,
    OwnerReference,
)
from carina_dra.resource.node_allocatable import (
    CapacityMultiplier,
    DeviceMultiplier,
    Multiplier,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from carina_dra.resource.node_operation import (
    NodeOperation,
)
from carina_dra.resource.node_selector import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from carina_dra.resource.request import (
    All,
    AllocationMode,
    DerivedAttribute,
    DeviceRequest,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    UnknownMode,
)
from carina_dra.resource.schema import (
    JsonObject,
    Unrecognized,
)
from carina_dra.resource.slice import (
    PerDevice,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceNodes,
)
from carina_dra.resource.taint import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
    DeviceToleration,
    TaintEffect,
    TolerationOperator,
)
from carina_dra.resource.template import (
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)

__all__ = [
    "All",
    "AllocatedDeviceStatus",
    "Allocation",
    "AllocationConfigSource",
    "AllocationConfiguration",
    "AllocationMode",
    "BoolAttribute",
    "BoolsAttribute",
    "CapacityMultiplier",
    "CapacityRange",
    "CapacityRequestPolicy",
    "CapacityRequirements",
    "CelSelector",
    "ClaimConfiguration",
    "ClassConfiguration",
    "Condition",
    "ConditionStatus",
    "ConsumerReference",
    "Counter",
    "CounterSet",
    "DecodeError",
    "DerivedAttribute",
    "Device",
    "DeviceAllocation",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClass",
    "DeviceClassSpec",
    "DeviceConstraint",
    "DeviceCounterConsumption",
    "DeviceMultiplier",
    "DeviceNodes",
    "DeviceRequest",
    "DeviceResult",
    "DeviceSelector",
    "DeviceSubRequest",
    "DeviceTaint",
    "DeviceTaintRule",
    "DeviceTaintRuleSpec",
    "DeviceTaintRuleStatus",
    "DeviceTaintSelector",
    "DeviceToleration",
    "DistinctAttribute",
    "ExactCount",
    "ExactDeviceRequest",
    "Exactly",
    "FirstAvailable",
    "IntAttribute",
    "IntsAttribute",
    "JsonObject",
    "MatchAttribute",
    "Multiplier",
    "NetworkDeviceData",
    "NodeAllocatableMapping",
    "NodeAllocatableOverhead",
    "NodeAllocatableResource",
    "NodeOperation",
    "NodeSelector",
    "NodeSelectorOperator",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "ObjectMeta",
    "OnAllNodes",
    "OnMatchingNodes",
    "OnNode",
    "OpaqueConfiguration",
    "OwnerReference",
    "PerDevice",
    "ResourceClaim",
    "ResourceClaimSpec",
    "ResourceClaimStatus",
    "ResourceClaimTemplate",
    "ResourceClaimTemplateSpec",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
    "SliceNodes",
    "StringAttribute",
    "StringsAttribute",
    "TaintEffect",
    "TolerationOperator",
    "UnknownAttribute",
    "UnknownMode",
    "Unrecognized",
    "ValidRange",
    "ValidValues",
    "VersionAttribute",
    "VersionsAttribute",
    "decode",
    "encode",
    "lookup",
]

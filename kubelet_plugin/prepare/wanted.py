"""What claims need on the node, as pure functions of the claims and the node's devices.

`identities` depends on the claim only, so that its resources can be removed after its devices have
vanished. `wanted` also depends on the current devices.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from carina_dra.config.device import GpuConfig
from carina_dra.config.enforcement import cores_suffice, memory_suffices
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.claims.failure import (
    ClaimError,
    DeviceMissing,
    DeviceUnhealthy,
    EnforcementMissing,
)
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.health import HEALTHY, Problems, in_order
from kubelet_plugin.prepare.resource import ClaimSpec, Identity, NodeResource, spec_identity


def identities(claim: NodeClaim) -> frozenset[Identity]:
    """Returns the identities of all resources that the claim needs, or may have needed."""
    return frozenset({spec_identity(claim.uid)})


def wanted(
    claims: Iterable[NodeClaim], devices: Mapping[str, GpuDevice]
) -> Mapping[Identity, NodeResource]:
    """Returns all resources that the claims need; `devices` are the node's devices by name.

    Raises:
        ClaimError: a device of a claim is missing or unhealthy, or enforces less than the claim
            demands.
    """
    resources = (resource for claim in claims for resource in _needed_by(claim, devices))
    return {resource.identity: resource for resource in resources}


def _needed_by(claim: NodeClaim, devices: Mapping[str, GpuDevice]) -> Iterable[NodeResource]:
    usable = {allocated.device: _usable(claim, allocated, devices) for allocated in claim.devices}
    yield ClaimSpec(claim, usable)


def _usable(
    claim: NodeClaim, allocated: AllocatedDevice, devices: Mapping[str, GpuDevice]
) -> GpuDevice:
    name = allocated.device
    device = devices.get(name)
    if device is None:
        raise ClaimError(DeviceMissing(claim, name, tuple(sorted(devices))))
    for problem in in_order(_preventing(device)):
        raise ClaimError(DeviceUnhealthy(claim, name, device.gpu.uuid, problem))
    if isinstance(device, Share) and not allocated.admin_access:
        _refuse_weaker(claim, allocated, device)
    return device


def _refuse_weaker(claim: NodeClaim, allocated: AllocatedDevice, share: Share) -> None:
    """Refuses a share whose limits are enforced less than its configuration demands."""
    if isinstance(allocated.config, GpuConfig):
        return  # recorded by a version that does not know shares
    demanded = allocated.config.enforcement
    memory, cores = share.memory_enforcement, share.core_enforcement
    if not memory_suffices(memory, demanded.memory):
        raise ClaimError(
            EnforcementMissing(
                claim,
                allocated.device,
                "enforcement.memory",
                demanded.memory,
                "memoryEnforcement",
                memory,
            )
        )
    if not cores_suffice(cores, demanded.cores):
        raise ClaimError(
            EnforcementMissing(
                claim,
                allocated.device,
                "enforcement.cores",
                demanded.cores,
                "coreEnforcement",
                cores,
            )
        )


def _preventing(device: GpuDevice) -> Problems:
    """Returns the problems that prevent the use of a device."""
    match device:
        case WholeGpu() | Share():
            return device.state.problems
        case Monitor():
            return HEALTHY  # a GPU with problems is one to be looked at
    assert_never(device)

"""What a ResourceClaim's allocation says about this node: `Wanted | Gone | Refused | Unknown`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from carina_dra.config.device import (
    ConfigSource,
    ConfiguredDevice,
    DeviceConfig,
    DeviceConfigError,
    GpuConfig,
    configs_in_force,
)
from carina_dra.resource import (
    Allocation,
    AllocationConfigSource,
    DecodeError,
    DeviceResult,
    ResourceClaim,
    decode,
)
from kubelet_plugin.claims.claim import AllocatedDevice, ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import AllocationRefused, ApiUnavailable, ClaimGone
from kubelet_plugin.devices.name import DeviceName, UnknownName, WholeGpuName, parse_name

_WRITTEN_IN = {
    AllocationConfigSource.CLASS: "of the DeviceClass",
    AllocationConfigSource.CLAIM: "of the claim",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The claim holds these devices of this node."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Gone:
    """The claim holds nothing of this node: it was deleted, deallocated, or allocated elsewhere."""

    failure: ClaimGone


@dataclass(frozen=True, slots=True)
class Refused:
    """The claim holds devices of this node in a way that cannot be served."""

    failure: AllocationRefused


@dataclass(frozen=True, slots=True)
class Unknown:
    """The API server was not reached or did not answer with the claim: that says nothing of it."""

    failure: ApiUnavailable


Reading: TypeAlias = Wanted | Gone | Refused | Unknown


def read_allocation(
    body: Mapping[str, Any], reference: ClaimReference, *, driver: str, pool: str
) -> Reading:
    """Gives what the claim with that UID holds of this driver's devices in this node's pool."""
    try:
        claim = decode(ResourceClaim, body)
    except DecodeError as error:
        return _no_answer(reference, str(error))
    found = claim.metadata
    if (found.namespace, found.name) != (reference.namespace, reference.name) or not found.uid:
        return _no_answer(reference, f"the answer is {found.key or 'nameless'}, another object")
    if claim.metadata.uid != reference.uid:
        return _gone(
            reference,
            f"has the UID {claim.metadata.uid} now, not {reference.uid}: it was deleted and "
            "created again",
        )
    allocation = claim.status.allocation
    if allocation is None:
        return _gone(reference, "is not allocated")
    results = [result for result in allocation.devices.results if result.driver == driver]
    if not results:
        return _gone(reference, f"was allocated no device of {driver}")
    elsewhere = [result for result in results if result.pool != pool]
    if elsewhere:
        problem = (
            f"was allocated {elsewhere[0].device} of the pool {elsewhere[0].pool}; this node's "
            f"pool is {pool}"
        )
        if len(elsewhere) == len(results):
            return _gone(reference, problem)
        return Refused(AllocationRefused(reference, f"ResourceClaim {reference.key} {problem}"))
    try:
        devices = _devices(reference, results, allocation, driver)
    except DeviceConfigError as error:
        return Refused(AllocationRefused(reference, str(error)))
    return Wanted(NodeClaim(reference.uid, reference.namespace, reference.name, devices))


def _no_answer(claim: ClaimReference, what: str) -> Unknown:
    problem = f"{what}; check that no proxy answers in its place"
    return Unknown(ApiUnavailable(claim, problem, retriable=True))


def _gone(claim: ClaimReference, what: str) -> Gone:
    return Gone(ClaimGone(claim, f"ResourceClaim {claim.key} {what}"))


def _devices(
    claim: ClaimReference, results: Sequence[DeviceResult], allocation: Allocation, driver: str
) -> tuple[AllocatedDevice, ...]:
    configs = configs_in_force(
        [
            ConfiguredDevice(result.request, result.device, _accepts(parse_name(result.device)))
            for result in results
        ],
        _configurations(claim, allocation, driver),
    )
    return tuple(
        AllocatedDevice(
            request=result.request.partition("/")[0],
            pool=result.pool,
            device=result.device,
            config=config,
            admin_access=bool(result.admin_access),
            share_id=result.share_id,
            consumed_capacity=result.consumed_capacity,
        )
        for result, config in zip(results, configs, strict=True)
    )


def _accepts(name: DeviceName) -> type[DeviceConfig]:
    """The kind of configuration that a device takes."""
    match name:
        case WholeGpuName() | UnknownName():  # an unknown device is refused when it is looked for
            return GpuConfig
    assert_never(name)


def _configurations(
    claim: ClaimReference, allocation: Allocation, driver: str
) -> tuple[ConfigSource, ...]:
    return tuple(
        ConfigSource(
            location=f"ResourceClaim {claim.key}, status.allocation.devices.config[{index}] "
            f"({_WRITTEN_IN[config.source]})",
            from_class=config.source is AllocationConfigSource.CLASS,
            requests=frozenset(config.requests),
            parameters=config.opaque.parameters,
        )
        for index, config in enumerate(allocation.devices.config)
        if config.opaque is not None and config.opaque.driver == driver
    )

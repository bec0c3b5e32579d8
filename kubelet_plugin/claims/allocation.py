"""From a ResourceClaim's allocation to what it means on this node."""

from collections.abc import Mapping
from typing import Any

from carina_dra.config.device import ConfigSource, gpu_config
from carina_dra.resource import Allocation, AllocationConfigSource, ResourceClaim, decode
from kubelet_plugin.claims.claim import ClaimDevice, PreparedClaim

_WRITTEN_IN = {
    AllocationConfigSource.CLASS: "of the DeviceClass",
    AllocationConfigSource.CLAIM: "of the claim",
}


class NotAllocatedError(Exception):
    """The claim is not, or no longer, what holds devices here."""


class AllocationError(Exception):
    """An allocation that this node cannot serve."""


def prepared_claim(body: Mapping[str, Any], uid: str, *, driver: str, pool: str) -> PreparedClaim:
    """Gives what the claim with that UID holds of this driver's devices in this node's pool.

    Raises:
        NotAllocatedError: the claim is another one of the same name, or has no allocation.
        AllocationError: devices of another node, or none of ours.
        DecodeError: it is no ResourceClaim.
        DeviceConfigError: a configuration of ours in it cannot be honoured.
    """
    claim = decode(ResourceClaim, body)
    if claim.metadata.uid != uid:
        raise NotAllocatedError(
            f"ResourceClaim {claim.key} has the UID {claim.metadata.uid} now, not {uid}: "
            "it was deleted and made anew"
        )
    allocation = claim.status.allocation
    if allocation is None:
        raise NotAllocatedError(f"ResourceClaim {claim.key} is not allocated")
    return PreparedClaim(
        uid=uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        devices=_devices(claim.key, allocation, driver, pool),
    )


def _devices(key: str, allocation: Allocation, driver: str, pool: str) -> tuple[ClaimDevice, ...]:
    results = [result for result in allocation.devices.results if result.driver == driver]
    if not results:
        raise AllocationError(f"ResourceClaim {key} was allocated no device of {driver}")
    for result in results:
        if result.pool != pool:
            raise AllocationError(
                f"ResourceClaim {key} was allocated {result.device} of the pool {result.pool}; "
                f"this node's pool is {pool}"
            )
    sources = _configurations(key, allocation, driver)
    return tuple(
        ClaimDevice(
            request=result.request.partition("/")[0],
            pool=result.pool,
            device=result.device,
            config=gpu_config(result.request, sources),
            admin_access=bool(result.admin_access),
            share_id=result.share_id,
        )
        for result in results
    )


def _configurations(key: str, allocation: Allocation, driver: str) -> tuple[ConfigSource, ...]:
    return tuple(
        ConfigSource(
            place=f"ResourceClaim {key}, status.allocation.devices.config[{index}] "
            f"({_WRITTEN_IN[config.source]})",
            from_class=config.source is AllocationConfigSource.CLASS,
            requests=frozenset(config.requests),
            parameters=config.opaque.parameters,
        )
        for index, config in enumerate(allocation.devices.config)
        if config.opaque is not None and config.opaque.driver == driver
    )
